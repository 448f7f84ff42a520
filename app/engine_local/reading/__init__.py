"""Reads of the local engine: ranges of offsets, long polls, several partitions, look-ups by time, and splits.

``reads`` is the entry. ``ranges`` turns a request into offsets of a snapshot. ``pending_read`` reads, once the wait in
``app.engine_local.partitions`` is over.
"""
