"""Zigzag varints by the thousand, in numpy: the same bytes as ``varint`` writes and reads one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rollway.records.columns import BoolArray, ByteArray, Int64Array
from rollway.records.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX

UInt64Array = npt.NDArray[np.uint64]

# The last byte of the longest form has room for more bits than the number.
_LAST_BYTE_MAX = {VARINT_BYTES_MAX: 0x0F, VARLONG_BYTES_MAX: 0x01}


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
    pending: Int64Array | slice = _continued(byte, slice(None))
    zigzag = (byte & 0x7F).astype(np.uint64)
    if isinstance(pending, np.ndarray) and len(pending) == 0:
        return Varints(_unzigzag(zigzag), positions + 1, None)
    ends = positions + 1
    broken: BoolArray | None = None
    for place in range(1, bytes_max):
        byte = data.take(ends[pending], mode="clip")
        zigzag[pending] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
        ends[pending] += 1
        if place == bytes_max - 1:
            excess = byte > _LAST_BYTE_MAX[bytes_max]
            if excess.any():
                broken = np.zeros(len(positions), dtype=np.bool_)
                broken[pending] = excess
            break
        pending = _continued(byte, pending)
        if isinstance(pending, np.ndarray) and len(pending) == 0:
            break
    return Varints(_unzigzag(zigzag), ends, broken)


def _continued(byte: ByteArray, pending: Int64Array | slice) -> Int64Array | slice:
    """Which of the ``pending`` numbers go on after ``byte``; a slice stands for all, which is quicker."""
    more = byte >= 0x80
    if isinstance(pending, slice):
        return pending if more.all() else np.flatnonzero(more)
    return pending[more]


def _unzigzag(zigzag: UInt64Array) -> Int64Array:
    return (zigzag >> np.uint64(1)).view(np.int64) ^ -(zigzag & np.uint64(1)).view(np.int64)


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
