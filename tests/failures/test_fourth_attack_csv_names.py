"""A CSV file may have a column of the name that Spark gives to lines that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rollway.spark.jobs import FileSource, JobError
from rollway.spark.jobs.files.file_sources import read_files
from tests.spark.conftest import spark

__all__ = ["spark"]


@pytest.mark.parametrize("options", [{}, {"mode": "FAILFAST"}])
def test_a_column_that_spark_would_fill_is_refused(
    options: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """Spark ended with an error of Java: fields of the column are one too many in every line."""
    file = tmp_path / "rows.csv"
    file.write_text("a,_corrupt_record\n1,2\n")
    with pytest.raises(JobError, match="has a column _corrupt_record"):
        read_files(spark, FileSource(paths=(str(file),), options=options))
    rows, _ = read_files(spark, FileSource(paths=(str(file),), schema="a STRING, b STRING", options=options))
    assert rows.select("a", "b").collect() == [("1", "2")]
