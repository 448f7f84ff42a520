"""Reads of topics as DataFrames, in batches and streams, planned on the driver and fetched in the tasks.

batch_reader   stream_reader   the two kinds of reads
positions       subscribed partitions, starts and ends, offsets in Kafka's JSON
splitting       ranges for tasks
admission       the size of a micro-batch
fetch_rows      one task: fetches a range of offsets
arrow_records   records as Arrow batches
"""
