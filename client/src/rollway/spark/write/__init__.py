"""Writes of DataFrames to topics: one load job for each write, whose tasks send in parallel.

batch_writer   stream_writer   the two kinds of writes
load_jobs       the driver: begins and decides the job
loading         one attempt of a task
arrow_rows      rows of Arrow batches as columns of records
routing         the partition of each row
sending         batches over a few connections
rejects         rows that cannot be loaded
keep_alive      signs of life for a job whose input is slow
messages        from the tasks to the driver
report          the result of a load
"""
