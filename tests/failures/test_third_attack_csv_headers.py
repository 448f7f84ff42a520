"""A name in the header of a CSV file may go over several lines, as any field in quotes may (RFC 4180)."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from rollway.spark.jobs.files.csv_files import read_csv
from tests.spark.conftest import spark

__all__ = ["spark"]


def test_a_name_over_several_lines(spark: SparkSession, tmp_path: Path) -> None:
    """The columns were those of the header's first line, and the file was said to have others than the other files."""
    plain, typed = (tmp_path / name for name in ("plain.csv", "typed.csv"))
    plain.write_bytes(b'"a\nx",b,c\n1,"2\n3",07\n')
    typed.write_bytes(b'"a\r\nx",b,c\r\n1,"2\r\n3",07\r\n')
    rows = read_csv(spark, [str(plain)], {"header": "true"}, None, None)
    assert (rows.columns[:3], rows.collect()[0][:3]) == (["a\nx", "b", "c"], ("1", "2\n3", "07"))
    rows = read_csv(spark, [str(typed)], {"header": "true", "inferSchema": "true"}, None, None)
    assert rows.dtypes[:3] == [("a\r\nx", "int"), ("b", "string"), ("c", "int")]
