"""Fetch requests: records of one or many partitions, sessions, offsets by time, and splits; through the port alone."""
