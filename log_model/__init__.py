"""Types that describe logs: offsets, batches, errors, names, topic settings, results of reads.

They are values and checks that need no log. ``storage`` and every engine import this package, and this package imports
neither.
"""
