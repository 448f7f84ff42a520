"""The streaming read by a real Spark from a real service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.topics import FilledTopic, counted, new_topic
from tests.support.servers import ServerProcess, http_client

# Spark calls it with each micro-batch and its number.
Sink = Callable[[DataFrame, int], None]
WAIT_SECONDS = 120


class Rows:
    """A sink that keeps the values of each micro-batch; ``fail_at`` is a batch that it fails."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.batches: dict[int, list[str]] = {}
        self._fail_at = fail_at

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if batch_id == self._fail_at:
            raise RuntimeError(f"batch {batch_id} fails")
        self.batches[batch_id] = sorted(row["value"] for row in frame.selectExpr("CAST(value AS STRING)").collect())

    @property
    def values(self) -> list[str]:
        return sorted(value for batch in self.batches.values() for value in batch)


class Streams:
    """Queries over a topic of the service under test; ``directory`` has their checkpoint."""

    def __init__(self, spark: SparkSession, url: str, directory: Path) -> None:
        self._spark = spark
        self._url = url
        self._directory = directory

    def start(self, topic: FilledTopic, sink: Sink, *, available_now: bool = False, **options: str) -> StreamingQuery:
        reader = self._spark.readStream.format("rollway").option("url", self._url).option("subscribe", topic.name)
        writer = reader.options(**options).load().writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self._directory / "checkpoint"))
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def run(self, topic: FilledTopic, sink: Sink, **options: str) -> None:
        """Read what is there, and end."""
        query = self.start(topic, sink, available_now=True, **options)
        assert query.awaitTermination(WAIT_SECONDS)


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with http_client(server.url) as client:
        yield client


@pytest.fixture
def streams(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> Streams:
    return Streams(spark, server.url, tmp_path)


@pytest.fixture
def topic(http: httpx.Client) -> FilledTopic:
    """Two partitions: a to d in one, e in the other."""
    topic = new_topic(http, 2)
    for value in "abcd":
        topic.send_values(0, value)
    topic.send_values(1, "e")
    return topic


def test_available_now_reads_what_is_there_in_limited_batches_and_goes_on_later(
    streams: Streams, topic: FilledTopic
) -> None:
    rows = Rows()
    streams.run(topic, rows, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    assert rows.values == list("abcde")
    assert sorted(map(len, rows.batches.values())) == [2, 3]
    topic.send_values(1, "f")
    later = Rows()
    streams.run(topic, later, startingOffsets="earliest", minPartitions="4")
    assert later.batches == {2: ["f"]}


@pytest.mark.parametrize("group", [{}, {"kafka.group.id": "restarted"}])
def test_nothing_is_lost_when_the_first_batch_from_latest_failed(
    streams: Streams, topic: FilledTopic, group: dict[str, str]
) -> None:
    """Issue 5, acceptance 7: asked for latest again after the restart, the source would skip what came meanwhile."""
    query = streams.start(topic, Rows(fail_at=0), **group)
    with pytest.raises(StreamingQueryException, match="batch 0 fails"):
        query.awaitTermination(WAIT_SECONDS)
    topic.send_values(0, "f")
    topic.send_values(1, "g")
    rows = Rows()
    streams.run(topic, rows, **group)
    assert rows.values == ["f", "g"]


def test_a_running_query_follows_the_topic_and_asks_little_when_idle(
    streams: Streams, topic: FilledTopic, http: httpx.Client
) -> None:
    """Issue 5, acceptance 7: at most 2 offset requests a second; each of an idle query's waits for 600 ms."""
    rows = Rows()
    query = streams.start(topic, rows, startingOffsets="earliest")
    query.processAllAvailable()
    assert rows.values == list("abcde")
    topic.send_values(1, "f")
    query.processAllAvailable()
    assert rows.values == list("abcdef")
    # Idle from here on: however slow the machine is, waiting makes requests fewer.
    began, before = time.monotonic(), offset_requests(http)
    while (asked := offset_requests(http) - before) < 6:
        pass
    seconds = time.monotonic() - began
    query.stop()
    assert asked <= 2 * seconds + 2, "two more: the last look after the records, and a wait that was under way"


def offset_requests(http: httpx.Client) -> float:
    """Requests that are not the test's own."""
    metrics = counted(http, "rollway_http_requests_total", route="/metrics")
    return counted(http, "rollway_http_requests_total") - metrics
