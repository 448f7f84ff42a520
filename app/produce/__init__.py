"""Produce requests: makes batches of records, sends them to partitions, and recognises requests that came before.

``submit`` is the one way to the engine: every append of a client passes there and is charged. ``producing`` appends
to one partition or spreads records over a topic, ``produce_dispatch`` appends to many, ``record_stream`` appends lines
while they arrive. ``partitioning`` chooses partitions. ``idempotence`` turns an ``Idempotency-Key`` into a producer
id, by which the log recognises a repeated request. ``enlisting`` adds partitions to a transaction before the append.
"""
