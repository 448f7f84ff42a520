"""Produce requests: batches made of records, sent to their partitions, recognised when they are sent again."""
