"""Fetch requests: the range of offsets they mean, one or many partitions, and offsets by time."""
