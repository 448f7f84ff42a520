"""Partitions as requests use them: writers, and the requests that wait for appends and records.

``directory`` finds a partition and its writer, ``appends`` takes appends. ``partition_writer`` is the one task that
writes a partition: it gathers waiting appends into one write and one fsync. ``turn_flushes`` lets the flushes of many
partitions share an fsync. ``purgatory`` holds requests that wait. ``fetch_waiters`` are long polls, which wait for
records, and ``crowds`` are those that get the same answer. ``produce_waiters`` are appends with ``acks=all`` that wait
for followers; this release has none, so the wait ends at once.
"""
