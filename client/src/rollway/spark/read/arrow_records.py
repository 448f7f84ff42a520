"""Record columns as Arrow batches of exactly the schema that Spark expects.

Spark compares the schema of the first batch field by field: 32-bit ``binary``, ``timestamp[us, tz=UTC]``, and the
nullability of each field. Only offsets, timestamps and flags are computed. Keys and values are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from rollway.records import BinaryColumn, HeaderColumns, RecordColumns, TimestampType

ROWS_MAX = 65_536
"""Greatest number of rows of one Arrow batch."""

BYTES_MAX = 8 * 1024 * 1024
"""Greatest size of keys, values and headers in one Arrow batch, which has at least one row."""

# The greatest milliseconds whose microseconds fit into 64 bits. Times beyond are shown as this one.
_MS_MAX = (2**63 - 1) // 1000

_PLAIN_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
}

_NAME_TYPES = {StringType: pa.string(), BinaryType: pa.binary()}


class ArrowRecords:
    """The conversion of one partition's records into Arrow batches with the columns of ``schema``.

    ``schema`` has columns of the read schema, in any order. Constant columns are made once. Thread: one at a time.
    """

    def __init__(self, schema: StructType, topic: str, partition: int) -> None:
        self.schema = pa.schema([_arrow_field(field) for field in schema.fields])
        self._topic = topic
        self._partition = partition
        self._constants: dict[tuple[str, int], pa.Array] = {}
        self._makers = [self._maker(field.name) for field in self.schema]

    def batches(self, columns: RecordColumns, timestamp_type: TimestampType) -> Iterator[pa.RecordBatch]:
        """Yield the records, in order, in batches of bounded size. Without records there is no batch."""
        count = len(columns)
        if count == 0:
            return
        size_bytes = columns.keys.size_bytes + columns.values.size_bytes
        if columns.headers is not None:
            size_bytes += columns.headers.names.size_bytes + columns.headers.values.size_bytes
        piece_count = max(-(-count // ROWS_MAX), -(-size_bytes // BYTES_MAX))
        rows = max(1, -(-count // piece_count))
        for start in range(0, count, rows):
            piece = columns if rows >= count else columns.slice(start, min(start + rows, count))
            yield self._batch(piece, timestamp_type)

    def _batch(self, columns: RecordColumns, timestamp_type: TimestampType) -> pa.RecordBatch:
        arrays = [make(columns, timestamp_type) for make in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _maker(self, name: str) -> Callable[[RecordColumns, TimestampType], pa.Array]:
        """Return the function that makes the column of this name."""
        if name == "headers":
            headers_type = self.schema.field("headers").type
            return lambda columns, _: _headers_array(columns.headers, len(columns), headers_type)
        makers: dict[str, Callable[[RecordColumns, TimestampType], pa.Array]] = {
            "key": lambda columns, _: _binary_array(columns.keys),
            "value": lambda columns, _: _binary_array(columns.values),
            "topic": lambda columns, _: self._constant("topic", 0, len(columns)),
            "partition": lambda columns, _: self._constant("partition", self._partition, len(columns)),
            "offset": lambda columns, _: _numbers(columns.offsets, pa.int64()),
            "timestamp": lambda columns, _: _numbers(_microseconds(columns.timestamps), _PLAIN_TYPES["timestamp"]),
            "timestampType": lambda columns, kind: self._constant("timestampType", int(kind), len(columns)),
        }
        return makers[name]

    def _constant(self, name: str, number: int, count: int) -> pa.Array:
        """Return a column of ``count`` times the topic, or the number: a slice of an earlier column if one suffices."""
        known = self._constants.get((name, number))
        if known is None or len(known) < count:
            if name == "topic":
                text = self._topic.encode()
                places = np.arange(0, (count + 1) * len(text), len(text), dtype=np.int32)
                known = pa.StringArray.from_buffers(count, pa.py_buffer(places), pa.py_buffer(text * count))
            else:
                known = _numbers(np.full(count, number, dtype=np.int32), pa.int32())
            self._constants[name, number] = known
        return known.slice(0, count)


def _arrow_field(field: StructField) -> pa.Field:
    """Return the Arrow field that Spark expects for a field of the read schema."""
    if field.name != "headers":
        return pa.field(field.name, _PLAIN_TYPES[field.name], nullable=field.nullable)
    array = field.dataType
    assert isinstance(array, ArrayType)
    header = array.elementType
    assert isinstance(header, StructType)
    pair = pa.struct(
        [
            pa.field("key", _NAME_TYPES[type(header["key"].dataType)], nullable=header["key"].nullable),
            pa.field("value", pa.binary(), nullable=header["value"].nullable),
        ]
    )
    element = pa.field("element", pair, nullable=array.containsNull)
    return pa.field("headers", pa.list_(element), nullable=field.nullable)


def _validity(nulls: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def _binary_array(column: BinaryColumn, kind: pa.DataType | None = None) -> pa.Array:
    """Return the byte strings with offsets of 32 bits, over the same data."""
    first, end = int(column.offsets[0]), int(column.offsets[-1])
    places = (column.offsets - first).astype(np.int32)
    buffers = [_validity(column.nulls), pa.py_buffer(places), pa.py_buffer(column.data[first:end])]
    return pa.Array.from_buffers(kind or pa.binary(), len(column), buffers)


def _text_array(column: BinaryColumn) -> pa.Array:
    """Return the byte strings as text. As Java does for Kafka's source, bytes that are not UTF-8 become U+FFFD."""
    array = _binary_array(column, pa.string())
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([None if item is None else item.decode("utf-8", "replace") for item in column.to_list()])
    return array


def _numbers(numbers: npt.NDArray[np.int64] | npt.NDArray[np.int32], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def _microseconds(timestamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if int(timestamps.max()) > _MS_MAX or int(timestamps.min()) < -_MS_MAX:
        timestamps = np.clip(timestamps, -_MS_MAX, _MS_MAX)
    return timestamps * 1000


def _headers_array(headers: HeaderColumns | None, count: int, kind: pa.DataType) -> pa.Array:
    """Return the headers of each record; null for a record without headers, as in Kafka's source."""
    if headers is None:
        return pa.nulls(count, kind)
    places = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(headers.counts, out=places[1:])
    pair = kind.value_type
    names = _text_array(headers.names) if pa.types.is_string(pair[0].type) else _binary_array(headers.names)
    pairs = pa.StructArray.from_arrays([names, _binary_array(headers.values)], fields=list(pair))
    return pa.Array.from_buffers(kind, count, [_validity(headers.counts == 0), pa.py_buffer(places)], children=[pairs])
