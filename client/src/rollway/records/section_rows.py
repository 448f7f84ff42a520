"""The record section of a small batch, record by record: below some hundred records quicker than whole columns.

Also the voice of the column reader: what it finds broken is read again here to say what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rollway.records.columns import BinaryColumn, HeaderColumns, RecordColumns, name_from_bytes
from rollway.records.errors import BrokenRecordError
from rollway.records.section_lists import header_blocks, join_rows
from rollway.records.sections.varint import read_varint, read_varlong

RECORD_BODY_BYTES_MIN = 6
"""A record without key, value and headers, its length field left out."""

HEADER_BYTES_MIN = 2
"""A record header with an empty name and value."""

_Headers = Sequence[tuple[str, bytes | None]]


# One record as it lies in the section: timestamp delta, offset delta, key, value, headers.
_Row = tuple[int, int, bytes | None, bytes | None, _Headers]


def write_rows(columns: RecordColumns) -> bytes:
    """The record section of ``columns``, offset deltas from 0."""
    headers = columns.headers
    blocks = None
    if headers is not None:
        blocks = header_blocks(headers.counts.tolist(), headers.names.to_list(), headers.values.to_list())
    return join_rows(columns.timestamps.tolist(), columns.keys.to_list(), columns.values.to_list(), blocks)


def read_rows(data: bytes, record_count: int) -> RecordColumns:
    """Read ``record_count`` records that fill ``data``; offsets and timestamps are the deltas.

    Raises:
        BrokenRecordError: they do not, or one breaks the format.
    """
    rows: list[_Row] = []
    position = 0
    try:
        for _ in range(record_count):
            row, position = _read_row(data, position)
            rows.append(row)
    except BrokenRecordError as error:
        raise _broken_record(len(rows), str(error)) from None
    if position != len(data):
        raise BrokenRecordError(f"{len(data) - position} bytes are left over after {record_count} records")
    timestamp_deltas, offset_deltas, keys, values, headers = zip(*rows, strict=True) if rows else ((),) * 5
    return RecordColumns(
        np.array(offset_deltas, dtype=np.int64),
        np.array(timestamp_deltas, dtype=np.int64),
        BinaryColumn.from_list(keys),
        BinaryColumn.from_list(values),
        HeaderColumns.from_rows(headers),
    )


def explain_broken_row(data: bytes, position: int, place: int) -> BrokenRecordError:
    """What is wrong with the record that begins at ``position`` and is number ``place`` of its batch."""
    try:
        _read_row(data, position)
    except BrokenRecordError as error:
        return _broken_record(place, str(error))
    return broken_row(place)


def broken_row(place: int) -> BrokenRecordError:
    """That record number ``place`` is broken, whatever is wrong with it."""
    return _broken_record(place, "breaks the format")


def _broken_record(place: int, message: str) -> BrokenRecordError:
    return BrokenRecordError(f"record {place} {message}", ((place, message),))


def _read_row(data: bytes, position: int) -> tuple[_Row, int]:
    length, position = read_varint(data, position, len(data))
    end = position + length
    if length < RECORD_BODY_BYTES_MIN or end > len(data):
        raise BrokenRecordError(f"says it is {length} bytes long where {len(data) - position} are left")
    timestamp_delta, position = read_varlong(data, position + 1, end)
    offset_delta, position = read_varint(data, position, end)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    if position == end - 1 and data[position] == 0:
        return (timestamp_delta, offset_delta, key, value, ()), end
    headers, position = _read_headers(data, position, end)
    if position != end:
        raise BrokenRecordError(f"has {end - position} bytes left over at its end")
    return (timestamp_delta, offset_delta, key, value, headers), end


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position, end)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise BrokenRecordError(f"has a field of {length} bytes where {end - position} are left")
    return data[position : position + length], position + length


def _read_headers(data: bytes, position: int, end: int) -> tuple[_Headers, int]:
    count, position = read_varint(data, position, end)
    if not 0 <= count <= (end - position) // HEADER_BYTES_MIN:
        raise BrokenRecordError(f"has {count} headers where {end - position} bytes are left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise BrokenRecordError("has a header without a name")
        value, position = _read_bytes(data, position, end)
        headers.append((name_from_bytes(name), value))
    return headers, position
