"""Neighbouring records of one shape, verified together: every field has its place, the same in all of them.

What lies around keys and values is copied out of a run, a *row* of a few bytes for each record, and compared at once
with the rows that there must be. When the length field is the same at every step of that width, each step is a record
by induction; when what says where fields are is the same everywhere too, two numbers are left: offset deltas, which
must count up, and timestamp deltas, of which the least and the greatest are wanted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rollway.records.section_rows import RECORD_BODY_BYTES_MIN
from rollway.records.sections.varint import read_varint, read_varlong

# A run of fewer is worth it only where the section ends, or where offset deltas get another byte.
_RUN_MIN = 12

# Offset deltas below these take one byte, two, three: a run ends where that changes.
_OFFSET_LIMITS = (1 << 6, 1 << 13, 1 << 20)

# Rows to compare with are kept for the next batch like this one: of so many shapes, and not of longer runs.
_KEPT_SHAPES_MAX = 32
_KEPT_COUNT_MAX = 8192

# Lengths take 5 bytes at most, timestamp deltas 10, offset deltas here 3.
_ROW_BYTES_MAX = 1 + 5 + 1 + 10 + 3 + 5 + 5
_ROW_TYPES = tuple(np.dtype(f"V{width}") for width in range(_ROW_BYTES_MAX + 1))
# Numbers of timestamp deltas; there are more bytes behind each in its record.
_NUMBER_BYTES_MAX = 4
_NUMBER_TYPES = tuple(map(np.dtype, ("V1", "u1", "<u2", "<u4", "<u4")))


class _Shape(NamedTuple):
    """Where the fields of a record lie, counted from its beginning; ``end`` is where the next record begins."""

    timestamp: int
    offset: int
    key: int
    key_end: int
    value: int
    value_end: int
    end: int
    timestamp_delta: int
    has_key: bool


class _Run(NamedTuple):
    """Some records of one shape, and their least and greatest timestamp delta."""

    record_count: int
    timestamp_delta_min: int
    timestamp_delta_max: int


def find_extremes(data: bytes | memoryview, record_count: int) -> tuple[int, int, bool] | None:
    """The least and greatest timestamp delta, and whether a key is null, of records that are runs of one shape each.

    ``None`` where ``data`` is anything else than ``record_count`` sound records without headers in few
    runs, their offset deltas counting up from 0.

    Raises:
        BrokenRecordError, IndexError: the first record of a run breaks the format.
    """
    least = greatest = 0
    has_null_key = False
    place, position, end = 0, 0, len(data)
    while place < record_count:
        limit = next((limit for limit in _OFFSET_LIMITS if place < limit), None)
        shape = _read_shape(data, position, end, place)
        if limit is None or shape is None:
            return None
        count_max = min(limit, record_count) - place
        run = _verify(data, position, shape, place, min(count_max, (end - position) // shape.end))
        if run is None or run.record_count < min(_RUN_MIN, count_max):
            return None
        count, low, high = run
        least = low if place == 0 or low < least else least
        greatest = high if place == 0 or high > greatest else greatest
        has_null_key |= not shape.has_key
        place += count
        position += count * shape.end
    return (least, greatest, has_null_key) if position == end else None


def _read_shape(data: bytes | memoryview, position: int, end: int, place: int) -> _Shape | None:
    """The shape of the record at ``position``; ``None`` for one with headers or of another offset delta."""
    length, body = read_varint(data, position, end)
    stop = body + length
    if length < RECORD_BODY_BYTES_MIN or stop > end:
        return None
    timestamp_delta, offset_at = read_varlong(data, body + 1, stop)
    offset, key_at = read_varint(data, offset_at, stop)
    if offset != place:
        return None
    key_bytes, key_end = read_varint(data, key_at, stop)
    value_at = key_end + max(key_bytes, 0)
    value_bytes, value_end = read_varint(data, value_at, stop)
    if key_bytes < -1 or value_bytes < -1 or value_end + max(value_bytes, 0) != stop - 1 or data[stop - 1]:
        return None
    return _Shape(
        body + 1 - position,
        offset_at - position,
        key_at - position,
        key_end - position,
        value_at - position,
        value_end - position,
        stop - position,
        timestamp_delta,
        key_bytes >= 0,
    )


def _verify(data: bytes | memoryview, position: int, shape: _Shape, place: int, count_max: int) -> _Run | None:
    """The records of ``shape`` from ``position`` on, at most ``count_max``, which would all be inside the section.

    ``None`` where their lengths agree and what else says where fields are does not. The first one has this shape.
    """
    # A row begins with the header count of the record before it, and ends where the first bytes of content may be.
    stride, row_bytes = shape.end, 1 + (shape.key_end if shape.has_key else shape.value_end)
    count = count_max - 1
    rows = bytearray(_gather(data, position + stride - 1, row_bytes, stride, count))
    are_equal = True
    row = b"\0" + bytes(data[position : position + row_bytes - 1])
    for at in range(1 + shape.timestamp, 1 + shape.offset):
        column = rows[at::row_bytes]
        are_equal = are_equal and column == row[at : at + 1] * count
        rows[at::row_bytes] = bytes(count)
        row = row[:at] + b"\0" + row[at + 1 :]
    wanted = _rows(row, 1 + shape.offset, shape.key - shape.offset, place + 1, count)
    if rows != wanted:
        count = min(_count_equal(rows[at::row_bytes], row[at : at + 1]) for at in range(1, shape.timestamp))
        if count == count_max - 1 or rows[: count * row_bytes] != wanted[: count * row_bytes]:
            return None
    count += 1
    if data[position + count * stride - 1]:
        return None
    if shape.has_key:
        lengths = _gather(data, position + shape.value, shape.value_end - shape.value, stride, count)
        if lengths != lengths[: shape.value_end - shape.value] * count:
            return None
    if are_equal:
        return _Run(count, shape.timestamp_delta, shape.timestamp_delta)
    extremes = _extremes(data, position + shape.timestamp, shape.offset - shape.timestamp, stride, count)
    return None if extremes is None else _Run(count, *extremes)


def _gather(data: bytes | memoryview, position: int, width: int, stride: int, count: int) -> bytes:
    """``width`` bytes at each of ``count`` steps, end to end."""
    return np.ndarray((count,), _ROW_TYPES[width], data, position, (stride,)).tobytes()


def _count_equal(column: bytes | bytearray, byte: bytes) -> int:
    """How many of its first bytes are ``byte``."""
    return len(column) - len(column.lstrip(byte))


def _rows(row: bytes, offset_at: int, offset_bytes: int, place: int, count: int) -> bytes:
    """``count`` times ``row``, with offset deltas counting up from ``place``."""
    make = _make_rows if count <= _KEPT_COUNT_MAX else _make_rows.__wrapped__
    return make(row, offset_at, offset_bytes, place, count)


@lru_cache(_KEPT_SHAPES_MAX)
def _make_rows(row: bytes, offset_at: int, offset_bytes: int, place: int, count: int) -> bytes:
    rows = bytearray(row * count)
    zigzagged = np.arange(2 * place, 2 * (place + count), 2, dtype=np.uint32)
    for number in range(offset_bytes):
        more = 0x80 if number + 1 < offset_bytes else 0
        column = (zigzagged >> 7 * number & 0x7F | more).astype(np.uint8)
        rows[offset_at + number :: len(row)] = column.tobytes()
    return bytes(rows)


def _extremes(data: bytes | memoryview, position: int, width: int, stride: int, count: int) -> tuple[int, int] | None:
    """The least and the greatest of numbers of ``width`` bytes; ``None`` when one takes more or fewer, or over four."""
    if width > _NUMBER_BYTES_MAX:
        return None
    raw = np.ndarray((count,), _NUMBER_TYPES[width], data, position, (stride,)).copy()
    if width == 3:
        raw &= 0xFFFFFF
    # All but the last byte of a number have their highest bit set, ...
    more = 0x808080 >> 8 * (4 - width)
    some, every = int(np.bitwise_or.reduce(raw)), int(np.bitwise_and.reduce(raw))
    if every & more != more or some >> 8 * width - 1:
        return None
    # ... and with those bits fixed the bytes are in the order of the numbers without a sign, which the lowest bit has.
    if not some & 1:
        return _number(np.minimum.reduce(raw)), _number(np.maximum.reduce(raw))
    is_negative = raw & 1 == 1
    negative, positive = raw[is_negative], raw[~is_negative]
    return _number(negative.max()), _number(positive.max() if len(positive) else negative.min())


def _number(raw: np.unsignedinteger[Any]) -> int:
    """The number that has these bytes, the first one lowest."""
    return read_varlong(int(raw).to_bytes(5, "little"), 0, 5)[0]
