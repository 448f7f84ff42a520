"""What stands beside our reads: a source that gives Spark the same Arrow batch again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rollway.records import BinaryColumn, RecordColumns, TimestampType
from rollway.spark.read.arrow_records import ArrowRecords
from rollway.spark.schemas import read_schema

# Rows of an Arrow batch as Spark itself makes them.
_ROWS = 10_000


class ConstantSource(DataSource):
    """Records of ``valueBytes``, ``rows`` in all from ``tasks`` tasks, with the columns of a read."""

    @classmethod
    def name(cls) -> str:
        return "constant_arrow"

    def schema(self) -> StructType:
        return read_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        numbers = (int(self.options[name]) for name in ("rows", "tasks", "valueBytes"))
        return _ConstantReader(schema, *numbers)


class _ConstantReader(DataSourceReader):
    def __init__(self, schema: StructType, row_count: int, task_count: int, value_bytes: int) -> None:
        self._schema = schema
        self._row_count = row_count
        self._task_count = task_count
        self._value_bytes = value_bytes

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._task_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        numbers = np.arange(_ROWS, dtype=np.int64)
        values = np.full(_ROWS * self._value_bytes, ord("x"), dtype=np.uint8)
        lengths = np.full(_ROWS, self._value_bytes, dtype=np.int64)
        columns = RecordColumns(
            numbers,
            numbers + 1_700_000_000_000,
            BinaryColumn.all_null(_ROWS),
            BinaryColumn.from_lengths(values, lengths),
        )
        arrow = ArrowRecords(self._schema, "constant", int(partition.value))
        [batch] = arrow.batches(columns, TimestampType.CREATE_TIME)
        left = self._row_count // self._task_count
        while left > 0:
            yield batch if left >= _ROWS else batch.slice(0, left)
            left -= _ROWS
