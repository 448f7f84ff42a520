"""The engine over ``storage``: one data directory of this machine.

``opening`` recovers the directory, and ``engine`` holds the parts: ``topics`` (create, alter, delete, retention),
``partitions`` (appends and their writers, waiting requests), ``reading``, ``transactions``, ``keyed_log`` (logs in
which the service keeps state), ``background`` (flush, roll, retention, checkpoints by time).
"""
