"""The record section of a batch whose keys, values and headers are as long in one record as in the next.

Machines write such records. Their section is a table: every field stands in the same columns of every row, so numpy
copies field after field. Where a delta takes one byte more than before, another table begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rollway.records.columns import BinaryColumn, ByteArray, HeaderColumns, Int64Array, RecordColumns
from rollway.records.sections.varint import encode_varlong
from rollway.records.varint_arrays import VarintColumn, encode_varints

# Deltas that grow and fall take other sizes again and again; then the tables are too small to be worth it.
_TABLE_ROWS_MIN = 48

# Records with more headers are rare, and hardly ever alike.
_HEADERS_MAX = 8

_WORD_BYTES = 8
_ATTRIBUTES = b"\x00"
_NULL = b"\x01"
_NO_HEADERS = b"\x00"

# From these offset deltas on, one more byte.
_OFFSET_MEETS = tuple(1 << 7 * size - 1 for size in range(1, 5))


class _Numbers(NamedTuple):
    """Zigzagged numbers, each to be written in ``size`` bytes."""

    zigzagged: npt.NDArray[Any]
    size: int


class _Bytes(NamedTuple):
    """Byte strings of ``size`` each: the first at ``data[at]``, each of the others ``step`` bytes further."""

    data: ByteArray
    at: int
    size: int
    step: int


_Part = bytes | _Numbers | _Bytes


def table_section(columns: RecordColumns, timestamp_deltas: Int64Array) -> ByteArray | None:
    """The record section of ``columns``, offset deltas from 0; ``None`` when its records are no tables."""
    count = len(columns)
    content: list[_Part] = []
    for column in (columns.keys, columns.values):
        parts = _content_parts(column, 1)
        if parts is None:
            return None
        content += parts[0]
    header_parts = _header_parts(columns.headers)
    if header_parts is None:
        return None
    content += header_parts
    timestamps = encode_varints(timestamp_deltas)
    ends = _table_ends(timestamps, count)
    if ends is None:
        return None
    offsets = np.arange(0, 2 * count, 2, dtype=np.uint16 if count <= 1 << 15 else np.uint64)
    tables: list[tuple[int, int, int, list[_Part]]] = []
    content_bytes = sum(map(_size_of, content))
    for start, end in pairwise(ends):
        deltas = [_numbers_at(timestamps, start, end), _Numbers(offsets[start:end], len(encode_varlong(start)))]
        body_bytes = len(_ATTRIBUTES) + sum(map(_size_of, deltas)) + content_bytes
        length = encode_varlong(body_bytes)
        rows = [part._replace(at=part.at + start * part.step) if isinstance(part, _Bytes) else part for part in content]
        tables.append((start, end, len(length) + body_bytes, [length + _ATTRIBUTES, *deltas, *rows]))
    section = np.empty(sum((end - start) * width for start, end, width, _ in tables), dtype=np.uint8)
    position = 0
    for start, end, width, row in tables:
        _fill_table(section, position, end - start, width, row)
        position += (end - start) * width
    return section


def _content_parts(column: BinaryColumn, per_row: int) -> list[list[_Part]] | None:
    """Of each of the ``per_row`` byte strings of a row its length and bytes, when those of all rows are as long.

    ``None`` when they are not, and when some are null only in some rows.
    """
    lengths = (column.offsets[1:] - column.offsets[:-1]).reshape(-1, per_row)
    if (lengths != lengths[0]).any():
        return None
    nulls = [False] * per_row
    if column.nulls is not None:
        flags = column.nulls.reshape(-1, per_row)
        if (flags != flags[0]).any():
            return None
        nulls = flags[0].tolist()
    widths = lengths[0].tolist()
    at, step = int(column.offsets[0]), sum(widths)
    parts: list[list[_Part]] = []
    for width, is_null in zip(widths, nulls, strict=True):
        content: list[_Part] = [_NULL if is_null else encode_varlong(width)]
        if width and not is_null:
            content.append(_Bytes(column.data, at, width, step))
        parts.append(content)
        at += width
    return parts


def _header_parts(headers: HeaderColumns | None) -> list[_Part] | None:
    """The number of headers of every record and the headers; ``None`` when those of all records are not alike."""
    if headers is None or len(headers.names) == 0:
        return [_NO_HEADERS]
    counts = headers.counts
    header_count = int(counts[0])
    if not 0 < header_count <= _HEADERS_MAX or (counts != header_count).any():
        return None
    names = _content_parts(headers.names, header_count)
    values = _content_parts(headers.values, header_count)
    if names is None or values is None:
        return None
    pairs = zip(names, values, strict=True)
    return [encode_varlong(header_count), *(part for name, value in pairs for part in (*name, *value))]


def _table_ends(timestamps: bytes | VarintColumn, count: int) -> list[int] | None:
    """Where tables begin and end: in each of them all timestamp deltas take as many bytes, and all offset deltas."""
    meets = {0, count, *(place for place in _OFFSET_MEETS if place < count)}
    if isinstance(timestamps, VarintColumn) and not isinstance(timestamps.sizes, int):
        changes = np.flatnonzero(timestamps.sizes[1:] != timestamps.sizes[:-1])
        if len(changes) * _TABLE_ROWS_MIN > count:
            return None
        meets.update((changes + 1).tolist())
    return sorted(meets)


def _numbers_at(encoded: bytes | VarintColumn, start: int, end: int) -> bytes | _Numbers:
    """The rows ``[start, end)`` of a column, where all numbers take as many bytes as the first of them."""
    if isinstance(encoded, bytes):
        return encoded
    size = encoded.sizes if isinstance(encoded.sizes, int) else int(encoded.sizes[start])
    return _Numbers(encoded.zigzagged[start:end], size)


def _size_of(part: _Part) -> int:
    return len(part) if isinstance(part, bytes) else part.size


def _fill_table(section: ByteArray, position: int, count: int, width: int, row: Sequence[_Part]) -> None:
    """Write ``count`` rows of ``width`` bytes each from ``position`` on, whose parts are ``row``."""
    at = 0
    word = _Word(section, position, count, width)
    for part in row:
        size = _size_of(part)
        if isinstance(part, _Bytes):
            word.flush()
            # As elements of so many bytes they are copied quicker than as rows of a matrix.
            elements = np.ndarray((count,), f"V{size}", section, position + at, (width,))
            elements[:] = np.ndarray((count,), f"V{size}", part.data, part.at, (part.step,))
        else:
            word.add(part, at)
        at += size
    word.flush()


class _Word:
    """The bytes of small parts side by side, gathered so that a row takes eight of them at a time."""

    def __init__(self, section: ByteArray, position: int, count: int, width: int) -> None:
        self._section = section
        self._position = position
        self._count = count
        self._width = width
        self._start = 0
        self._constant = 0
        self._varying: npt.NDArray[np.uint64] | None = None
        self._size = 0

    def add(self, part: bytes | _Numbers, at: int) -> None:
        """Take a part whose place in the row is ``at``, behind all that came before."""
        if isinstance(part, _Numbers):
            for place in range(0, part.size, _WORD_BYTES // 2):
                self._add_numbers(part, place, min(part.size, place + _WORD_BYTES // 2), at + place)
            return
        for place, byte in enumerate(part, at):
            self._make_room(1, place)
            self._constant |= byte << 8 * self._size
            self._size += 1

    def _add_numbers(self, part: _Numbers, first: int, last: int, at: int) -> None:
        """Take the bytes ``[first, last)`` of numbers."""
        self._make_room(last - first, at)
        narrow = last <= 2 and part.zigzagged.itemsize <= 2
        numbers = part.zigzagged.astype(np.uint16 if narrow else np.uint64, copy=False)
        packed = _byte_of(numbers, first, part.size)
        for place in range(first + 1, last):
            packed = packed | (_byte_of(numbers, place, part.size) << 8 * (place - first))
        shifted = packed.astype(np.uint64) << np.uint64(8 * self._size)
        self._varying = shifted if self._varying is None else self._varying | shifted
        self._size += last - first

    def _make_room(self, size: int, at: int) -> None:
        if self._size + size > _WORD_BYTES:
            self.flush()
        if self._size == 0:
            self._start = at

    def flush(self) -> None:
        """Write what was gathered; what it writes too much is overwritten by the parts that follow in the row."""
        start, size = self._start, self._size
        if size == 0:
            return
        constant = np.uint64(self._constant)
        word = constant if self._varying is None else self._varying | constant
        self._constant, self._varying, self._size = 0, None, 0
        done = 0
        while done < size:
            # All eight bytes where the row has them: who comes next writes over the rest.
            step = _WORD_BYTES if start + done + _WORD_BYTES <= self._width else _largest_power(size - done)
            place = self._position + start + done
            table = np.ndarray((self._count,), f"<u{step}", self._section, place, (self._width,))
            table[:] = (word >> np.uint64(8 * done)).astype(f"<u{step}", copy=False)
            done += step


def _byte_of(numbers: npt.NDArray[Any], place: int, size: int) -> npt.NDArray[Any]:
    """Byte number ``place`` of numbers that take ``size`` bytes."""
    byte = (numbers >> 7 * place) & 0x7F
    return byte | 0x80 if place + 1 < size else byte


def _largest_power(size: int) -> int:
    return 4 if size >= 4 else 2 if size >= 2 else 1
