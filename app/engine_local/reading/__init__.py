"""Reads of the local engine: ranges of offsets, long polls, several partitions, look-ups by time, and splits.

``reads`` is the entry. ``ranges`` turns a request into offsets of one snapshot, and ``pending_read`` waits and reads.
"""
