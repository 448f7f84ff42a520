"""Files that are read otherwise than by Spark's defaults: what their names, headers and columns say is heeded."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.explaining import explain
from rollway.spark.jobs.file_sources import FileSource, read_files


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
    assert rows_of(spark, path) == [Row(id=1, name="Ann, Bob")]
    assert rows_of(spark, path, options={"SEP": ","}) == [Row(**{"id\tname": "1\tAnn"})]


def test_tabs_and_commas_are_not_read_together(spark: SparkSession) -> None:
    with pytest.raises(JobUsageError, match=r"a.tsv, b.csv cannot be read together: columns of .tsv end at tabs"):
        rows_of(spark, "a.tsv", "b.csv")


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
    assert [tuple(row) for row in rows_of(spark, path)] == [(1, 2), (3, 4)]
    (tmp_path / "in/two.csv").unlink()
    assert [tuple(row) for row in rows_of(spark, path)] == [(1, 2)]


def test_files_with_other_headers_are_refused_where_spark_made_up_names(spark: SparkSession, tmp_path: Path) -> None:
    path = written(tmp_path / "in", one=",buy,sell|0,1,2|", two=",sell,buy|0,2,1|")
    with pytest.raises(JobError, match=r"\w+.csv cannot be read: its header line has other columns"):
        rows_of(spark, path)


def test_headers_are_compared_wherever_the_files_are(spark: SparkSession, tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"in/day={day}").mkdir(parents=True)
        (tmp_path / f"in/day={day}/a b%20[{day}].csv").write_text(",a\n1,2\n")
    assert [tuple(row) for row in rows_of(spark, str(tmp_path / "in"), format="csv")] == [(1, 2, 1), (1, 2, 2)]


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
    assert [(row.a, row.discount, row.d) for row in rows] == [(1, None, 1), (2, 9.5, 2)]
    spark.sql("SELECT 'x' AS a").write.format(kind).save(str(folder / "d=3"))
    with pytest.raises(JobError, match=rf"in.{kind} cannot be read as {kind}: .* --schema says which") as raised:
        rows_of(spark, str(folder))
    assert "\n" not in str(raised.value)
