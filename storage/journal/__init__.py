"""The journal: one fsync makes the small appends of many partitions durable (ADR 23).

``journal`` writes it and frees it, ``pieces`` takes what logs have written, ``journal_files`` keeps its circle of
files, ``entries`` has their format, and ``replay`` gives the segments what they lack after a crash.
"""
