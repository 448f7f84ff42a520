"""Records one by one: convenient for small batches, tests and people. Columns are quicker for many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollway.records.batch import TimestampType
from rollway.records.columns import BinaryColumn, HeaderColumns, RecordColumns


@dataclass(frozen=True, slots=True)
class Record:
    """One record. ``offset`` is absolute, ``timestamp`` in ms since 1970 (-1: none); a key or value may be null.

    In a header's name bytes that are not UTF-8 are lone surrogates, as Python's ``surrogateescape`` makes them.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


def columns_from_records(records: Sequence[Record]) -> RecordColumns:
    """Return the same records as columns, in their order."""
    count = len(records)
    return RecordColumns(
        np.fromiter((record.offset for record in records), dtype=np.int64, count=count),
        np.fromiter((record.timestamp for record in records), dtype=np.int64, count=count),
        BinaryColumn.from_list([record.key for record in records]),
        BinaryColumn.from_list([record.value for record in records]),
        HeaderColumns.from_rows([record.headers for record in records]),
    )


def records_from_columns(
    columns: RecordColumns, timestamp_type: TimestampType = TimestampType.CREATE_TIME
) -> list[Record]:
    """Return the same records one by one, in their order; all of ``timestamp_type``."""
    headers = [()] * len(columns) if columns.headers is None else columns.headers.to_rows()
    return [
        Record(offset, timestamp, key, value, row, timestamp_type)
        for offset, timestamp, key, value, row in zip(
            columns.offsets.tolist(),
            columns.timestamps.tolist(),
            columns.keys.to_list(),
            columns.values.to_list(),
            headers,
            strict=True,
        )
    ]
