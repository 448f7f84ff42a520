"""One segment: a file of record batches, its indexes, and the search for batches in it.

``segment`` owns the file and the indexes. ``batch_search`` finds whole batches for a read: ``batch_search_c`` in C if
it was compiled, otherwise ``batch_search_py``. ``index_copies`` has copies of indexes in memory, for the search.
Start with ``segment``.
"""
