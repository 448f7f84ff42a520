"""All logs of a data directory: opened at start, created, altered, deleted, closed.

``log_manager`` is the entry to this package. ``topic_registry`` keeps one file for each topic: its partitions and its
configuration. ``topic_changes`` creates, alters and deletes topics. If the operating system refuses a step of a
change, ``refused_changes`` finishes or undoes the change later.
"""
