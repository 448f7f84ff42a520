"""The log of one partition: append, publish, flush, roll, retention, truncation, and what a reader sees of it.

A writer (``log_writer``) changes the log; a reader takes a ``LogSnapshot``, which never changes. ``partition_log``
joins both. Start with ``log_snapshot``, then ``partition_log``.
"""
