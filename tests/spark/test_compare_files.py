"""``compare`` of a topic with files of which some rows cannot become records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rollway.client import RollwayClient
from rollway.spark.jobs import (
    CompareRequest,
    FileSource,
    LoadRequest,
    RecordExpressions,
    Rejects,
    TopicAddress,
    compare,
    load,
)
from tests.support.servers import ServerProcess


@pytest.mark.parametrize("others", [0, 1], ids=["same records", "other records"])
def test_compare_shows_rows_of_files_that_are_no_records(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, tmp_path: Path, others: int
) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a,b\nx,1\ny,one\nz,3\n")
    files = FileSource(paths=(str(path),), schema="a STRING, b INT")
    target = TopicAddress(topic=f"compared-with-rejects-{others}", url=server.url)
    client.create_topic(target.topic, 1)
    a = RecordExpressions(value="a")
    load(spark, LoadRequest(source=files, target=target, expressions=a, rejects=Rejects(skip=True)))
    path.write_text(path.read_text() + "w,4\n" * others)
    request = CompareRequest(left=target, right=files, expressions=a)
    report = compare(spark, request)
    assert (report.outcome, report.exit_status) == ("different", 3)
    assert report.details["rejected"] == {"the line does not fit the columns": 1}
    assert f'1 row of {path} cannot become a record: 1 x "the line does not fit the columns"' in report.text()
    skipping = compare(spark, replace(request, skip_rejects=True))
    assert skipping.outcome == ("different" if others else "equal")
    assert skipping.details["rejected"] == report.details["rejected"]
    assert "1 row of" in skipping.text()
