"""The uncompressed record section of a batch, from columns (its layout: ``section_reader``).

No loop over records: varints are laid out in numpy, then Arrow joins them with keys and values, row by row, in C++.
The data of the joined column is the section.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollway.records.batch import Buffer
from rollway.records.columns import BinaryColumn, HeaderColumns, Int64Array, RecordColumns
from rollway.records.section_rows import write_rows
from rollway.records.varint_arrays import UInt64Array, sizes_of, write_varints, zigzag

# Measured: with fewer records the fixed cost of arrays is larger than that of a loop.
_ROWS_MAX = 128

_SEPARATOR = pa.scalar(b"", pa.large_binary())
_ZERO = pa.scalar(b"\x00", pa.large_binary())


class _Numbers(NamedTuple):
    """A column of numbers, to be written as varints of these sizes."""

    zigzagged: UInt64Array
    sizes: Int64Array


class _Field(NamedTuple):
    """A length and the byte strings it counts; headers are one field, whose length is their number."""

    length: _Numbers
    content: BinaryColumn

    @property
    def sizes(self) -> Int64Array:
        return self.length.sizes + self.content.lengths()


def timestamp_deltas(timestamps: Int64Array) -> Int64Array:
    """Distances from the first, wrapping around at 2^63 like Java's long, so that reading wraps back."""
    return timestamps - timestamps[:1]


def payload_sizes(columns: RecordColumns) -> Int64Array:
    """The bytes of each record that do not depend on its place in a batch: all but its length and both deltas."""
    return _payload_sizes(_fields(columns))


def record_sizes(payload: Int64Array, timestamps: Int64Array) -> Int64Array:
    """The bytes of each record of a batch, from its ``payload_sizes`` and timestamps."""
    body = _body_sizes(payload, _place(timestamps))
    return body + _numbers(body).sizes


def record_section(columns: RecordColumns) -> Buffer:
    """All records, one after the other, offset deltas from 0; at least one record."""
    if len(columns) < _ROWS_MAX:
        return write_rows(columns, timestamp_deltas(columns.timestamps))
    fields = _fields(columns)
    place = _place(columns.timestamps)
    length = _numbers(_body_sizes(_payload_sizes(fields), place))
    attributes = _numbers(np.zeros(len(columns), dtype=np.int64))
    row: list[_Numbers | BinaryColumn] = [length, attributes, *place]
    for field in fields:
        row += field
    return _join(row)


def _place(timestamps: Int64Array) -> tuple[_Numbers, _Numbers]:
    """The two deltas of each record."""
    return _numbers(timestamp_deltas(timestamps)), _numbers(np.arange(len(timestamps), dtype=np.int64))


def _fields(columns: RecordColumns) -> list[_Field]:
    fields = [_bytes_field(columns.keys), _bytes_field(columns.values)]
    if columns.headers is None:
        nothing = np.zeros(len(columns), dtype=np.int64)
        fields.append(_Field(_numbers(nothing), BinaryColumn.from_lengths(b"", nothing)))
    else:
        fields.append(_Field(_numbers(columns.headers.counts), _header_blocks(columns.headers)))
    return fields


def _bytes_field(column: BinaryColumn) -> _Field:
    lengths = np.diff(column.offsets)
    if column.nulls is not None:
        lengths[column.nulls] = -1
    return _Field(_numbers(lengths), column)


def _header_blocks(headers: HeaderColumns) -> BinaryColumn:
    """The headers of each record, encoded: rows of all headers joined, then cut where records meet."""
    names, values = _bytes_field(headers.names), _bytes_field(headers.values)
    header_ends = np.zeros(len(headers.names) + 1, dtype=np.int64)
    np.cumsum(names.sizes + values.sizes, out=header_ends[1:])
    record_ends = np.zeros(len(headers.counts) + 1, dtype=np.int64)
    np.cumsum(headers.counts, out=record_ends[1:])
    return BinaryColumn(_join([*names, *values]), header_ends[record_ends])


def _payload_sizes(fields: Iterable[_Field]) -> Int64Array:
    keys, values, headers = (field.sizes for field in fields)
    return keys + values + headers + 1


def _body_sizes(payload: Int64Array, place: tuple[_Numbers, _Numbers]) -> Int64Array:
    return payload + place[0].sizes + place[1].sizes


def _numbers(numbers: Int64Array) -> _Numbers:
    zigzagged = zigzag(numbers)
    return _Numbers(zigzagged, sizes_of(zigzagged))


def _join(row: Iterable[_Numbers | BinaryColumn]) -> memoryview:
    """The parts of all rows, row by row, as one run of bytes."""
    parts: list[Any] = []
    pending: list[_Numbers] = []
    for part in row:
        if isinstance(part, _Numbers):
            pending.append(part)
        elif part.size_bytes:
            parts += (_varint_rows(pending), _arrow_rows(part))
            pending = []
    if pending:
        parts.append(_ZERO if len(pending) == 1 and not pending[0].zigzagged.any() else _varint_rows(pending))
    if len(parts) == 1:
        return memoryview(parts[0].buffers()[2])
    joined = pc.binary_join_element_wise(*parts, _SEPARATOR)
    return memoryview(joined.buffers()[2])[: joined.total_values_length]


def _varint_rows(numbers: list[_Numbers]) -> pa.LargeBinaryArray:
    data, ends = write_varints(numbers)
    return BinaryColumn(data, ends).to_arrow()


def _arrow_rows(column: BinaryColumn) -> pa.LargeBinaryArray:
    # A null would make its whole row null; what it stands for here is no bytes.
    if column.nulls is None or not np.diff(column.offsets)[column.nulls].any():
        return BinaryColumn(column.data, column.offsets).to_arrow()
    return pc.fill_null(column.to_arrow(), b"")
