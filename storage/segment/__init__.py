"""One segment: a file of record batches, its indexes, and the search for batches in it.

``segment`` owns the file and the indexes. ``batch_search`` finds whole batches for a read, in C if it was compiled.
Start with ``segment``.
"""
