"""Zigzag varints by the thousand, in numpy: the same bytes as ``varint`` writes and reads one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rollway.records.columns import BoolArray, ByteArray, Int64Array
from rollway.records.sections.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX, encode_varlong

# The last byte of the longest form has room for more bits than the number.
_LAST_BYTE_MAX = {VARINT_BYTES_MAX: 0x0F, VARLONG_BYTES_MAX: 0x01}

# The narrowest numbers that hold as many bytes of seven bits and one more.
_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint32, *(np.uint64,) * 6)

_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}

# Measured: when fewer than one in so many numbers go on after their first byte, those are better read apart.
_FEW_RATIO = 12


class Varints(NamedTuple):
    """Numbers read from many places at once.

    ``ends`` is where each one ends; ``broken`` marks those too long or out of range, absent when all are sound.
    """

    numbers: Int64Array
    ends: Int64Array
    broken: BoolArray | None


def read_varints(data: ByteArray, positions: Int64Array, bytes_max: int = VARINT_BYTES_MAX) -> Varints:
    """Read one number of at most ``bytes_max`` bytes (5: int32, 10: int64) at each position of ``data``.

    Positions beyond the data read its last byte again, so that no input is an error here: who calls knows where each
    number had to end and compares. ``data`` must not be empty.
    """
    byte = data.take(positions, mode="clip")
    more = _continues(byte)
    longer_count = int(np.count_nonzero(more))
    if longer_count * _FEW_RATIO > len(positions):
        return _read_together(data, positions, byte, more, bytes_max)
    numbers, ends = _unzigzag(byte & 0x7F), positions + 1
    if longer_count == 0:
        return Varints(numbers, ends, None)
    few = np.flatnonzero(more)
    read = _read_together(data, positions[few], byte[few], more[few], bytes_max)
    numbers[few], ends[few] = read.numbers, read.ends
    broken = None
    if read.broken is not None:
        broken = np.zeros(len(positions), dtype=np.bool_)
        broken[few] = read.broken
    return Varints(numbers, ends, broken)


def _read_together(data: ByteArray, positions: Int64Array, byte: ByteArray, more: ByteArray, bytes_max: int) -> Varints:
    """Read on from the first ``byte``: of all numbers as many bytes as the longest has; ``more`` says which count."""
    zigzagged: npt.NDArray[Any] = byte & 0x7F
    ends = positions + 1
    broken: BoolArray | None = None
    for place in range(1, bytes_max):
        byte = data.take(ends, mode="clip")
        ends += more
        part = (byte & 0x7F) * more
        # No wider than it must be: most numbers are short, and narrow arrays are quick.
        width = _WIDTHS[place]
        zigzagged = zigzagged.astype(width, copy=False) | np.left_shift(part, 7 * place, dtype=width)
        if place == bytes_max - 1:
            excess = (byte > _LAST_BYTE_MAX[bytes_max]) & (more > 0)
            broken = excess if excess.any() else None
            break
        more = more & _continues(byte)
        if not more.any():
            break
    return Varints(_unzigzag(zigzagged), ends, broken)


def _continues(byte: ByteArray) -> ByteArray:
    """1 where another byte of the number follows, 0 where it ends."""
    return (byte >= 0x80).view(np.uint8)


def _unzigzag(zigzagged: npt.NDArray[Any]) -> Int64Array:
    signed = _SIGNED[zigzagged.itemsize]
    numbers: Int64Array = ((zigzagged >> 1).view(signed) ^ -(zigzagged & 1).view(signed)).astype(np.int64, copy=False)
    return numbers


class VarintColumn(NamedTuple):
    """Numbers ready to be written: zigzagged, the bytes each takes, and the fewest and most that one may take.

    ``sizes`` is a number when all take the same.
    """

    zigzagged: npt.NDArray[Any]
    sizes: Int64Array | int
    size_min: int
    size_max: int


def encode_varints(numbers: Int64Array) -> bytes | VarintColumn:
    """Prepare a column of numbers; the bytes of the number when it is the same everywhere."""
    if len(numbers) == 0:
        return b""
    low, high = int(numbers.min()), int(numbers.max())
    low_bytes = encode_varlong(low)
    if low == high:
        return low_bytes
    zigzagged = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    high_bytes = encode_varlong(high)
    size_max = max(len(low_bytes), len(high_bytes))
    size_min = min(len(low_bytes), len(high_bytes)) if (low < 0) == (high < 0) else 1
    zigzagged = zigzagged.astype(_WIDTHS[size_max - 1], copy=False)
    if size_min == size_max:
        return VarintColumn(zigzagged, size_min, size_min, size_max)
    sizes = np.full(len(numbers), size_min, dtype=np.int64)
    for place in range(size_min, size_max):
        sizes += zigzagged >= 1 << 7 * place
    return VarintColumn(zigzagged, sizes, size_min, size_max)


def sizes_of(encoded: bytes | VarintColumn) -> Int64Array | int:
    """The bytes each number takes."""
    return len(encoded) if isinstance(encoded, bytes) else encoded.sizes


def ends_of(sizes: Int64Array | int, count: int) -> Int64Array:
    """The n + 1 places where elements of these sizes meet, laid end to end."""
    ends = np.zeros(count + 1, dtype=np.int64)
    ends[1:] = sizes
    return np.cumsum(ends, out=ends)


def write_varints(fields: Sequence[bytes | VarintColumn], count: int) -> tuple[ByteArray, Int64Array]:
    """Lay numbers out row by row: the first of every field, then the second of every field, and so on.

    Returns the bytes and the ``count + 1`` places where rows meet. Each field gets as many columns of a table as its
    longest number needs; what shorter ones leave unused is taken out at the end.
    """
    width = sum(len(field) if isinstance(field, bytes) else field.size_max for field in fields)
    table = np.empty((count, width), dtype=np.uint8)
    used: BoolArray | None = None
    column = 0
    sizes: Int64Array | int = 0
    for field in fields:
        sizes = sizes + sizes_of(field)
        if isinstance(field, bytes):
            for byte in field:
                table[:, column] = byte
                column += 1
            continue
        if field.size_min < field.size_max and used is None:
            used = np.ones((count, width), dtype=np.bool_)
        for place in range(field.size_max):
            part = (field.zigzagged >> 7 * place).astype(np.uint8)
            if place + 1 < field.size_max:
                part &= 0x7F
                part |= (field.zigzagged >= 1 << 7 * (place + 1)).view(np.uint8) << 7
            table[:, column] = part
            if used is not None and field.size_min <= place:
                used[:, column] = field.sizes > place
            column += 1
    return table.reshape(-1) if used is None else table[used], ends_of(sizes, count)
