"""The port between HTTP and an engine: protocols and values, without any code that stores or reads.

``engine`` has the protocol of a whole engine. Each of its parts is a protocol in a module of its own: ``topics``,
``appending``, ``reading``, ``transactions``, ``state`` (logs in which the service keeps its own state),
``capabilities`` (what an engine can do). ``partitions`` has handles of partitions, which requests pass around. Packages
that speak HTTP import this package. They import no package that implements it.
"""
