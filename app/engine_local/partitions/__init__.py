"""Partitions as requests use them: writers, and the requests that wait for appends and records."""
