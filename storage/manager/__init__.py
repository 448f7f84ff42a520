"""All logs of a data directory: opened at start, created, altered, deleted, closed.

``log_manager`` is the face of the room. ``topic_registry`` keeps one file for each topic: its partitions and its
configuration.
"""
