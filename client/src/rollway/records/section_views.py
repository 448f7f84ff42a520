"""Rows of short numbers and byte strings laid end to end, by way of Arrow's views.

A view is 16 bytes: the length of a byte string, and the string itself when it has at most 12 bytes, or else where it
lies. So the numbers of a row are views as numpy packs them, keys and values are views of the memory they are in, and
turning the column of all views into one of plain byte strings copies everything to its place in a single pass of C++.

::

    bytes 0-3   length
    bytes 4-15  the byte string, at most 12 bytes; or 4 bytes that are not looked at, number of the buffer, offset in it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rollway.records.columns import BinaryColumn, ByteArray, Int64Array
from rollway.records.varint_arrays import VarintColumn

UInt64Array = npt.NDArray[np.uint64]

Varints = bytes | VarintColumn
Part = Varints | BinaryColumn

_INLINE_BYTES_MAX = 12
_LENGTH_BYTES = 4
_WORD_BYTES = 8
_WORD_MASK = 2**64 - 1
_INT32_MAX = 2**31 - 1

# The upper bit of all bytes but the last, by the number of bytes.
_CONTINUED = np.array([sum(0x80 << 8 * place for place in range(size - 1)) for size in range(9)], dtype=np.uint64)


def join_rows(row: Iterable[Part], count: int) -> memoryview | None:
    """The parts of all ``count`` rows, row by row; ``None`` when a number or the whole is too large for it."""
    parts = list(row)
    tail = b""
    # What each row ends with can as well begin the next, and is a view less.
    while parts and isinstance(last := parts[-1], bytes) and len(last) + len(tail) <= _INLINE_BYTES_MAX:
        tail = last + tail
        parts.pop()
    if not _are_views_known():
        return None
    cells = _cells([tail, *parts])
    if cells is None:
        return None
    total = sum(cell.size_bytes(count) for cell in cells)
    if total > _INT32_MAX:
        return None
    views = np.empty((count * len(cells) + 1, 2), dtype=np.uint64)
    rows = views[:-1].reshape(count, len(cells), 2)
    buffers: list[ByteArray] = []
    for place, cell in enumerate(cells):
        cell.fill(rows[:, place], buffers)
    end = len(tail) | int.from_bytes(tail, "little") << 8 * _LENGTH_BYTES
    views[-1] = (end & _WORD_MASK, end >> 64)
    column = pa.Array.from_buffers(
        pa.binary_view(), len(views), [None, pa.py_buffer(views), *(pa.py_buffer(buffer) for buffer in buffers)]
    )
    joined = column.cast(pa.binary())
    return memoryview(joined.buffers()[2])[len(tail) : len(tail) + total]


@cache
def _are_views_known() -> bool:
    """Whether this pyarrow takes views from buffers and turns them into byte strings: older ones do not."""
    views = np.array([[1 | 0x41 << 32, 0], [13, 0]], dtype=np.uint64)
    buffers = [None, pa.py_buffer(views), pa.py_buffer(b"thirteen more")]
    try:
        plain = pa.Array.from_buffers(pa.binary_view(), 2, buffers).cast(pa.binary())
    except (pa.ArrowException, ValueError, AttributeError):
        return False
    return bool(plain.to_pylist() == [b"A", b"thirteen more"])


class _Packed:
    """Numbers side by side in one view: at most 12 bytes of each row."""

    def __init__(self) -> None:
        # Two words of the view; a number when it is that of all rows.
        self._words: list[Any] = [0, 0]
        self._at: Any = _LENGTH_BYTES
        self._at_min = self._at_max = _LENGTH_BYTES

    def has_room(self, part: Varints) -> bool:
        size_max = len(part) if isinstance(part, bytes) else part.size_max
        return self._at_max + size_max <= _LENGTH_BYTES + _INLINE_BYTES_MAX

    def add(self, part: Varints) -> None:
        """Put a part behind what is there."""
        if isinstance(part, bytes):
            code: Any = int.from_bytes(part, "little")
            size: Any = len(part)
            size_min = size_max = size
        else:
            code, size, size_min, size_max = _codes(part), part.sizes, part.size_min, part.size_max
        if isinstance(code, int) and isinstance(self._at, int):
            self._put(0, code << 8 * self._at & _WORD_MASK)
            self._put(1, code << 8 * self._at >> 64)
        else:
            self._put_arrays(np.uint64(code) if isinstance(code, int) else code, size_max)
        self._at = self._at + size
        self._at_min += size_min
        self._at_max += size_max

    def _put_arrays(self, code: UInt64Array | np.uint64, size_max: int) -> None:
        # numpy shifts everything out when it is told to shift by 64 bits or more, as also a negative number is.
        bits = np.asarray(self._at, dtype=np.int64).view(np.uint64) * np.uint64(8)
        if self._at_min < _WORD_BYTES:
            self._put(0, code << bits)
        if self._at_max + size_max > _WORD_BYTES:
            if self._at_min < _WORD_BYTES:
                self._put(1, code >> (np.uint64(64) - bits))
            if self._at_max > _WORD_BYTES or self._at_min >= _WORD_BYTES:
                self._put(1, code << (bits - np.uint64(64)))

    def _put(self, word: int, value: Any) -> None:
        known = self._words[word]
        if isinstance(known, int) and not isinstance(value, int):
            known = np.uint64(known)
        elif isinstance(value, int) and not isinstance(known, int):
            value = np.uint64(value)
        self._words[word] = known | value

    def size_bytes(self, count: int) -> int:
        """Bytes of all rows."""
        if isinstance(self._at, int):
            return (self._at - _LENGTH_BYTES) * count
        return int(self._at.sum()) - _LENGTH_BYTES * count

    def fill(self, views: UInt64Array, buffers: list[ByteArray]) -> None:
        """Write the view of each row."""
        del buffers
        length = self._at - _LENGTH_BYTES
        if isinstance(length, int):
            self._put(0, length)
        else:
            self._put(0, length.view(np.uint64))
        views[:, 0] = self._words[0]
        views[:, 1] = self._words[1]


class _Strings:
    """The byte strings of a column, a view each; a null is no bytes."""

    def __init__(self, column: BinaryColumn) -> None:
        base = int(column.offsets[0])
        self._data = column.data[base : int(column.offsets[-1])]
        self._starts = column.offsets[:-1] - base
        self._lengths = column.lengths()

    @property
    def is_small(self) -> bool:
        """Whether views can say where everything lies."""
        return len(self._data) <= _INT32_MAX

    def size_bytes(self, count: int) -> int:
        """Bytes of all rows."""
        del count
        return int(self._lengths.sum())

    def fill(self, views: UInt64Array, buffers: list[ByteArray]) -> None:
        """Write the view of each row."""
        longest = int(self._lengths.max())
        if longest > _INLINE_BYTES_MAX:
            views[:, 0] = self._lengths
            views[:, 1] = (self._starts << 32 | len(buffers)).view(np.uint64)
            buffers.append(self._data)
            places = np.flatnonzero(self._lengths <= _INLINE_BYTES_MAX)
            if len(places):
                views[places] = self._inline(places)
        elif int(self._lengths.min()) == longest:
            self._fill_equal(views, longest)
        else:
            views[:] = self._inline(np.arange(len(self._lengths)))

    def _fill_equal(self, views: UInt64Array, length: int) -> None:
        """Write the views of byte strings that are all of one short length."""
        count, padded = len(views), self._padded()
        first = np.ndarray((count,), "<u4", padded, strides=(length,))
        rest = np.ndarray((count,), "<u8", padded, offset=_LENGTH_BYTES, strides=(length,))
        views[:, 0] = first.astype(np.uint64) << np.uint64(32) | np.uint64(length)
        views[:, 1] = rest

    def _inline(self, places: Int64Array) -> UInt64Array:
        """The views of short byte strings."""
        lengths, starts = self._lengths[places].view(np.uint64), self._starts[places]
        padded = self._padded()
        first = np.ndarray((len(self._data) + 1,), "<u4", padded, strides=(1,))
        rest = np.ndarray((len(self._data) + 1,), "<u8", padded, offset=_LENGTH_BYTES, strides=(1,))
        return np.stack([first[starts].astype(np.uint64) << np.uint64(32) | lengths, rest[starts]], axis=1)

    def _padded(self) -> ByteArray:
        """The data, with as many bytes more that the views of the last byte strings may reach beyond it."""
        padded = np.empty(len(self._data) + _INLINE_BYTES_MAX, dtype=np.uint8)
        padded[: len(self._data)] = self._data
        return padded


def _cells(parts: Sequence[Part]) -> list[_Packed | _Strings] | None:
    """Views for each row, as few as it takes; ``None`` when something does not fit."""
    cells: list[_Packed | _Strings] = []
    open_cell: _Packed | None = None
    for part in parts:
        if isinstance(part, BinaryColumn):
            strings = _Strings(part)
            if not strings.is_small:
                return None
            cells.append(strings)
            open_cell = None
        elif isinstance(part, VarintColumn) and part.size_max > _WORD_BYTES:
            return None
        elif part:
            for piece in [part] if isinstance(part, VarintColumn) else _pieces(part):
                if open_cell is None or not open_cell.has_room(piece):
                    open_cell = _Packed()
                    cells.append(open_cell)
                open_cell.add(piece)
    return cells


def _pieces(constant: bytes) -> list[bytes]:
    """Constants of at most a word."""
    return [constant[start : start + _WORD_BYTES] for start in range(0, len(constant), _WORD_BYTES)]


def _codes(column: VarintColumn) -> UInt64Array:
    """The bytes of each number as a little-endian word."""
    zigzagged = column.zigzagged.astype(np.uint64, copy=False)
    codes: UInt64Array = zigzagged & np.uint64(0x7F)
    for place in range(1, column.size_max):
        codes |= zigzagged << np.uint64(place) & np.uint64(0x7F << 8 * place)
    codes |= _CONTINUED[column.sizes]
    return codes
