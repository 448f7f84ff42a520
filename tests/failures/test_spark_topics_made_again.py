"""A topic that is deleted and made again is another topic, for every position and range that Spark keeps.

Readers are asked as Spark asks them, against a real service: Spark itself has no part here but for the last test.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rollway.spark.errors import DataLossError, OptionError
from rollway.spark.options.options import ReadOptions
from rollway.spark.read.batch_reader import RollwayReader
from rollway.spark.read.stream_reader import RollwayStreamReader
from rollway.spark.schemas import read_schema
from tests.spark.conftest import spark
from tests.spark.topics import new_topic
from tests.support.servers import ThreadedServer

__all__ = ["spark"]

ALL = ReadAllAvailable()
LOST = "was deleted and made again"
_numbers = count()


class Readers:
    """Readers of one topic, which can be made again."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self._url = url
        self._http = http
        self.topic = new_topic(http, 2, f"again-{next(_numbers)}")
        self.open: list[RollwayStreamReader] = []

    def make_again(self, partition_count: int = 2) -> None:
        self.topic.delete()
        new_topic(self._http, partition_count, self.topic.name)

    def fill(self, partition: int, first: int, end: int) -> None:
        self.topic.send_values(partition, *(str(number) for number in range(first, end)))

    def _options(self, given: dict[str, Any], *, streaming: bool) -> ReadOptions:
        texts = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in given.items()}
        return ReadOptions.parse({"url": self._url, "subscribe": self.topic.name, **texts}, streaming=streaming)

    def stream(self, **options: Any) -> RollwayStreamReader:
        parsed = self._options({"startingOffsets": "earliest", **options}, streaming=True)
        self.open.append(RollwayStreamReader(parsed, read_schema(include_headers=False)))
        return self.open[-1]

    def batch(self, **options: Any) -> RollwayReader:
        return RollwayReader(self._options(options, streaming=False), read_schema(include_headers=False))

    @property
    def topic_id(self) -> str:
        return str(self._http.get(self.topic.path).json()["topic_id"])


@pytest.fixture
def readers(server: ThreadedServer, client: httpx.Client) -> Iterator[Readers]:
    readers = Readers(server.url, client)
    yield readers
    for reader in readers.open:
        reader.stop()


def numbers_of(reader: RollwayReader | RollwayStreamReader, parts: Any) -> list[int]:
    """The values that tasks read, with copies of the reader and of its parts."""
    task, parts = pickle.loads(pickle.dumps((reader, parts)))
    return [int(row["value"]) for part in parts for batch in task.read(part) for row in batch.to_pylist()]


def without_ids(document: dict[str, Any]) -> dict[str, Any]:
    """The document as earlier versions wrote it, and Kafka's source."""
    return {
        topic: {name: offset for name, offset in each.items() if name != "topic_id"} for topic, each in document.items()
    }


