"""The uncompressed record section of a batch, from columns (its layout: ``section_reader``).

Compiled (``sections_c.pyx``), it is a loop over records. In Python there is none: varints are laid out in numpy, then
Arrow joins them with keys and values, row by row, in C++. The data of the joined column is the section.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollway.records import compiled
from rollway.records.batch import Buffer
from rollway.records.columns import BinaryColumn, HeaderColumns, Int64Array, RecordColumns
from rollway.records.section_rows import write_rows
from rollway.records.section_tables_write import table_section
from rollway.records.section_views import join_rows
from rollway.records.varint_arrays import VarintColumn, encode_varints, ends_of, sizes_of, write_varints

# Measured: with fewer records the fixed cost of arrays is larger than that of lists.
_ROWS_MAX = 384

_ATTRIBUTES = b"\x00"
_NO_HEADERS = b"\x00"

_Sizes = Int64Array | int
_Varints = bytes | VarintColumn


class _Field(NamedTuple):
    """A length and the byte strings it counts; headers are one field, whose length is their number."""

    length: _Varints
    content: BinaryColumn | None
    sizes: _Sizes


def timestamp_deltas(timestamps: Int64Array) -> Int64Array:
    """Distances from the first, wrapping around at 2^63 like Java's long, so that reading wraps back."""
    return timestamps - timestamps[:1]


def payload_sizes(columns: RecordColumns) -> Int64Array:
    """The bytes of each record that do not depend on its place in a batch: all but its length and both deltas."""
    return np.zeros(len(columns), dtype=np.int64) + _payload_sizes(_fields(columns))


def record_sizes(payload: Int64Array, timestamps: Int64Array) -> Int64Array:
    """The bytes of each record of a batch, from its ``payload_sizes`` and timestamps."""
    body = payload + _sum_of_sizes(_place(timestamps))
    return body + sizes_of(encode_varints(body))


def record_section(columns: RecordColumns) -> Buffer:
    """All records, one after the other, offset deltas from 0; at least one record."""
    count = len(columns)
    written = None if compiled.sections is None else compiled.sections.write_section(columns)
    if written is not None:
        return written
    if count < _ROWS_MAX:
        return write_rows(columns)
    tables = table_section(columns, timestamp_deltas(columns.timestamps))
    if tables is not None:
        return tables.data
    fields = _fields(columns)
    place = _place(columns.timestamps)
    body = np.zeros(count, dtype=np.int64) + _payload_sizes(fields) + _sum_of_sizes(place)
    row: list[_Varints | BinaryColumn] = [encode_varints(body), _ATTRIBUTES, *place]
    for field in fields:
        row.append(field.length)
        if field.content is not None:
            row.append(field.content)
    return _join(row, count)


def _place(timestamps: Int64Array) -> list[_Varints]:
    """The two deltas of each record."""
    offset_deltas = np.arange(len(timestamps), dtype=np.int64)
    return [encode_varints(timestamp_deltas(timestamps)), encode_varints(offset_deltas)]


def _sum_of_sizes(encoded: Iterable[_Varints]) -> _Sizes:
    return sum((sizes_of(varints) for varints in encoded), start=0)


def _fields(columns: RecordColumns) -> list[_Field]:
    fields = [_bytes_field(columns.keys), _bytes_field(columns.values)]
    if columns.headers is None:
        return [*fields, _Field(_NO_HEADERS, None, len(_NO_HEADERS))]
    count, blocks = encode_varints(columns.headers.counts), _header_blocks(columns.headers)
    return [*fields, _Field(count, blocks, sizes_of(count) + blocks.lengths())]


def _bytes_field(column: BinaryColumn) -> _Field:
    lengths = column.offsets[1:] - column.offsets[:-1]
    if column.nulls is not None:
        lengths[column.nulls] = -1
    encoded = encode_varints(lengths)
    if isinstance(encoded, bytes):
        length = max(int(lengths[0]), 0) if len(lengths) else 0
        return _Field(encoded, column if length else None, len(encoded) + length)
    return _Field(encoded, column, encoded.sizes + np.maximum(lengths, 0))


def _header_blocks(headers: HeaderColumns) -> BinaryColumn:
    """The headers of each record, encoded: rows of all headers joined, then cut where records meet."""
    count = len(headers.names)
    fields = [_bytes_field(headers.names), _bytes_field(headers.values)]
    header_ends = ends_of(fields[0].sizes + fields[1].sizes, count)
    row: list[_Varints | BinaryColumn] = []
    for field in fields:
        row.append(field.length)
        if field.content is not None:
            row.append(field.content)
    record_ends = ends_of(headers.counts, len(headers.counts))
    return BinaryColumn(_join(row, count), header_ends[record_ends])


def _payload_sizes(fields: Iterable[_Field]) -> _Sizes:
    return sum((field.sizes for field in fields), start=len(_ATTRIBUTES))


def _join(row: Iterable[_Varints | BinaryColumn], count: int) -> memoryview:
    """The parts of all ``count`` rows, row by row, as one run of bytes."""
    row = list(row)
    by_views = join_rows(row, count)
    if by_views is not None:
        return by_views
    parts: list[Any] = []
    varints: list[_Varints] = []
    for part in row:
        if isinstance(part, BinaryColumn):
            parts += (_arrow_varints(varints, count), _arrow_bytes(part))
            varints = []
        else:
            varints.append(part)
    if not parts:
        return write_varints(varints, count)[0].data
    if varints:
        parts.append(_arrow_varints(varints, count))
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    return memoryview(joined.buffers()[2])[: joined.total_values_length]


def _arrow_varints(varints: list[_Varints], count: int) -> pa.LargeBinaryArray | pa.LargeBinaryScalar:
    constant = b"".join(part for part in varints if isinstance(part, bytes))
    if not any(isinstance(part, VarintColumn) for part in varints):
        return pa.scalar(constant, pa.large_binary())
    return BinaryColumn(*write_varints(varints, count)).to_arrow()


def _arrow_bytes(column: BinaryColumn) -> pa.LargeBinaryArray:
    # A null would make its whole row null; what it stands for here is no bytes.
    if column.nulls is None:
        return column.to_arrow()
    if not (column.offsets[1:] - column.offsets[:-1])[column.nulls].any():
        return column.without_nulls().to_arrow()
    return pc.fill_null(column.to_arrow(), b"")
