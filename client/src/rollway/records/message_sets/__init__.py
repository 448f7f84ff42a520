"""Message sets of magic 0 and 1, the formats before record batches.

``messages`` has their layout and walks them, ``decode`` makes columns of them, ``encode`` makes them of columns.
``lz4_of_magic_0`` exchanges the checksum that LZ4 frames of that age have. Start with ``messages``.
"""
