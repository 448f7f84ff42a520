"""Files and rows of any shape become records, or say why they cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.expressions import REASON, SOURCE, RecordExpressions, RecordLimits, record_rows
from rollway.spark.jobs.files.file_sources import FileSource, read_files
from rollway.spark.jobs.topics import utc_date_and_hour

FLIGHTS = "carrier,flight,minute\nUA,1545,15\nAA,1141,40\n"


def records_of(rows: DataFrame) -> list[dict[str, object]]:
    return [
        {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.asDict().items()}
        for row in rows.collect()
    ]


def test_a_row_is_json_unless_an_expression_says_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(FLIGHTS)
    rows, corrupt = read_files(spark, FileSource(paths=(str(tmp_path / "in.csv"),)))
    found = records_of(record_rows(rows, RecordExpressions(key="carrier"), corrupt=corrupt))
    assert [(each["key"], json.loads(str(each["value"], "utf-8"))) for each in found] == [
        (b"UA", {"carrier": "UA", "flight": "1545", "minute": "15"}),
        (b"AA", {"carrier": "AA", "flight": "1141", "minute": "40"}),
    ]
    assert all(each[REASON] is None and each[SOURCE] is None for each in found)


def test_a_line_of_text_is_the_value_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes("a b\n\nÄ ü\n".encode())
    source = FileSource(paths=(str(tmp_path / "in.txt"),), where="value <> ''")
    rows, corrupt = read_files(spark, source)
    found = records_of(record_rows(rows, RecordExpressions(key="split(value, ' ')[0]"), corrupt=corrupt))
    assert [(each["key"], each["value"]) for each in found] == [(b"a", b"a b"), ("Ä".encode(), "Ä ü".encode())]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("'x'", b"x"), ("x'00ff'", b"\x00\xff"), ("42", b"42"), ("named_struct('a', 1)", b'{"a":1}'), ("null", None)],
)
def test_values_of_any_type_become_bytes(spark: SparkSession, expression: str, expected: bytes | None) -> None:
    rows = record_rows(spark.range(1), RecordExpressions(key=expression, value=expression))
    assert [(each["key"], each["value"]) for each in records_of(rows)] == [(expected, expected)]


@pytest.mark.parametrize(
    "expression",
    ["1372910400000", "timestamp '2013-07-04 04:00:00Z'", "'2013-07-04T00:00:00-04:00'"],
)
def test_times_of_any_form_become_timestamps(spark: SparkSession, expression: str) -> None:
    rows = record_rows(spark.range(1), RecordExpressions(timestamp=expression))
    assert [each[0] for each in rows.selectExpr("unix_millis(timestamp)").collect()] == [1_372_910_400_000]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("id", b"7"),
        ("date'2026-01-02'", b"2026-01-02"),
        ("X'00ff'", b"\x00\xff"),
        ("array(1, 2)", b"[1,2]"),
        ("cast(null as int)", None),
    ],
)
def test_values_of_headers_are_made_as_those_of_records(
    spark: SparkSession, value: str, expected: bytes | None
) -> None:
    for expression in (f"map('a', {value})", f"array(struct('a', {value}))"):
        rows = record_rows(spark.range(7, 8), RecordExpressions(headers=expression))
        (header,) = rows.collect()[0]["headers"]
        assert (header["key"], header["value"]) == ("a", expected)


@pytest.mark.parametrize("expression", ["map('a', 'x')", "array(named_struct('name', 'a', 'bytes', x'78'))"])
def test_headers_of_both_forms_become_headers(spark: SparkSession, expression: str) -> None:
    rows = record_rows(spark.range(1), RecordExpressions(headers=expression))
    assert rows.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert [(each["key"], bytes(each["value"])) for each in rows.collect()[0]["headers"]] == [("a", b"x")]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_times_without_a_date_are_rejected(spark: SparkSession, ansi: str) -> None:
    """Spark takes them as times of today."""
    texts = ["10:30", " T1:02", "12:00:00 America/New_York", "2013", "2013-07-04 10:30", None, "no time"]
    source = spark.createDataFrame([(text,) for text in texts], "at string")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        rows = record_rows(source, RecordExpressions(value="'x'", timestamp="at"))
        found = [row[REASON] for row in rows.collect()]
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert found == ["the timestamp is a time without a date"] * 3 + [None, None] + ["there is no timestamp"] * 2


def test_rows_that_cannot_be_records_say_why(spark: SparkSession) -> None:
    source = spark.createDataFrame(
        [(0, "2013-01-01"), (9, "2013-01-01"), (1, "no time"), (1, "1960-01-01"), (2, "2013-01-01")],
        "number int, at string",
    )
    expressions = RecordExpressions(value="repeat('x', number * 100)", timestamp="at", partition="number")
    found = records_of(record_rows(source, expressions, limits=RecordLimits(partition_count=3, record_bytes_max=300)))
    assert [each[REASON] for each in found] == [
        None,
        "there is no such partition, the topic has 3",
        "there is no timestamp",
        "the timestamp is before 1970",
        "the record is larger than the topic's max.message.bytes (300)",
    ]
    assert found[1][SOURCE] == '{"number":9,"at":"2013-01-01"}'


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_numbers_that_are_too_large_are_rejected_and_never_another_number(spark: SparkSession, ansi: str) -> None:
    """A partition beyond 32 bits is not its low bits, and nanoseconds are no milliseconds."""
    source = spark.createDataFrame(
        [(1, 1_372_896_000_000), (2**32, 0), (-1, 0), (None, 0), (0, 1_372_896_000_000 * 10**6), (0, -(2**63))],
        "number long, at long",
    )
    expressions = RecordExpressions(value="'x'", timestamp="at", partition="number")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        limited = record_rows(source, expressions, limits=RecordLimits(partition_count=3))
        found = limited.select("partition", REASON).collect()
        unlimited = record_rows(source, expressions).select(REASON).collect()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert [each[REASON] for each in found] == [
        None,
        "there is no such partition, the topic has 3",
        "there is no such partition, the topic has 3",
        None,
        "the timestamp is too large for milliseconds since 1970",
        "the timestamp is before 1970",
    ]
    assert [each["partition"] for each in found] == [1, None, -1, None, 0, 0]
    assert [each[REASON] for each in unlimited][-2:] == [each[REASON] for each in found][-2:]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_timestamps_that_the_topic_does_not_take_are_rejected(spark: SparkSession, ansi: str) -> None:
    limits = RecordLimits(oldest_ms=1_000_000, newest_ms=2_000_000)
    source = spark.createDataFrame([(999_999,), (1_000_000,), (2_000_000,), (2_000_001,), (2_000_000_000,)], "at long")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = record_rows(source, RecordExpressions(value="'x'", timestamp="at"), limits=limits).collect()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    past = "the timestamp is further in the past than the topic's message.timestamp.before.max.ms allows"
    future = "the timestamp is further in the future than the topic's message.timestamp.after.max.ms allows"
    assert [each[REASON] for each in found] == [past, None, None, future, future]


def test_lines_that_do_not_fit_the_columns_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"id": 1}\n{"id": "one"}\nnot json\n{"id": 4}\n')
    rows, corrupt = read_files(spark, FileSource(paths=(str(tmp_path / "in.json"),), schema="id BIGINT"))
    found = records_of(record_rows(rows, RecordExpressions(key="id"), corrupt=corrupt))
    assert [(each["key"], each[SOURCE]) for each in found] == [
        (b"1", None),
        (None, '{"id": "one"}'),
        (None, "not json"),
        (b"4", None),
    ]
    assert found[2][REASON] == "the line does not fit the columns"


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_bad_lines_are_the_same_whatever_a_query_needs(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Spark looks for bad fields only in the columns that a query needs; here ``b`` is not among them."""
    path = tmp_path / f"in.{kind}"
    path.write_text(
        "a,b,t\nx,1,1000000\ny,one,1000000\n"
        if kind == "csv"
        else '{"a": "x", "b": 1, "t": 1000000}\n{"a": "y", "b": "one", "t": 1000000}\n'
    )
    source = FileSource(paths=(str(path),), schema="a STRING, b INT, t BIGINT")
    rows, corrupt = read_files(spark, source)
    records = record_rows(rows, RecordExpressions(value="a", timestamp="t"), corrupt=corrupt)
    good = records.where(f"{REASON} IS NULL").select("value").collect()
    assert [bytes(each["value"]) for each in good] == [b"x"]
    assert records.where(f"{REASON} IS NOT NULL").count() == 1
    assert sorted(each["count"] for each in records.groupBy(REASON).count().collect()) == [1, 1]
    dropping, _ = read_files(spark, replace(source, options={"mode": "DROPMALFORMED"}))
    assert (dropping.count(), [each["a"] for each in dropping.select("a").collect()]) == (1, ["x"])


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "orc", "text"])
def test_every_format_is_read_by_its_name(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / f"in.{'txt' if kind == 'text' else kind}"
    rows = spark.createDataFrame([("a",), ("b",)], "value string")
    rows.write.format(kind).option("header", "true").save(str(folder))
    found, _ = read_files(spark, FileSource(paths=(str(folder),)))
    assert sorted(row["value"] for row in found.collect()) == ["a", "b"]


@pytest.mark.parametrize(
    ("source", "error", "sentence"),
    [
        ({"paths": ("/nowhere/in.csv",)}, JobError, "does not exist"),
        ({"paths": ("in.bin",)}, JobUsageError, "cannot be told by the name: say it with --format"),
        ({"paths": ("a.csv", "b.json")}, JobUsageError, "cannot be told"),
        ({"paths": ("in",), "format": "xml"}, JobUsageError, "csv, json, parquet, orc, text, avro are"),
        ({"paths": ()}, JobUsageError, "no file"),
        ({"paths": ("in.json",), "schema": "id NUMBERS"}, JobUsageError, "--schema 'id NUMBERS' cannot be used"),
        ({"paths": ("in.json",), "schema": "INT"}, JobUsageError, "no columns"),
        ({"paths": ("in.avro",)}, JobError, "this Spark has no Avro. Submit with --packages"),
    ],
)
def test_files_that_cannot_be_read_are_one_sentence(
    spark: SparkSession, source: dict[str, object], error: type[JobError], sentence: str
) -> None:
    with pytest.raises(error) as raised:
        read_files(spark, FileSource(**source))  # type: ignore[arg-type]
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("expressions", "sentence"),
    [
        ({"key": "carier"}, "--key 'carier' cannot be used: "),
        ({"key": "carrier +"}, "--key 'carrier +' cannot be used: "),
        ({"timestamp": "array(1)"}, "a timestamp, date, string or whole number"),
        ({"partition": "'one'"}, "a whole number is needed"),
        ({"headers": "1"}, "a map, or an array of structs of a key and a value"),
        ({"value": "*"}, "2 columns: one is needed"),
        ({"value": " "}, "--value is empty"),
    ],
)
def test_wrong_expressions_are_one_sentence(spark: SparkSession, expressions: dict[str, str], sentence: str) -> None:
    source = spark.createDataFrame([("UA", 1)], "carrier string, flight int")
    with pytest.raises(JobUsageError) as raised:
        record_rows(source, RecordExpressions(**expressions))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_date_and_hour_are_those_of_utc(spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp_millis(at) AS timestamp FROM VALUES (1372910399999), (0), (-1) AS t(at)")
    found = utc_date_and_hour(rows).selectExpr("cast(date as string)", "hour").collect()
    assert [tuple(row) for row in found] == [("2013-07-04", 3), ("1970-01-01", 0), ("1969-12-31", 23)]
