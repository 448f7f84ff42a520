"""Files that are read otherwise than by Spark's defaults: what their names, headers and columns say is heeded."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from rollway.spark.jobs.command.explaining import explain
from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.expressions import REASON, SOURCE, RecordExpressions, record_rows
from rollway.spark.jobs.files.file_sources import FileSource, read_files


def written(folder: Path, **files: str) -> str:
    """A folder of CSV files with these lines; ``|`` ends one."""
    folder.mkdir()
    for name, lines in files.items():
        (folder / f"{name}.csv").write_text(lines.replace("|", "\n"))
    return str(folder / "*.csv")


def rows_of(spark: SparkSession, *paths: str, **others: object) -> list[Row]:
    rows, corrupt = read_files(spark, FileSource(paths=paths, **others))  # type: ignore[arg-type]
    return sorted((rows if corrupt is None else rows.drop(corrupt)).collect(), key=str)


# Tabs


@pytest.mark.parametrize("name", ["in.tsv", "in.tsv.gz"])
def test_columns_of_tsv_end_at_tabs(spark: SparkSession, tmp_path: Path, name: str) -> None:
    lines = spark.createDataFrame([("id\tname\n1\tAnn, Bob",)], "value string").coalesce(1)
    lines.write.option("compression", "gzip" if name.endswith(".gz") else "none").text(str(tmp_path / "lines"))
    (part,) = (tmp_path / "lines").glob("part-*")
    path = str(part.rename(tmp_path / name))
    assert rows_of(spark, path) == [Row(id="1", name="Ann, Bob")]
    assert rows_of(spark, path, options={"SEP": ","}) == [Row(**{"id\tname": "1\tAnn"})]


def test_tabs_and_commas_are_not_read_together(spark: SparkSession) -> None:
    with pytest.raises(JobUsageError, match=r"a.tsv, b.csv cannot be read together: columns of .tsv end at tabs"):
        rows_of(spark, "a.tsv", "b.csv")


# Files without data


@pytest.mark.parametrize("text", ["", "\n\n"], ids=["empty", "blank"])
@pytest.mark.parametrize("kind", ["csv", "json", "tsv"])
@pytest.mark.parametrize("options", [{}, {"mode": "DROPMALFORMED"}], ids=["all lines", "good lines"])
def test_a_file_without_a_line_has_no_records(
    spark: SparkSession, tmp_path: Path, kind: str, text: str, options: dict[str, str]
) -> None:
    """Whatever the expressions are about: a night without data is no error."""
    path = tmp_path / f"in.{kind}"
    path.write_text(text)
    rows, corrupt = read_files(spark, FileSource(paths=(str(path),), where="a > 1", options=options))
    asked = RecordExpressions(key="a", headers="map('a', b)", timestamp="at", partition="number")
    records = record_rows(rows, asked, corrupt=corrupt)
    assert records.columns == ["key", "value", "headers", "timestamp", "partition", REASON, SOURCE]
    assert records.count() == 0


def test_json_over_several_lines_is_told_how_to_be_read(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text('{\n "a":\n 1\n}\n')
    with pytest.raises(JobError, match=r"in.json has no line that is JSON: .* needs --read-option multiLine=true.$"):
        rows_of(spark, str(path))
    assert rows_of(spark, str(path), options={"multiLine": "true"}) == [Row(a=1)]
    path.write_text("[]\n")
    assert rows_of(spark, str(path), options={"multiLine": "true"}) == []
    path.write_text("{}\n")
    with pytest.raises(JobError, match=r"in.json has no columns: its lines are JSON without a field"):
        rows_of(spark, str(path))


# Times without a date


def test_times_without_a_date_stay_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes them as times of today, also where it finds the types."""
    path = tmp_path / "in.csv"
    path.write_text("a,b,c\n2013-07-04 10:30:00,10:30,2013-07-04\n2013-07-04 11:00:00,T9:15:01,2013-07-05 01:00:00\n")
    rows = rows_of(spark, str(path), options={"inferSchema": "true"})
    assert [row.b for row in rows] == ["10:30", "T9:15:01"]
    assert [type(each) for each in rows[0]] == [datetime, str, datetime]
    records = record_rows(read_files(spark, FileSource(paths=(str(path),)))[0], RecordExpressions(timestamp="b"))
    assert [row[REASON] for row in records.collect()] == ["the timestamp is a time without a date"] * 2


# Files with other columns


@pytest.mark.parametrize("second", ["sell,buy|2,1", "buy|2", "buy,sell,more|1,2,3"])
@pytest.mark.parametrize("options", [{}, {"mode": "DROPMALFORMED"}], ids=["all lines", "good lines"])
def test_files_with_other_headers_are_refused(
    spark: SparkSession, tmp_path: Path, second: str, options: dict[str, str]
) -> None:
    path = written(tmp_path / "in", one="buy,sell|1,2|", two=second)
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        rows_of(spark, path, options=options)
    sentence = explain(raised.value)
    assert sentence.startswith("file:/")
    assert ".csv cannot be read: its header line has other columns than the other files" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("header", ["buy,sell", ",sell", "sell,sell", "a0,b"])
def test_files_with_the_same_header_are_read_together(spark: SparkSession, tmp_path: Path, header: str) -> None:
    path = written(tmp_path / "in", one=f"{header}|1,2|", two=f"{header}|3,4|", three="")
    assert [tuple(row) for row in rows_of(spark, path)] == [("1", "2"), ("3", "4")]
    (tmp_path / "in/two.csv").unlink()
    assert [tuple(row) for row in rows_of(spark, path)] == [("1", "2")]


def test_files_with_other_headers_are_refused_where_spark_made_up_names(spark: SparkSession, tmp_path: Path) -> None:
    path = written(tmp_path / "in", one=",buy,sell|0,1,2|", two=",sell,buy|0,2,1|")
    with pytest.raises(JobError, match=r"\w+.csv cannot be read: its header line has other columns"):
        rows_of(spark, path)


def test_headers_are_compared_wherever_the_files_are(spark: SparkSession, tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"in/day={day}").mkdir(parents=True)
        (tmp_path / f"in/day={day}/a b%20[{day}].csv").write_text(",a\n1,2\n")
    assert [tuple(row) for row in rows_of(spark, str(tmp_path / "in"), format="csv")] == [
        ("1", "2", "1"),
        ("1", "2", "2"),
    ]


def test_columns_are_taken_by_position_where_that_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    path = written(tmp_path / "in", one="buy,sell|1,2|", two="a,b|3,4|")
    assert rows_of(spark, path, schema="x INT, y INT") == [Row(x=1, y=2), Row(x=3, y=4)]
    options = {"enforceSchema": "true"}
    assert rows_of(spark, path, options=options) == [Row(buy="1", sell="2"), Row(buy="3", sell="4")]


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_columns_that_only_some_files_have_are_read(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / f"in.{kind}"
    spark.sql("SELECT 1 AS a").write.format(kind).save(str(folder / "d=1"))
    spark.sql("SELECT 2 AS a, 9.5D AS discount").write.format(kind).save(str(folder / "d=2"))
    rows = rows_of(spark, str(folder))
    assert [(row.a, row.discount, row.d) for row in rows] == [(1, None, "1"), (2, 9.5, "2")]
    spark.sql("SELECT 'x' AS a").write.format(kind).save(str(folder / "d=3"))
    with pytest.raises(JobError, match=rf"in.{kind} cannot be read as {kind}: .* --schema says which") as raised:
        rows_of(spark, str(folder))
    assert "\n" not in str(raised.value)
