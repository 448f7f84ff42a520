"""The log of one partition: append, publish, flush, roll, retention, truncation, and the view of a reader.

A writer (``log_writer``) changes the log. A reader takes a ``LogSnapshot``, which never changes. ``partition_log``
joins both. Start with ``log_snapshot``, then ``partition_log``.
"""
