"""Message sets of magic 0 and 1, the formats before record batches.

``messages`` has their layout and walks them, ``decode`` makes columns of them, ``encode`` makes them of columns. LZ4
frames in messages of magic 0 have a checksum that is computed differently; ``lz4_of_magic_0`` replaces it. Start with
``messages``.
"""
