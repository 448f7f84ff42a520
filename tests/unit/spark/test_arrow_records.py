"""Records as Arrow batches, where they are unusual."""

from __future__ import annotations

from rollway.records import Record, columns_from_records, records_from_columns
from rollway.records.batch import TimestampType
from rollway.spark.read.arrow_records import ArrowRecords
from rollway.spark.schemas import read_schema


def test_names_that_are_no_text_have_replacement_characters() -> None:
    """As Java makes them for Kafka's source; other names, and the values, are as they were."""
    headers = (("caf\u00e9", b"1"), ("\udcff\udcfe", b"\xff"), ("half \udcc3", None))
    records = [Record(0, 0, None, b"v"), Record(1, 0, None, b"v", headers), Record(2, 0, None, b"v", headers[:1])]
    columns = columns_from_records(records)
    assert records_from_columns(columns) == records
    (batch,) = ArrowRecords(read_schema(include_headers=True), "t", 0).batches(columns, TimestampType.CREATE_TIME)
    shown = batch.column("headers").to_pylist()
    first = {"key": "caf\u00e9", "value": b"1"}
    assert shown == [
        None,
        [first, {"key": "\ufffd\ufffd", "value": b"\xff"}, {"key": "half \ufffd", "value": None}],
        [first],
    ]
