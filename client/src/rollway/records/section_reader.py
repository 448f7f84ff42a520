"""The uncompressed record section of a batch, to columns (spec "Binary formats")::

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
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rollway.records.batch import Buffer
from rollway.records.columns import BinaryColumn, HeaderColumns, Int64Array
from rollway.records.errors import BrokenRecordError
from rollway.records.varint import read_varint, read_varlong

RECORD_BYTES_MIN = 7


class Section(NamedTuple):
    """What a record section holds, before base offset and base timestamp are added."""

    offset_deltas: Int64Array
    timestamp_deltas: Int64Array
    keys: BinaryColumn
    values: BinaryColumn
    headers: HeaderColumns | None


def read_section(section: Buffer, record_count: int) -> Section:
    """Parse ``record_count`` records that fill ``section`` to the last byte.

    Raises:
        BrokenRecordError: they do not, or one of them breaks the format.
    """
    if not 0 <= record_count <= len(section) // RECORD_BYTES_MIN:
        raise BrokenRecordError(f"{record_count} records cannot be in {len(section)} bytes")
    data = bytes(section)
    rows = _Rows()
    position = 0
    for place in range(record_count):
        try:
            position = rows.read_record(data, position)
        except BrokenRecordError as error:
            raise BrokenRecordError(f"record {place}: {error}", ((place, str(error)),)) from None
    if position != len(data):
        raise BrokenRecordError(f"{len(data) - position} bytes are left over after {record_count} records")
    return rows.section()


class _Rows:
    """Records read one by one."""

    def __init__(self) -> None:
        self._timestamp_deltas: list[int] = []
        self._offset_deltas: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._header_rows: list[list[tuple[str, bytes | None]]] = []

    def read_record(self, data: bytes, position: int) -> int:
        length, position = read_varint(data, position, len(data))
        end = position + length
        if length < RECORD_BYTES_MIN - 1 or end > len(data):
            raise BrokenRecordError(f"says it is {length} bytes long where {len(data) - position} are left")
        timestamp_delta, position = read_varlong(data, position + 1, end)
        offset_delta, position = read_varint(data, position, end)
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        headers, position = _read_headers(data, position, end)
        if position != end:
            raise BrokenRecordError(f"{end - position} bytes are left over at its end")
        self._timestamp_deltas.append(timestamp_delta)
        self._offset_deltas.append(offset_delta)
        self._keys.append(key)
        self._values.append(value)
        self._header_rows.append(headers)
        return end

    def section(self) -> Section:
        return Section(
            np.array(self._offset_deltas, dtype=np.int64),
            np.array(self._timestamp_deltas, dtype=np.int64),
            BinaryColumn.from_list(self._keys),
            BinaryColumn.from_list(self._values),
            HeaderColumns.from_rows(self._header_rows),
        )


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position, end)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise BrokenRecordError(f"a field of {length} bytes where {end - position} are left")
    return data[position : position + length], position + length


def _read_headers(data: bytes, position: int, end: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, position = read_varint(data, position, end)
    # A header takes at least two bytes.
    if not 0 <= count <= (end - position) // 2:
        raise BrokenRecordError(f"{count} headers where {end - position} bytes are left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise BrokenRecordError("a header without a name")
        try:
            decoded = name.decode()
        except UnicodeDecodeError as error:
            raise BrokenRecordError(f"a header name is not UTF-8: {error}") from None
        value, position = _read_bytes(data, position, end)
        headers.append((decoded, value))
    return headers, position
