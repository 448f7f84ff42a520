"""The uncompressed record section of a batch, to columns (docs/reference/on-disk-format.md)::

    length         varint    bytes after this field
    attributes     int8      unused
    timestampDelta varlong
    offsetDelta    varint
    keyLength      varint    -1: null
    key
    valueLength    varint    -1: null
    value
    headerCount    varint
    headers        each: nameLength varint, name (UTF-8), valueLength varint (-1: null), value

Compiled (``sections_c.pyx``), it is walked once and copied once. In Python, where records begin is found first; then
every field is read for all records at once. No field is checked against its
record's end while reading: places only ever grow, so a record whose last field ends exactly where the record does has
all of them inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rollway.records import compiled
from rollway.records.columns import BinaryColumn, BoolArray, ByteArray, HeaderColumns, Int64Array, RecordColumns
from rollway.records.errors import BrokenRecordError, DecompressedSizeError
from rollway.records.gather import Ranges, gather
from rollway.records.section_boundaries import Boundaries, find_boundaries
from rollway.records.section_headers import HeaderReader
from rollway.records.section_rows import (
    HEADER_BYTES_MIN,
    RECORD_BODY_BYTES_MIN,
    broken_row,
    explain_broken_row,
    read_rows,
)
from rollway.records.section_tables_read import read_tables
from rollway.records.sections.varint import VARLONG_BYTES_MAX
from rollway.records.varint_arrays import Varints, read_varints

# Measured: with fewer records the fixed cost of arrays is larger than that of a loop. Large sections never take the
# loop: they may hold more headers than should become objects.
_ROWS_MAX = 112
_ROWS_BYTES_MAX = 64 * 1024

# Records read together, which bounds the memory that reading takes beside its result.
_BLOCK_COUNT = 65536

# What a record and a header take in columns beside their bytes, rounded up.
RECORD_COLUMN_BYTES = 40
_HEADER_COLUMN_BYTES = 64

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

# A larger broken record is not read again to say what is wrong with it.
_EXPLAINED_BYTES_MAX = 64 * 1024


def read_section(section: bytes | memoryview, record_count: int, columns_bytes_max: int | None = None) -> RecordColumns:
    """Read ``record_count`` records that fill ``section`` to the last byte.

    Offsets and timestamps come as the deltas that are written there. With ``columns_bytes_max``, records and headers
    so small and many that their columns would outgrow that are refused: compressed, they cost their sender nothing.

    Raises:
        BrokenRecordError: there are not as many records, or one of them breaks the format.
        DecompressedSizeError: the columns would be larger than ``columns_bytes_max``.
    """
    _check_count(section, record_count)
    found = _read_compiled(section, record_count, columns_bytes_max)
    if found is not None:
        return found
    if record_count == 0 or (record_count < _ROWS_MAX and len(section) <= _ROWS_BYTES_MAX):
        return read_rows(bytes(section), record_count)
    return _SectionReader(section, columns_bytes_max).read(record_count)


def header_count_max(record_count: int, columns_bytes_max: int | None) -> int:
    """How many headers ``record_count`` records may have for their columns to stay within so many bytes.

    Negative when the records alone are too many.
    """
    if columns_bytes_max is None:
        return _INT64_MAX
    return (columns_bytes_max - record_count * RECORD_COLUMN_BYTES) // _HEADER_COLUMN_BYTES


def _read_compiled(
    section: bytes | memoryview, record_count: int, columns_bytes_max: int | None
) -> RecordColumns | None:
    headers_max = header_count_max(record_count, columns_bytes_max)
    if compiled.sections is None or headers_max < 0:
        return None
    found = compiled.sections.read_section(section, record_count, headers_max)
    if found is None:
        return None
    offsets, timestamps, keys, values, headers = found
    return RecordColumns(
        offsets,
        timestamps,
        BinaryColumn.unchecked(*keys),
        BinaryColumn.unchecked(*values),
        None
        if headers is None
        else HeaderColumns(headers[0], BinaryColumn.unchecked(*headers[1]), BinaryColumn.unchecked(*headers[2])),
    )


def survey_section(
    section: bytes | memoryview, record_count: int, columns_bytes_max: int | None = None
) -> tuple[int, int, bool] | None:
    """The least and greatest timestamp delta of records that ``read_section`` would read, and whether a key is null.

    ``None`` when offset deltas do not count up from 0. Copies no keys and values.

    Raises:
        BrokenRecordError, DecompressedSizeError: as ``read_section``.
    """
    _check_count(section, record_count)
    return _SectionReader(section, columns_bytes_max).survey(record_count)


def _check_count(section: bytes | memoryview, record_count: int) -> None:
    if not 0 <= record_count <= len(section) // (RECORD_BODY_BYTES_MIN + 1):
        raise BrokenRecordError(f"{record_count} records cannot be in {len(section)} bytes")


class _Fields(NamedTuple):
    """Where the fields of some records are, all of them sound; ``headers`` only where there are some."""

    timestamp_delta: Varints
    offset_delta: Varints
    key: Varints
    value: Varints
    headers: HeaderColumns | None


class _SectionReader:
    """Reads one section, block by block."""

    def __init__(self, section: bytes | memoryview, columns_bytes_max: int | None) -> None:
        self._section = section
        self._data: ByteArray = np.frombuffer(section, dtype=np.uint8)
        self._columns_bytes_left = columns_bytes_max

    def read(self, record_count: int) -> RecordColumns:
        self._charge(record_count * RECORD_COLUMN_BYTES)
        tables = read_tables(
            self._section, self._data, record_count, lambda count: self._charge(count * _HEADER_COLUMN_BYTES)
        )
        if tables is not None:
            return tables
        return RecordColumns.concatenate([self._columns_of(fields) for fields in self._blocks(record_count)])

    def survey(self, record_count: int) -> tuple[int, int, bool] | None:
        self._charge(record_count * RECORD_COLUMN_BYTES)
        least, greatest, first, null_count, in_order = _INT64_MAX, _INT64_MIN, 0, 0, True
        for fields in self._blocks(record_count):
            offsets, timestamps = fields.offset_delta.numbers, fields.timestamp_delta.numbers
            in_order &= np.array_equal(offsets, np.arange(first, first + len(offsets)))
            least, greatest = min(least, int(timestamps.min())), max(greatest, int(timestamps.max()))
            null_count += int(np.count_nonzero(fields.key.numbers < 0))
            first += len(offsets)
        return (least, greatest, null_count > 0) if in_order else None

    def _blocks(self, record_count: int) -> Iterator[_Fields]:
        """The records, block by block; that there are as many is only known at the end."""
        boundaries = find_boundaries(self._section, self._data, record_count)
        found_count = boundaries.record_count
        for first in range(0, found_count, _BLOCK_COUNT):
            yield self._find_fields(boundaries.slice(first, min(first + _BLOCK_COUNT, found_count)), first)
        if found_count < record_count:
            raise BrokenRecordError(f"the records end after {found_count}, not {record_count}")
        left_count = len(self._data) - int(boundaries.starts[-1])
        if left_count:
            raise BrokenRecordError(f"{left_count} bytes are left over after {record_count} records")

    def _columns_of(self, fields: _Fields) -> RecordColumns:
        return RecordColumns(
            fields.offset_delta.numbers,
            fields.timestamp_delta.numbers,
            gather(self._data, Ranges(fields.key.ends, fields.key.numbers)),
            gather(self._data, Ranges(fields.value.ends, fields.value.numbers)),
            fields.headers,
        )

    def _charge(self, columns_bytes: int) -> None:
        if self._columns_bytes_left is not None:
            self._columns_bytes_left -= columns_bytes
            if self._columns_bytes_left < 0:
                raise DecompressedSizeError("the batch has more records or headers than there is memory for")

    def _find_fields(self, boundaries: Boundaries, first: int) -> _Fields:
        """The records of ``boundaries``, whose first one is number ``first`` of the batch."""
        data = self._data
        starts, bodies, broken = boundaries
        ends = starts[1:]
        timestamp_delta = read_varints(data, bodies + 1, VARLONG_BYTES_MAX)
        offset_delta = read_varints(data, timestamp_delta.ends)
        key = read_varints(data, offset_delta.ends)
        value = read_varints(data, _field_ends(key, broken))
        header_count = read_varints(data, _field_ends(value, broken))
        broken |= header_count.numbers < 0
        room = ends - header_count.ends
        broken |= (room < 0) | (header_count.numbers > room // HEADER_BYTES_MIN)
        for field in (timestamp_delta, offset_delta, key, value, header_count):
            if field.broken is not None:
                broken |= field.broken
        if not header_count.numbers.any():
            broken |= room != 0
        self._refuse_broken(broken, starts, first)
        headers = None
        if header_count.numbers.any():
            self._charge(int(header_count.numbers.sum()) * _HEADER_COLUMN_BYTES)
            reader = HeaderReader(data, header_count.numbers, header_count.ends, ends)
            self._refuse_broken(reader.find(self._section), starts, first)
            headers = reader.read()
        return _Fields(timestamp_delta, offset_delta, key, value, headers)

    def _refuse_broken(self, broken: BoolArray, starts: Int64Array, first: int) -> None:
        if broken.any():
            self._refuse(int(broken.argmax()), starts, first)

    def _refuse(self, place: int, starts: Int64Array, first: int) -> None:
        """Raise what is wrong with the record at ``starts[place]``."""
        start, end = starts[place : place + 2].tolist()
        if end - start > _EXPLAINED_BYTES_MAX:
            raise broken_row(first + place)
        raise explain_broken_row(bytes(self._section), start, first + place)


def _field_ends(field: Varints, broken: BoolArray) -> Int64Array:
    """Where the bytes that ``field`` counts end; a null has none, a lesser number is broken."""
    lengths = field.numbers
    least = int(lengths.min())
    if least < 0:
        if least < -1:
            broken |= lengths < -1
        lengths = np.maximum(lengths, 0)
    return field.ends + lengths
