"""The port between HTTP and an engine: protocols and values, without any code that stores or reads.

``engine`` has the protocol of a whole engine, and one module has each of its parts: ``topics``, ``appending``,
``reading``, ``transactions``, ``state`` (logs of the service itself), ``capabilities`` (the table of abilities).
``partitions`` has handles of partitions, which requests pass around. Rooms that speak HTTP import this room, and no
engine.
"""
