"""Partitions as requests use them: writers, and the requests that wait for appends and records.

``directory`` finds a partition and its writer, ``appends`` takes appends. ``partition_writer`` is the one task that
writes a partition: it gathers waiting appends into one write and one fsync. ``purgatory`` holds requests that wait: in
``fetch_waiters`` for records, in ``produce_waiters`` until every copy of the partition has an append (this release has
one copy).
"""
