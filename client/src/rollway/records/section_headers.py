"""The headers of many records at once.

Where a header begins is known only when the one before it is read. So the first headers of all records are read
together, then the second ones, and so on; when few records go on, one by one.
"""

from __future__ import annotations

import numpy as np

from rollway.records.columns import BoolArray, ByteArray, HeaderColumns, Int64Array
from rollway.records.errors import BrokenRecordError
from rollway.records.gather import Ranges, gather
from rollway.records.sections.varint import read_varint
from rollway.records.varint_arrays import Varints, read_varints

# Measured: with fewer records reading one by one is quicker. Where few headers are left per record it is less so,
# because a record costs more than a header; records with many do not get far together.
_TOGETHER_MIN = 16
_TOGETHER_LONG_MIN = 128
_LONG_COUNT = 4

# How many headers are read one by one before they move to arrays.
_PIECE_COUNT = 4096


class HeaderReader:
    """Finds, then copies, the headers of a block of records.

    Record ``i`` has ``counts[i]`` headers in ``[positions[i], limits[i])``; the counts were checked against the bytes.
    """

    def __init__(self, data: ByteArray, counts: Int64Array, positions: Int64Array, limits: Int64Array) -> None:
        self._data = data
        self._counts = counts
        self._limits = limits
        self._firsts = np.cumsum(counts) - counts
        total = int(counts.sum())
        self._names = Ranges(np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64))
        self._values = Ranges(np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64))
        self._ends = positions.copy()

    def find(self, section: bytes | memoryview) -> BoolArray:
        """Find all headers; return which records are broken, by a length or by where their headers end."""
        active = np.flatnonzero(self._counts)
        turn = 0
        while len(active) >= (_TOGETHER_MIN if turn < _LONG_COUNT else _TOGETHER_LONG_MIN):
            active = self._find_one_each(active, turn)
            turn += 1
        if len(active):
            walked = bytes(section)
            for place in active.tolist():
                self._find_rest(walked, place, turn)
        broken: BoolArray = self._ends != self._limits
        return broken

    def _find_one_each(self, active: Int64Array, turn: int) -> Int64Array:
        """Find the next header of the records ``active``; return those that have more."""
        targets = self._firsts[active] + turn
        names = read_varints(self._data, self._ends[active])
        values = read_varints(self._data, names.ends + np.maximum(names.numbers, 0))
        ends = values.ends + np.maximum(values.numbers, 0)
        sound = (names.numbers >= 0) & (values.numbers >= -1) & (ends <= self._limits[active])
        for varints in (names, values):
            if varints.broken is not None:
                sound &= ~varints.broken
        # What is broken ends nowhere, and is not read on.
        self._ends[active] = np.where(sound, ends, -1)
        _put(self._names, targets, names)
        _put(self._values, targets, values)
        return active[sound & (self._counts[active] > turn + 1)]

    def _find_rest(self, section: bytes, place: int, turn: int) -> None:
        """Find the headers of one record from number ``turn`` on."""
        limit = int(self._limits[place])
        position = int(self._ends[place])
        target, last = int(self._firsts[place]) + turn, int(self._firsts[place] + self._counts[place])
        try:
            while target < last:
                count = min(_PIECE_COUNT, last - target)
                ranges, position = _read_headers(section, position, limit, count)
                for column, numbers in zip((*self._names, *self._values), ranges, strict=True):
                    column[target : target + count] = numbers
                target += count
        except BrokenRecordError:
            position = -1
        self._ends[place] = position

    def read(self) -> HeaderColumns:
        """Copy the headers that ``find`` found; none of them may be broken."""
        return HeaderColumns(self._counts, gather(self._data, self._names), gather(self._data, self._values))


def _put(ranges: Ranges, targets: Int64Array, varints: Varints) -> None:
    ranges.starts[targets] = varints.ends
    ranges.lengths[targets] = varints.numbers


def _read_headers(section: bytes, position: int, limit: int, count: int) -> tuple[tuple[list[int], ...], int]:
    """Starts and lengths of the next ``count`` names and values, and where the last one ends."""
    name_starts: list[int] = []
    name_lengths: list[int] = []
    value_starts: list[int] = []
    value_lengths: list[int] = []
    for _ in range(count):
        length, position = read_varint(section, position, limit)
        if length < 0:
            raise BrokenRecordError("has a header without a name")
        name_starts.append(position)
        name_lengths.append(length)
        length, position = read_varint(section, position + length, limit)
        if length < -1:
            raise BrokenRecordError(f"has a header value of {length} bytes")
        value_starts.append(position)
        value_lengths.append(length)
        position += max(length, 0)
    return (name_starts, name_lengths, value_starts, value_lengths), position
