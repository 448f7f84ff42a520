"""Reads of the local engine: ranges of offsets, waits, several partitions, lookups by time, and splits."""