@pytest.mark.parametrize("count", [5, 20, 200], ids=["shorter", "as long", "longer"])
def test_a_stream_does_not_go_on_in_another_topic(
    readers: Readers, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Right only where the log had become shorter: 52 of 200 records were never read, and nothing was said."""
    readers.fill(0, 0, 20)
    first = readers.stream()
    end = first.latestOffset(first.initialOffset(), ALL)
    readers.make_again()
    readers.fill(0, 1000, 1000 + count)
    with pytest.raises(DataLossError, match=f"{readers.topic.name} {LOST}"):
        readers.stream().latestOffset(end, ALL)
    with pytest.raises(DataLossError, match=LOST):
        first.latestOffset(end, ALL)
    assert not caplog.records
    lenient = readers.stream(failOnDataLoss="false")
    new_end = lenient.latestOffset(end, ALL)
    assert LOST in caplog.text
    assert numbers_of(lenient, lenient.partitions(end, new_end)) == [*range(1000, 1000 + count)]
    assert readers.topic_id in json.dumps(new_end)
    assert lenient.latestOffset(new_end, ALL) == new_end


def test_an_idle_stream_hears_of_it_at_once(readers: Readers) -> None:
    """It waits for news in the topic that it read: another one with as many records is news."""
    readers.fill(0, 0, 20)
    reader = readers.stream()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(end, ALL) == end
    readers.make_again()
    readers.fill(0, 1000, 1020)
    with pytest.raises(DataLossError, match=LOST):
        reader.latestOffset(end, ALL)


@pytest.mark.parametrize("split", [{}, {"minPartitions": 4}, {"maxRecordsPerPartition": 3}])
def test_a_micro_batch_that_is_planned_reads_the_topic_it_was_planned_for(
    readers: Readers, caplog: pytest.LogCaptureFixture, split: dict[str, Any]
) -> None:
    """Also when it is planned again after a restart."""
    readers.fill(0, 0, 20)
    reader = readers.stream(**split)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    parts = reader.partitions(start, end)
    readers.make_again()
    readers.fill(0, 1000, 1020)
    for planned in (parts, readers.stream(**split).partitions(start, end)):
        with pytest.raises(DataLossError, match=LOST):
            numbers_of(reader, planned)
    assert not caplog.records
    lenient = readers.stream(failOnDataLoss="false", **split)
    for planned in (parts, lenient.partitions(start, end)):
        assert numbers_of(lenient, planned) == []
        assert LOST in caplog.text
        caplog.clear()
    new_end = lenient.latestOffset(end, ALL)
    assert numbers_of(lenient, lenient.partitions(end, new_end)) == [*range(1000, 1020)]


def test_a_checkpoint_without_ids_is_read_and_takes_them_up(readers: Readers) -> None:
    readers.fill(0, 0, 20)
    reader = readers.stream()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    old = without_ids(end)
    again = readers.stream()
    # Planned again, as after a crash of an earlier version.
    planned = again.partitions(without_ids(reader.initialOffset()), old)
    assert numbers_of(again, planned) == [*range(20)]
    assert again.latestOffset(old, ALL) == end, "an empty micro-batch keeps the id"
    assert again.partitions(old, end) == []
    assert again.latestOffset(end, ALL) == end
    readers.fill(0, 20, 30)
    newer = readers.stream().latestOffset(old, ALL)
    assert numbers_of(again, again.partitions(old, newer)) == [*range(20, 30)]
    readers.make_again()
    readers.fill(0, 1000, 1100)
    for known in (end, newer):
        with pytest.raises(DataLossError, match=LOST):
            readers.stream().latestOffset(known, ALL)
    with pytest.raises(DataLossError, match=LOST):
        numbers_of(again, planned)


def test_a_topic_with_fewer_partitions_is_told_apart(readers: Readers, caplog: pytest.LogCaptureFixture) -> None:
    readers.fill(1, 0, 20)
    reader = readers.stream()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    readers.make_again(partition_count=1)
    readers.fill(0, 1000, 1020)
    with pytest.raises(DataLossError, match=LOST):
        readers.stream().latestOffset(end, ALL)
    lenient = readers.stream(failOnDataLoss="false")
    new_end = lenient.latestOffset(end, ALL)
    assert numbers_of(lenient, lenient.partitions(end, new_end)) == [*range(1000, 1020)]


def test_a_group_begins_in_the_topic_there_is(readers: Readers) -> None:
    readers.fill(0, 0, 20)
    group = {"kafka.group.id": f"again {next(_numbers)}", "startingOffsets": "latest"}
    first = readers.stream(**group).initialOffset()
    assert readers.stream(**group).initialOffset() == first
    readers.make_again()
    readers.fill(0, 1000, 1005)
    begin = readers.stream(**group).initialOffset()
    assert begin[readers.topic.name]["0"] == 5
    assert begin[readers.topic.name]["topic_id"] == readers.topic_id != first[readers.topic.name]["topic_id"]


@pytest.mark.parametrize("split", [{}, {"minPartitions": 4}, {"maxRecordsPerPartition": 3}])
def test_a_batch_that_is_planned_reads_no_other_topic(
    readers: Readers, caplog: pytest.LogCaptureFixture, split: dict[str, Any]
) -> None:
    """A DataFrame keeps its ranges from its first action on."""
    readers.fill(0, 0, 20)
    reader = readers.batch(**split)
    parts = reader.partitions()
    assert numbers_of(reader, parts) == [*range(20)]
    readers.make_again()
    readers.fill(0, 1000, 1200)
    with pytest.raises(DataLossError, match=LOST):
        numbers_of(reader, parts)
    assert numbers_of(readers.batch(failOnDataLoss="false", **split), parts) == []
    assert LOST in caplog.text


def test_offsets_that_are_given_say_of_which_topic_they_are(readers: Readers, caplog: pytest.LogCaptureFixture) -> None:
    """As they stand in a query's progress: what is copied from there means that topic."""
    readers.fill(0, 0, 20)
    reader = readers.stream()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert readers.stream(startingOffsets=end).initialOffset() == end
    middle = {readers.topic.name: {**end[readers.topic.name], "0": 15}}
    batch = readers.batch(startingOffsets=middle, endingOffsets=end)
    assert numbers_of(batch, batch.partitions()) == [*range(15, 20)]
    readers.make_again()
    readers.fill(0, 1000, 1200)
    for options in ({"startingOffsets": middle}, {"startingOffsets": middle, "endingOffsets": without_ids(end)}):
        with pytest.raises(DataLossError, match=LOST):
            readers.batch(**options).partitions()
    with pytest.raises(DataLossError, match=LOST):
        readers.stream(startingOffsets=middle).initialOffset()
    lenient = readers.batch(startingOffsets=middle, failOnDataLoss="false")
    assert numbers_of(lenient, lenient.partitions()) == []
    stream = readers.stream(startingOffsets=middle, failOnDataLoss="false")
    start = stream.initialOffset()
    assert numbers_of(stream, stream.partitions(start, stream.latestOffset(start, ALL))) == [*range(1000, 1200)]


def test_ids_that_contradict_each_other_or_are_none_are_refused(readers: Readers) -> None:
    known, other = {"topic_id": "a" * 22, "0": 0, "1": 0}, {"topic_id": "b" * 22, "0": 1, "1": 1}
    with pytest.raises(OptionError, match="topic_id"):
        readers.batch(startingOffsets={readers.topic.name: known}, endingOffsets={readers.topic.name: other})
    with pytest.raises(OptionError, match="topic_id"):
        readers.batch(startingOffsets={readers.topic.name: {"topic_id": 7, "0": 0, "1": 0}})


def test_sparks_checkpoint_and_a_planned_frame(
    spark: SparkSession, server: ThreadedServer, readers: Readers, client: httpx.Client, tmp_path: Path
) -> None:
    """The whole way: what Spark keeps is what tells the topics apart."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    topic, sink = readers.topic, new_topic(client, 1, f"{readers.topic.name}-sink")
    readers.fill(0, 0, 50)

    def read(name: str) -> Any:
        return spark.read.format("rollway").options(url=server.url, subscribe=name).load()

    def follow(**options: str) -> None:
        stream = spark.readStream.format("rollway").options(url=server.url, subscribe=topic.name, **options)
        rows = stream.option("startingOffsets", "earliest").load().select("value")
        query = rows.writeStream.format("rollway").options(url=server.url, topic=sink.name)
        checkpoint = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        checkpoint.trigger(availableNow=True).start().awaitTermination()

    follow()
    before = read(topic.name)
    assert before.count() == 50
    readers.make_again()
    readers.fill(0, 1000, 1200)
    with pytest.raises(Exception, match=LOST):
        before.count()
    with pytest.raises(Exception, match=LOST):
        follow()
    assert read(sink.name).count() == 50
    follow(failOnDataLoss="false")
    found = sorted(int(row.value) for row in read(sink.name).select("value").collect())
    assert found == [*range(50), *range(1000, 1200)]
