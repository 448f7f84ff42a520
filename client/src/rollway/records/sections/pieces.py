"""A section of records in pieces of whole records, so that what is made of it at a time is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rollway.records.errors import BrokenRecordError
from rollway.records.section_boundaries import find_boundaries
from rollway.records.section_rows import RECORD_BODY_BYTES_MIN, broken_row
from rollway.records.sections.varint import read_varint

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

    Only lengths are looked at: what is in a record is for ``read_section`` to judge, piece by piece. A section that
    fits into one piece is that piece, unseen. Takes no memory beside what a piece's lengths take.

    Example: of three records of 200 KiB each is a piece of its own.

    Raises:
        BrokenRecordError: a length leads out of the section, there are too few records, or bytes are left over. Pieces
            before were yielded.
    """
    view = memoryview(section)
    if len(view) <= piece_bytes:
        yield Piece(0, record_count, 0, len(view))
        return
    first = start = 0
    while first < record_count:
        window = view[start : start + piece_bytes]
        end, count = _whole_records(window, record_count - first)
        if count == 0:
            end, count = _one_record(view, start, first), 1
        else:
            end += start
        yield Piece(first, count, start, end)
        first += count
        start = end
    if start < len(view):
        raise BrokenRecordError(f"{len(view) - start} bytes are left over after {record_count} records")


def _whole_records(window: memoryview, record_count: int) -> tuple[int, int]:
    """Where the last whole record of ``window`` ends, and how many there are."""
    fitting_count = len(window) // (RECORD_BODY_BYTES_MIN + 1)
    if not fitting_count:
        return 0, 0
    boundaries = find_boundaries(window, np.frombuffer(window, dtype=np.uint8), min(record_count, fitting_count))
    count = int(np.searchsorted(boundaries.starts[1:], len(window), side="right"))
    if boundaries.broken[:count].any():
        # Let it be found as broken where the record is read.
        count = max(1, int(boundaries.broken[:count].argmax()))
    return int(boundaries.starts[count]), count


def _one_record(view: memoryview, start: int, first: int) -> int:
    """Where a record ends that is longer than a piece."""
    try:
        length, body = read_varint(bytes(view[start : start + 5]), 0, min(5, len(view) - start))
    except BrokenRecordError:
        raise broken_row(first) from None
    if length < RECORD_BODY_BYTES_MIN or start + body + length > len(view):
        raise broken_row(first)
    return start + body + length
