"""The record section of a batch: its records, uncompressed, one after the other.

``reader`` has the layout and reads sections, ``writer`` writes them. Each calls one of two twins: ``reader_c`` and
``writer_c`` in C where they were compiled, otherwise ``reader_py`` and ``writer_py``. ``pieces`` cuts a section into
pieces of whole records. ``varint`` is the form of the numbers in it. Start with ``reader``.
"""
