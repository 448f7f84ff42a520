"""Rows of a DataFrame in Arrow batches, converted to the columns of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rollway.records import BinaryColumn, HeaderColumns, RecordColumns

Int64Array = npt.NDArray[np.int64]

_US_PER_MS = 1_000

# Attributes, and the varints of length, deltas, key, value and header count: at most this many bytes in usual records.
_OVERHEAD_BYTES = 20
_HEADER_OVERHEAD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in Arrow columns of equal length. Every column but ``values`` is ``None`` if the DataFrame does not have it.

    ``partitions`` are int32, ``timestamps`` int64 milliseconds since 1970, both with nulls where the rows have none.
    """

    values: pa.Array
    keys: pa.Array | None = None
    headers: pa.Array | None = None
    timestamps: pa.Array | None = None
    topics: pa.Array | None = None
    partitions: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def has_keys(self) -> bool:
        """True if any row has a key."""
        return self.keys is not None and self.keys.null_count < len(self.keys)

    def take(self, places: Int64Array) -> Rows:
        """Return the rows at these indices, in this order."""
        wanted = _numbers(places)
        return self._each(lambda column: column.take(wanted))

    def slice(self, start: int, end: int) -> Rows:
        """Return the rows ``[start, end)``, over the same memory."""
        if start == 0 and end == len(self):
            return self
        return self._each(lambda column: column.slice(start, end - start))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> Rows:
        columns = (getattr(self, field.name) for field in fields(self))
        return Rows(*(None if column is None else change(column) for column in columns))

    def records(self, now_ms: int) -> RecordColumns:
        """Return the records. A row without a timestamp gets ``now_ms``."""
        count = len(self)
        return RecordColumns(
            np.empty(count, dtype=np.int64),
            _timestamps(self.timestamps, count, now_ms),
            BinaryColumn.all_null(count) if self.keys is None else BinaryColumn.from_arrow(self.keys),
            BinaryColumn.from_arrow(self.values),
            None if self.headers is None else _headers(self.headers),
        )


def rows_of(batches: Sequence[pa.RecordBatch]) -> Rows:
    """Return the rows of one or more batches with the columns of a write, in any order and any case of their names.

    A column that has only nulls may have Arrow's null type.

    Raises:
        ValueError: there is no column ``value``.
    """
    columns: dict[str, pa.Array] = {}
    for place, name in enumerate(batches[0].schema.names):
        arrays = [batch.column(place) for batch in batches]
        column = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        if not pa.types.is_null(column.type):
            columns[name.lower()] = column
        elif name.lower() == "value":
            columns["value"] = column.cast(pa.binary())
    if "value" not in columns:
        raise ValueError("there is no column 'value'")
    timestamps = columns.get("timestamp")
    return Rows(
        columns["value"],
        columns.get("key"),
        columns.get("headers"),
        None if timestamps is None else _milliseconds(timestamps),
        columns.get("topic"),
        columns.get("partition"),
    )


def estimated_bytes(rows: Rows) -> Int64Array:
    """Estimate the size of each row in a batch: hardly ever less than its real size, and little more."""
    sizes = np.full(len(rows), _OVERHEAD_BYTES, dtype=np.int64)
    for column in (rows.keys, rows.values):
        if column is not None:
            sizes += BinaryColumn.from_arrow(column).lengths()
    if rows.headers is not None and len(pairs := rows.headers.flatten()):
        pair_bytes = _HEADER_OVERHEAD_BYTES
        for column in pairs.flatten():
            pair_bytes += -(-BinaryColumn.from_arrow(column).size_bytes // len(pairs))
        sizes += pair_bytes * _header_counts(rows.headers)
    return sizes


def rows_without_header_names(headers: pa.Array | None) -> Int64Array:
    """Return the indices of the rows that have a header without a name."""
    if headers is None or len(pairs := headers.flatten()) == 0:
        return np.empty(0, dtype=np.int64)
    names = pairs.flatten()[0]
    if not names.null_count:
        return np.empty(0, dtype=np.int64)
    parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    return np.unique(parents[np.asarray(names.is_null())])


def _milliseconds(timestamps: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(timestamps.type):
        return timestamps.cast(pa.int64())
    us = timestamps.cast(pa.timestamp("us", timestamps.type.tz)).view(pa.int64())
    # Rounded towards the past, as Spark rounds milliseconds, also before 1970.
    numbers = np.floor_divide(us.fill_null(0).to_numpy(zero_copy_only=False), _US_PER_MS)
    milliseconds = _numbers(numbers)
    return pc.if_else(us.is_valid(), milliseconds, None) if us.null_count else milliseconds


def _numbers(numbers: Int64Array) -> pa.Array:
    """Return the numbers as an Arrow array. ``pa.array`` would load pandas, which takes half a second per process."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _timestamps(timestamps: pa.Array | None, count: int, now_ms: int) -> Int64Array:
    if timestamps is None or timestamps.null_count == count:
        return np.full(count, now_ms, dtype=np.int64)
    filled = timestamps.fill_null(now_ms) if timestamps.null_count else timestamps
    numbers: Int64Array = filled.to_numpy(zero_copy_only=False)
    return numbers


def _header_counts(headers: pa.Array) -> Int64Array:
    counts: Int64Array = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def _headers(headers: pa.Array) -> HeaderColumns | None:
    """Return the columns of headers; ``None`` if no row has headers. A null list counts as empty."""
    pairs = headers.flatten()
    if len(pairs) == 0:
        return None
    names, values = pairs.flatten()
    return HeaderColumns(_header_counts(headers), BinaryColumn.from_arrow(names), BinaryColumn.from_arrow(values))
