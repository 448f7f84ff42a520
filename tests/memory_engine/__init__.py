"""An engine in memory, which proves that `app.engine` is a port: the HTTP suite runs on it as on the local engine.

A partition is a list of batches. Nothing is quick, nothing runs in a thread of its own, and nothing touches a disk.
What the brokers of a cluster would keep, ``Cluster`` keeps: a service that starts again with the same data directory
finds it there.
"""
