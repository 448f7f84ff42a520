"""Sparse indexes of a segment: offset index, time index, transaction index.

An index is a sorted file of fixed-size entries. A look-up returns a batch at or before the wanted one, and the reader
walks forward from there. ``index_file`` keeps the entries on the disk and in memory; ``sparse_index``, ``offset_index``
and ``time_index`` know what the entries mean. ``index_builder`` makes all indexes of a segment from its batches.
``batch_walk`` reads those batches one after another. Layouts: ``docs/reference/on-disk-format.md``.
"""
