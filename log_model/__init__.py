"""The words in which logs are spoken of: offsets, batches, errors, topics and their settings, reads and their ends.

Values and checks that need no log. ``storage`` and every engine share them; they know neither.
"""
