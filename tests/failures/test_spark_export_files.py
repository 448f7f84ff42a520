"""An export makes files of a sensible size, and reads no topic but the one that it began with.

16 partitions and 27 hours with 32,000 small records were 432 files in 38 s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rollway.records import Record
from rollway.spark.jobs import EARLIEST, LATEST, ExportRequest, JobError, JobUsageError, TopicAddress, export
from rollway.spark.jobs.command.job_options import file_bytes
from rollway.spark.jobs.exporting.export_files import records_per_file
from rollway.spark.jobs.topics import TopicRange, open_client, read_range, resolve_range
from rollway.spark.options.options import OptionError
from tests.spark.conftest import server, spark
from tests.spark.topics import FilledTopic
from tests.support.servers import ServerProcess, http_client

__all__ = ["server", "spark"]

PARTITIONS, HOURS, EACH = 4, 6, 5
BEGIN_MS = 1_709_251_200_000  # 2024-03-01T00:00Z
HOUR_MS = 3_600_000
_numbers = count()


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with http_client(server.url) as http:
        yield http


def new_topic(http: httpx.Client, name: str | None = None, partitions: int = PARTITIONS) -> FilledTopic:
    name = name or f"files-{next(_numbers)}"
    made = http.put(f"/v1/topics/{name}", json={"partitions": partitions, "config": {"retention.ms": -1}})
    assert made.status_code == 201, made.text
    return FilledTopic(http, name, made.json()["topic_id"])


@pytest.fixture
def topic(http: httpx.Client) -> FilledTopic:
    """Records of some hours in each of some partitions, the hours in no order."""
    topic = new_topic(http)
    for partition in range(PARTITIONS):
        for number in range(EACH):
            at = [BEGIN_MS + ((hour * 5) % HOURS) * HOUR_MS + number for hour in range(HOURS)]
            values = [f"{partition} {number} {hour}".encode() for hour in range(HOURS)]
            topic.send(partition, [Record(0, when, None, value) for when, value in zip(at, values, strict=True)])
    return topic


def request_of(server: ServerProcess, topic: FilledTopic, folder: Path, **others: Any) -> ExportRequest:
    source = TopicAddress(topic=topic.name, url=server.url)
    return ExportRequest(source=source, destination=str(folder), **others)


def exported(folder: Path) -> dict[str, list[list[dict[str, Any]]]]:
    """The rows of each file, by the folder of their hour."""
    found: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)
    for path in sorted(folder.glob("date=*/hour=*/*.parquet")):
        found[str(path.parent.relative_to(folder))].append(pq.ParquetFile(path).read().to_pylist())
    return found


def values(files: dict[str, list[list[dict[str, Any]]]]) -> list[bytes]:
    return sorted(row["value"] for of_hour in files.values() for rows in of_hour for row in rows)


EVERYTHING = sorted(
    f"{partition} {number} {hour}".encode()
    for partition in range(PARTITIONS)
    for number in range(EACH)
    for hour in range(HOURS)
)


def test_an_hour_is_one_file_unless_it_is_large(
    spark: SparkSession, server: ServerProcess, topic: FilledTopic, tmp_path: Path
) -> None:
    advisory = spark.conf.get("spark.sql.adaptive.advisoryPartitionSizeInBytes")
    report = export(spark, request_of(server, topic, tmp_path / "out"))
    files = exported(tmp_path / "out")
    assert {hour: len(of_hour) for hour, of_hour in files.items()} == {
        f"date=2024-03-01/hour={hour}": 1 for hour in range(HOURS)
    }
    assert report.details["files"] == HOURS
    assert values(files) == EVERYTHING
    for of_hour in files.values():
        places = [(row["partition"], row["offset"]) for row in of_hour[0]]
        assert places == sorted(places), "a file has the order of the log"
    assert spark.conf.get("spark.sql.adaptive.advisoryPartitionSizeInBytes") == advisory

    # As it was: each task has each hour.
    unsorted = export(spark, request_of(server, topic, tmp_path / "tasks", file_bytes=0))
    assert unsorted.details["files"] == PARTITIONS * HOURS
    assert values(exported(tmp_path / "tasks")) == EVERYTHING


def test_a_large_hour_is_several_files(
    spark: SparkSession, server: ServerProcess, topic: FilledTopic, tmp_path: Path
) -> None:
    request = request_of(server, topic, tmp_path / "out", file_bytes=200, columns=("value", "offset + 1 AS offset"))
    with open_client(request.source) as client:
        wanted = resolve_range(client, request.source, EARLIEST, LATEST)
    most = records_per_file(wanted, request.file_bytes)
    assert 1 < most < PARTITIONS * EACH / 2
    export(spark, request)
    files = exported(tmp_path / "out")
    assert values(files) == EVERYTHING
    assert len(files) == HOURS
    for of_hour in files.values():
        assert len(of_hour) >= 2
        assert max(map(len, of_hour)) <= most


@pytest.mark.parametrize(
    ("records", "size_bytes", "wanted", "expected"),
    [(0, 0, 1 << 20, 0), (10, 1000, 0, 0), (10, 1000, 100, 1), (10, 1000, 1000, 10), (10, 10**9, 1, 1)],
)
def test_a_file_has_as_many_records_as_have_its_size(records: int, size_bytes: int, wanted: int, expected: int) -> None:
    address = TopicAddress(topic="t", url="http://127.0.0.1:1")
    given = TopicRange(address=address, topic_id="x", starts={0: 5}, ends={0: 5 + records}, size_bytes=size_bytes)
    assert records_per_file(given, wanted) == expected


def test_the_size_of_a_file_is_checked(server: ServerProcess, tmp_path: Path) -> None:
    assert [file_bytes(text) for text in ("0", "128m", "1000")] == [0, 128 << 20, 1000]
    for text in ("", "-1", "0m", "much"):
        with pytest.raises(OptionError, match="--file-size"):
            file_bytes(text)
    source = TopicAddress(topic="t", url=server.url)
    with pytest.raises(JobUsageError):
        ExportRequest(source=source, destination=str(tmp_path), file_bytes=-1)


@pytest.mark.parametrize("records", [1, 200], ids=["shorter", "longer"])
def test_an_export_does_not_go_on_in_another_topic(
    spark: SparkSession, server: ServerProcess, http: httpx.Client, topic: FilledTopic, tmp_path: Path, records: int
) -> None:
    """Of a shorter one it said that the service was restored from an older backup."""
    request = request_of(server, topic, tmp_path / "out", columns=("value",))
    export(spark, request)
    with open_client(request.source) as client:
        planned = resolve_range(client, request.source, EARLIEST, LATEST)
    topic.delete()
    new_topic(http, topic.name).send_values(0, *map(str, range(records)))
    for dry_run in (True, False):
        with pytest.raises(JobError, match="was deleted and made again since it was last exported"):
            export(spark, request, dry_run=dry_run)
    assert values(exported(tmp_path / "out")) == EVERYTHING
    with pytest.raises(Exception, match="was deleted and made again"):
        read_range(spark, planned).count()
