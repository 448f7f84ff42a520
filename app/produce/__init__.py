"""Produce requests: batches made of records, sent to their partitions, recognised when they are sent again.

``submit`` is the one way to the engine: every append of a client is charged and counted there. ``producing`` appends
to one partition or spreads records over a topic, ``produce_dispatch`` appends to many, ``record_stream`` appends lines
while they arrive. ``partitioning`` chooses partitions. ``idempotence`` turns an ``Idempotency-Key`` into a producer
id, by which the log recognises a repeated request. ``enlisting`` adds partitions to a transaction before the append.
"""
