"""The record section of a batch: its records, uncompressed, one after the other.

``sections_c`` reads and writes sections in C where it was compiled. ``pieces`` cuts a section into pieces of whole
records. ``varint`` is the form of its numbers.
"""
