"""The port between HTTP and an engine: protocols and values, without any code that stores or reads.

``engine`` has the protocol of a whole engine. Each of its parts is a protocol in a module of its own: ``topics``,
``appending``, ``reading``, ``transactions``, ``state`` (logs of the service itself), ``capabilities`` (abilities).
``partitions`` has handles of partitions, which requests pass around. Rooms that speak HTTP import this room, and no
engine.
"""
