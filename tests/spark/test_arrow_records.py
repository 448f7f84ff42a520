"""Record columns as Arrow batches of exactly the schema Spark asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rollway.records import BinaryColumn, Record, RecordColumns, columns_from_records
from rollway.records import TimestampType as Clock
from rollway.spark.read.arrow_records import BYTES_MAX, ROWS_MAX, ArrowRecords

CREATED = Clock.CREATE_TIME
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
RECORDS = [
    Record(7, 1_700_000_000_000, b"k", b"v", (("trace", b"1"), ("empty", b""), ("null", None))),
    Record(9, 1_700_000_000_001, None, b"", ()),
    Record(10, -1, b"", None, (("é", b"\xff"),)),
]


def schema_of(*names: str, nullable: bool = True) -> StructType:
    return StructType([StructField(name, TYPES[name], nullable) for name in names])


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("names", [list(TYPES), list(TYPES)[:-1], ["value"], ["offset", "key"]])
def test_the_schema_is_what_spark_compares_with(names: list[str], nullable: bool) -> None:
    schema = schema_of(*names, nullable=nullable)
    arrow = ArrowRecords(schema, "flights", 0)
    assert arrow.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    [batch] = arrow.batches(columns_from_records(RECORDS[:1]), CREATED)
    batch.validate(full=True)
    assert batch.schema.equals(arrow.schema)


def test_every_column_holds_what_the_records_do() -> None:
    arrow = ArrowRecords(schema_of(*TYPES), "flüge", 3)
    [batch] = arrow.batches(columns_from_records(RECORDS), Clock.LOG_APPEND_TIME)
    batch.validate(full=True)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert batch.to_pydict() == {
        "key": [b"k", None, b""],
        "value": [b"v", b"", None],
        "topic": ["flüge"] * 3,
        "partition": [3] * 3,
        "offset": [7, 9, 10],
        "timestamp": [epoch + timedelta(milliseconds=record.timestamp) for record in RECORDS],
        "timestampType": [1] * 3,
        "headers": [
            [{"key": "trace", "value": b"1"}, {"key": "empty", "value": b""}, {"key": "null", "value": None}],
            None,
            [{"key": "é", "value": b"\xff"}],
        ],
    }


def test_no_headers_at_all_are_null_for_each_record() -> None:
    arrow = ArrowRecords(schema_of(*TYPES), "flights", 0)
    [batch] = arrow.batches(columns_from_records(RECORDS[1:2]), CREATED)
    assert batch["headers"].to_pylist() == [None]


def test_slices_of_columns_are_taken_from_their_place() -> None:
    arrow = ArrowRecords(schema_of(*TYPES), "flights", 0)
    [batch] = arrow.batches(columns_from_records(RECORDS).slice(1, 3), CREATED)
    batch.validate(full=True)
    assert batch["key"].to_pylist() == [None, b""]
    assert batch["headers"].to_pylist() == [None, [{"key": "é", "value": b"\xff"}]]


def test_times_that_microseconds_cannot_hold_are_the_last_that_can() -> None:
    arrow = ArrowRecords(schema_of("timestamp"), "flights", 0)
    records = [Record(place, timestamp, None, b"") for place, timestamp in enumerate((2**63 - 1, -(2**63), 0))]
    [batch] = arrow.batches(columns_from_records(records), CREATED)
    last = (2**63 - 1) // 1000 * 1000
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [last, -last, 0]


def plain_columns(count: int, value_bytes: int) -> RecordColumns:
    numbers = np.arange(count, dtype=np.int64)
    data = np.zeros(count * value_bytes, dtype=np.uint8)
    values = BinaryColumn.from_lengths(data, np.full(count, value_bytes, dtype=np.int64))
    return RecordColumns(numbers, numbers, BinaryColumn.all_null(count), values)


@pytest.mark.parametrize(
    ("count", "value_bytes"), [(0, 0), (3 * ROWS_MAX + 1, 0), (50, BYTES_MAX // 10), (1, BYTES_MAX)]
)
def test_batches_are_bounded_and_have_every_row_once(count: int, value_bytes: int) -> None:
    arrow = ArrowRecords(schema_of("value", "offset", "topic"), "flights", 0)
    batches = list(arrow.batches(plain_columns(count, value_bytes), CREATED))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(count))
    assert all(batch.num_rows <= ROWS_MAX and batch["value"].nbytes <= BYTES_MAX + 2**20 for batch in batches)
    assert {topic for batch in batches for topic in batch["topic"].to_pylist()} <= {"flights"}
