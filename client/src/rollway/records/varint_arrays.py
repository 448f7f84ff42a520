"""Zigzag varints by the thousand, in numpy: the same bytes as ``varint`` writes and reads one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rollway.records.columns import BoolArray, ByteArray, Int64Array
from rollway.records.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX

UInt64Array = npt.NDArray[np.uint64]

# The last byte of the longest form has room for more bits than the number.
_LAST_BYTE_MAX = {VARINT_BYTES_MAX: 0x0F, VARLONG_BYTES_MAX: 0x01}

# The narrowest numbers that hold as many bytes of seven bits and one more.
_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint32, *(np.uint64,) * 6)

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
    signed = zigzagged.dtype.str.replace("u", "i")
    numbers: Int64Array = ((zigzagged >> 1).view(signed) ^ -(zigzagged & 1).view(signed)).astype(np.int64, copy=False)
    return numbers


def zigzag(numbers: Int64Array) -> UInt64Array:
    """The sign in the lowest bit, the rest above it."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def sizes_of(zigzagged: UInt64Array) -> Int64Array:
    """How many bytes each of these takes as a varint."""
    sizes = np.ones(len(zigzagged), dtype=np.int64)
    largest = int(zigzagged.max(initial=0))
    for bits in range(7, 64, 7):
        if largest >> bits == 0:
            break
        sizes += zigzagged >= np.uint64(1 << bits)
    return sizes


def write_varints(fields: Sequence[tuple[UInt64Array, Int64Array]]) -> tuple[ByteArray, Int64Array]:
    """Lay numbers out row by row: the first of every field, then the second of every field, and so on.

    A field is a column of zigzagged numbers with their ``sizes_of``. Returns the bytes and the n + 1 places where
    rows meet.
    """
    count = len(fields[0][0])
    row_ends = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(sum(sizes for _, sizes in fields), out=row_ends[1:])
    data = np.empty(int(row_ends[-1]), dtype=np.uint8)
    positions = row_ends[:-1].copy()
    for numbers, sizes in fields:
        _write_field(data, positions, numbers, sizes)
        positions += sizes
    return data, row_ends


def _write_field(data: ByteArray, positions: Int64Array, numbers: UInt64Array, sizes: Int64Array) -> None:
    longest = int(sizes.max(initial=1))
    for place in range(longest):
        if place:
            longer = np.flatnonzero(sizes > place)
            if len(longer) < len(numbers):
                numbers, positions, sizes = numbers[longer], positions[longer], sizes[longer]
        byte = (numbers >> np.uint64(7 * place)).astype(np.uint8)
        byte &= 0x7F
        if longest > place + 1:
            byte |= (sizes > place + 1).view(np.uint8) << 7
        data[positions + place] = byte
