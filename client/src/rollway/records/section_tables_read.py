"""Reading sections that are tables: records laid out alike, so that each field stands in the same columns of every row.

The first record of a table says where its fields are. That the others agree is seen in the same columns of all rows:
their lengths are the same bytes, and the same bytes of their deltas go on. Then each of them is sound as the first one
is. A section that has anything else is left to ``section_reader``, which also says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rollway.records.columns import BinaryColumn, ByteArray, HeaderColumns, Int64Array, RecordColumns
from rollway.records.errors import BrokenRecordError
from rollway.records.sections.varint import VARINT_BYTES_MAX, read_varint, read_varlong

# Fewer rows than this in a table that is not the last, and the section is not one of tables.
_TABLE_ROWS_MIN = 32

# Records with more headers are rare, and hardly ever alike.
_HEADERS_MAX = 8

_WORD_BYTES = 8
_WORD = np.dtype("<u8")

_CONTINUES, _SIGN = 0x80, 0x01

# As bits of a word: seven of each byte up to the size of a number, without the sign.
_NUMBER_MASKS = tuple(np.uint64(int.from_bytes(b"\x7f" * size, "little") & ~_SIGN) for size in range(_WORD_BYTES + 1))


class _Field(NamedTuple):
    """Bytes of every row: ``size`` from column ``at`` on, -1 for a null."""

    at: int
    size: int


class _Word(NamedTuple):
    """Eight bytes of every row, as a number: the bits of ``mask`` are ``expected``."""

    at: int
    mask: int
    expected: int


class _Layout(NamedTuple):
    """Where the fields of a row are, and what tells that a row is laid out so."""

    width: int
    timestamp: _Field
    offset: _Field
    key: _Field
    value: _Field
    names: tuple[_Field, ...]
    header_values: tuple[_Field, ...]
    words: tuple[_Word, ...]
    rows_max: int

    @property
    def content_sizes(self) -> list[int]:
        """The sizes of all that becomes byte strings."""
        return [field.size for field in (self.key, self.value, *self.names, *self.header_values)]


class _Table(NamedTuple):
    """``row_count`` rows from ``position`` on."""

    position: int
    row_count: int
    layout: _Layout

    def column(self, data: ByteArray, at: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """What every row has from column ``at`` on."""
        return np.ndarray((self.row_count,), kind, data, self.position + at, (self.layout.width,))


def read_tables(
    section: bytes | memoryview,
    data: ByteArray,
    record_count: int,
    allow_headers: Callable[[int], None] = lambda _: None,
) -> RecordColumns | None:
    """The records of a section, offsets and timestamps as deltas; ``None`` when it is not one of tables.

    ``data`` is ``section`` as an array. ``allow_headers`` is told how many headers there are before they take memory.
    """
    tables = _find_tables(section, data, record_count)
    if tables is None:
        return None
    layouts = [table.layout for table in tables]
    headers = None
    header_count = len(layouts[0].names)
    if header_count:
        allow_headers(header_count * record_count)
        counts = np.full(record_count, header_count, dtype=np.int64)
        names = _content(data, tables, [layout.names for layout in layouts], record_count)
        header_values = _content(data, tables, [layout.header_values for layout in layouts], record_count)
        headers = HeaderColumns(counts, names, header_values)
    return RecordColumns(
        _numbers(data, tables, [layout.offset for layout in layouts], record_count),
        _numbers(data, tables, [layout.timestamp for layout in layouts], record_count),
        _content(data, tables, [(layout.key,) for layout in layouts], record_count),
        _content(data, tables, [(layout.value,) for layout in layouts], record_count),
        headers,
    )


def _find_tables(section: bytes | memoryview, data: ByteArray, record_count: int) -> list[_Table] | None:
    tables: list[_Table] = []
    position = 0
    left_count = record_count
    while left_count:
        layout = _read_layout(section, position)
        if layout is None or (tables and layout.content_sizes != tables[0].layout.content_sizes):
            return None
        rows_max = min(left_count, layout.rows_max, (len(data) - position) // layout.width)
        count = _count_alike(section, data, _Table(position, rows_max, layout))
        if count < min(_TABLE_ROWS_MIN, left_count):
            return None
        tables.append(_Table(position, count, layout))
        position += count * layout.width
        left_count -= count
    return tables if position == len(data) else None


def _read_layout(section: bytes | memoryview, start: int) -> _Layout | None:
    """Where the fields of the record at ``start`` are; ``None`` when it is broken or unusual."""
    reader = _RowReader(section, start)
    try:
        length = reader.length(least=0)
        end = reader.position + length
        if end > len(section):
            return None
        reader.skip(1)  # attributes
        timestamp, _ = reader.number(read_varlong)
        offset, delta = reader.number(read_varint)
        key, value = reader.content(least=-1), reader.content(least=-1)
        header_count = reader.length(least=0)
        if header_count > _HEADERS_MAX:
            return None
        headers = [(reader.content(least=0), reader.content(least=-1)) for _ in range(header_count)]
    except BrokenRecordError:
        return None
    width = end - start
    if reader.position != end or timestamp.size > _WORD_BYTES or offset.size >= VARINT_BYTES_MAX or width < _WORD_BYTES:
        return None
    return _Layout(
        width,
        timestamp,
        offset,
        key,
        value,
        tuple(name for name, _ in headers),
        tuple(value for _, value in headers),
        tuple(reader.words(width)),
        # From there on deltas that rise by one take another byte.
        (1 << 7 * offset.size - 1) - delta,
    )


class _RowReader:
    """Reads a record, and keeps what of it must be the same in all rows of a table."""

    def __init__(self, section: bytes | memoryview, start: int) -> None:
        self._section: Any = section
        self._start = start
        self.position = start
        # Column by column the bits that count, 0 between the runs of them.
        self._runs: list[tuple[int, bytearray]] = [(0, bytearray())]

    def length(self, least: int) -> int:
        """A length or a count.

        Raises:
            BrokenRecordError: it is less than ``least``, or no number.
        """
        length, end = read_varint(self._section, self.position, len(self._section))
        if length < least:
            raise BrokenRecordError("a length is too small")
        self._keep(b"\xff" * (end - self.position))
        self.position = end
        return length

    def number(self, read: Any) -> tuple[_Field, int]:
        """A delta, which rows have of their own, with as many bytes and the same sign.

        Raises:
            BrokenRecordError: it is negative, or no number.
        """
        number, end = read(self._section, self.position, len(self._section))
        if number < 0:
            raise BrokenRecordError("a delta is negative")
        field = _Field(self.position - self._start, end - self.position)
        self._keep(bytes((_CONTINUES | _SIGN, *(_CONTINUES,) * (field.size - 1))))
        self.position = end
        return field, number

    def content(self, least: int) -> _Field:
        """A byte string, after its length.

        Raises:
            BrokenRecordError: its length is less than ``least``, or no number.
        """
        length = self.length(least)
        field = _Field(self.position - self._start, length)
        if length > 0:
            self.position += length
            self._runs.append((self.position - self._start, bytearray()))
        return field

    def skip(self, count: int) -> None:
        """Bytes of no meaning."""
        self._keep(bytes(count))
        self.position += count

    def _keep(self, mask: bytes) -> None:
        self._runs[-1][1].extend(mask)

    def words(self, width: int) -> list[_Word]:
        """All bits that count, in few words, each inside its row."""
        words = []
        for first, mask in self._runs:
            for done in range(0, len(mask), _WORD_BYTES):
                # Beyond a run nothing counts, so the last word of a row may begin before its run.
                at = min(first + done, width - _WORD_BYTES)
                before = first + done - at
                bits = int.from_bytes(mask[done : done + _WORD_BYTES], "little") << 8 * before
                words.append(_Word(at, bits, _word_at(self._section, self._start + at) & bits))
        return words


def _word_at(section: Any, position: int) -> int:
    return int.from_bytes(section[position : position + _WORD_BYTES], "little")


def _count_alike(section: bytes | memoryview, data: ByteArray, table: _Table) -> int:
    """How many of the first rows of ``table`` are laid out alike."""
    position, count, layout = table

    def is_alike(row: int) -> bool:
        start = position + row * layout.width
        return all(_word_at(section, start + at) & mask == expected for at, mask, expected in layout.words)

    if not is_alike(count - 1):
        # As deltas grow, those after some place take one byte more: likely it is that place.
        low, high = 1, count - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if is_alike(middle) else (low, middle)
        count = low
    likely = table._replace(row_count=count)
    different: npt.NDArray[np.bool_] | None = None
    for at, mask, expected in layout.words:
        # Copied first: numpy computes slowly with numbers that are not aligned.
        word = likely.column(data, at, _WORD).copy()
        word &= np.uint64(mask)
        other = word != np.uint64(expected)
        different = other if different is None else different | other
    assert different is not None
    return int(different.argmax()) if different.any() else count


def _numbers(data: ByteArray, tables: Sequence[_Table], fields: Sequence[_Field], record_count: int) -> Int64Array:
    """A number of every record, none of which is negative."""
    words = np.empty(record_count, dtype=np.uint64)
    first = 0
    for table, field in zip(tables, fields, strict=True):
        rows = words[first : first + table.row_count]
        # All eight bytes end inside the row, so they may begin before the number.
        before = max(0, field.at + _WORD_BYTES - table.layout.width)
        rows[:] = table.column(data, field.at - before, _WORD)
        if before:
            rows >>= np.uint64(8 * before)
        rows &= _NUMBER_MASKS[field.size]
        first += table.row_count
    numbers = words >> np.uint64(1)
    size = max(field.size for field in fields)
    if size > 1:
        numbers &= np.uint64(0x3F)
        for place in range(1, size):
            part = words >> np.uint64(place + 1)
            part &= np.uint64(0x7F << 7 * place - 1)
            numbers |= part
    return numbers.view(np.int64)


def _content(
    data: ByteArray, tables: Sequence[_Table], fields: Sequence[Sequence[_Field]], record_count: int
) -> BinaryColumn:
    """Byte strings that follow each other in every row, copied into one column."""
    sizes = [field.size for field in fields[0]]
    if sizes == [-1]:
        return BinaryColumn.all_null(record_count)
    widths = [max(size, 0) for size in sizes]
    row_bytes = sum(widths)
    content = np.empty(record_count * row_bytes, dtype=np.uint8)
    at = 0
    for table, row in zip(tables, fields, strict=True):
        first = at
        for field in row:
            if field.size > 0:
                # As elements of so many bytes they are copied quicker than as rows of a matrix.
                kind = np.dtype(f"V{field.size}")
                target = np.ndarray((table.row_count,), kind, content, first, (row_bytes,))
                target[:] = table.column(data, field.at, kind)
                first += field.size
        at += table.row_count * row_bytes
    offsets = np.arange(0, (record_count + 1) * row_bytes, row_bytes or 1, dtype=np.int64)
    if len(sizes) > 1 or row_bytes == 0:
        offsets = np.empty(record_count * len(sizes) + 1, dtype=np.int64)
        offsets[0] = 0
        starts = np.arange(record_count, dtype=np.int64) * row_bytes
        offsets[1:].reshape(record_count, len(sizes))[:] = starts[:, None] + np.cumsum(widths)
    nulls = np.tile(np.array(sizes) < 0, record_count) if min(sizes) < 0 else None
    return BinaryColumn.unchecked(content, offsets, nulls)
