"""A section of records in pieces of whole records, so that a reader makes columns of a bounded part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rollway.records.sections.reader import fit_records
from rollway.records.sections.reader_py import bytes_left_over, too_few_records

PIECE_BYTES = 256 * 1024
"""Bytes of records in a piece, unless a single record is longer."""


class Piece(NamedTuple):
    """The records ``[first, first + record_count)`` of a section, which lie in its bytes ``[start, end)``."""

    first: int
    record_count: int
    start: int
    end: int


def section_pieces(section: bytes | memoryview, record_count: int, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
    """Yield the pieces of a section of ``record_count`` records, of at most ``piece_bytes`` or one record.

    Only lengths are read; ``read_section`` judges the records, piece by piece. So a record whose length is broken is a
    piece of its own, which reaches to the end of the section. A section that fits into one piece is that piece, unread.

    Example: of three records of 200 KiB, each is a piece.

    Raises:
        BrokenRecordError: there are too few records, or bytes are left over. The pieces before were yielded.
    """
    view = memoryview(section)
    if len(view) <= piece_bytes:
        yield Piece(0, record_count, 0, len(view))
        return
    first = start = 0
    while first < record_count:
        if start == len(view):
            raise too_few_records(first, record_count)
        count, end = fit_records(view, start, record_count - first, piece_bytes)
        if count == 0:
            whole, end = fit_records(view, start, 1, len(view) - start)
            count, end = 1, end if whole else len(view)
        yield Piece(first, count, start, end)
        first += count
        start = end
    if start < len(view):
        raise bytes_left_over(len(view) - start, record_count)
