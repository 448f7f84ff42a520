"""The port between HTTP and an engine: protocols and values, without any code that stores or reads.

``engine`` has the whole engine. Its parts: ``topics``, ``appending``, ``reading``, ``transactions``, ``state`` (logs of
the service's own), ``capabilities`` (the table of what an engine can do). ``partitions`` has the handles that requests
pass around. Rooms that speak HTTP import this room, and no engine.
"""
