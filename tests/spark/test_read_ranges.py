"""What a batch read plans and what its tasks bring, from a real service; Spark itself has no part here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rollway.client import TopicNotFoundError
from rollway.records import Codec, Record, columns_from_records, encode_batch
from rollway.spark.errors import DataLossError, NotCommittedError, OptionError, StartNotFoundError
from rollway.spark.options.options import ReadOptions
from rollway.spark.read.batch_reader import RollwayReader
from rollway.spark.schemas import read_schema
from tests.spark.topics import TIMESTAMP, FilledTopic, counted, new_topic
from tests.support.servers import ServerProcess, http_client


class Reads:
    """Readers of the service under test."""

    def __init__(self, url: str) -> None:
        self._url = url

    def reader(self, **options: object) -> RollwayReader:
        texts = {name: str(value) for name, value in options.items()}
        parsed = ReadOptions.parse({"url": self._url, **texts}, streaming=False)
        return RollwayReader(parsed, read_schema(include_headers=parsed.include_headers))

    def rows(self, **options: object) -> list[dict[str, Any]]:
        return read_all(self.reader(**options))

    def values(self, topic: FilledTopic, **options: object) -> list[str]:
        """Values by partition and offset."""
        return [row["value"].decode() for row in self.rows(subscribe=topic.name, **options)]


def read_all(reader: RollwayReader) -> list[dict[str, Any]]:
    """All rows, range after range."""
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with http_client(server.url) as client:
        yield client


@pytest.fixture
def reads(server: ServerProcess) -> Reads:
    return Reads(server.url)


@pytest.fixture
def topic(http: httpx.Client) -> FilledTopic:
    return new_topic(http)


@pytest.fixture
def pair(http: httpx.Client) -> FilledTopic:
    """Two partitions with five records each, one second apart: values a0 to a4, b0 to b4."""
    topic = new_topic(http, 2)
    for partition, letter in enumerate("ab"):
        for place in range(5):
            topic.send_values(partition, f"{letter}{place}", timestamp=TIMESTAMP + 1000 * place)
    return topic


def options_for(topic: FilledTopic, options: dict[str, Any]) -> dict[str, Any]:
    """Options with numbers by partition as documents of this topic."""
    return {
        name: json.dumps({topic.name: given}) if isinstance(given, dict) else given for name, given in options.items()
    }


def test_topics_by_list_by_pattern_and_by_assignment(reads: Reads, http: httpx.Client) -> None:
    mark = new_topic(http).name
    topics = [new_topic(http, 2, f"{mark}.{name}") for name in ("x", "y", "zz")]
    for topic in topics:
        for partition in (0, 1):
            topic.send_values(partition, f"{topic.name}-{partition}")
    everything = {f"{topic.name}-{partition}" for topic in topics for partition in (0, 1)}

    def read(**options: object) -> set[str]:
        return {row["value"].decode() for row in reads.rows(**options)}

    assert read(subscribe=",".join(topic.name for topic in topics)) == everything
    assert read(subscribePattern=f"{mark}\\..") == {each for each in everything if ".zz" not in each}
    assert read(assign=json.dumps({topics[0].name: [1], topics[2].name: [0]})) == {f"{mark}.x-1", f"{mark}.zz-0"}
    assert read(subscribePattern="no such topic.*") == set()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "a0 a1 a2 a3 a4 b0 b1 b2 b3 b4"),
        ({"startingOffsets": {"0": 2, "1": -2}, "endingOffsets": {"0": -1, "1": 1}}, "a2 a3 a4 b0"),
        ({"startingOffsets": {"0": 4, "1": 5}}, "a4"),
        ({"startingTimestamp": TIMESTAMP + 3000}, "a3 a4 b3 b4"),
        ({"startingTimestamp": TIMESTAMP + 500, "endingTimestamp": TIMESTAMP + 2000}, "a1 b1"),
        ({"startingOffsetsByTimestamp": {"0": TIMESTAMP + 4000, "1": TIMESTAMP + 3000}}, "a4 b3 b4"),
        ({"endingOffsetsByTimestamp": {"0": TIMESTAMP, "1": TIMESTAMP + 1000}}, "b0"),
        ({"startingTimestamp": TIMESTAMP + 4000, "startingOffsets": {"0": 0, "1": 0}}, "a4 b4"),
        ({"startingOffsetsByTimestamp": {"0": TIMESTAMP + 4000, "1": TIMESTAMP}, "startingTimestamp": TIMESTAMP + 4000}, "a4 b4"),  # noqa: E501
        ({"startingTimestamp": TIMESTAMP + 4001, "startingOffsetsByTimestampStrategy": "latest"}, ""),
    ],
)  # fmt: skip
def test_a_range_by_offset_or_time(reads: Reads, pair: FilledTopic, options: dict[str, Any], expected: str) -> None:
    """A time wins over times by partition, and those over offsets."""
    assert " ".join(reads.values(pair, **options_for(pair, options))) == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"startingOffsets": {"0": 2}}, OptionError, "startingOffsets must name every partition.*-1 missing"),
        ({"endingOffsets": {"0": 2, "1": 2, "2": 2}}, OptionError, "endingOffsets must.*-2 not subscribed"),
        ({"startingTimestamp": TIMESTAMP + 4001}, StartNotFoundError, "no record at or after .*ByTimestampStrategy"),
    ],
)
def test_positions_that_do_not_fit_are_errors(
    reads: Reads, pair: FilledTopic, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        reads.values(pair, **options_for(pair, options))


def test_topics_and_partitions_that_are_not_there_are_errors(reads: Reads, pair: FilledTopic) -> None:
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        reads.rows(subscribe=f"{pair.name},nowhere")
    with pytest.raises(OptionError, match=f"assign names partition 7 of {pair.name}, which has 2"):
        reads.rows(assign=json.dumps({pair.name: [0, 7]}))


def test_offsets_without_a_row_are_markers_and_aborted_records_not_loss(reads: Reads, topic: FilledTopic) -> None:
    """Issue 5: gaps of markers are not loss; readers of committed records stop before an open transaction."""
    topic.send_values(0, "plain")
    topic.transact(0, "yes 1", "yes 2")
    topic.transact(0, "no 1", "no 2", end="abort")
    topic.transact(0, "yes 3")
    topic.transact(0, "open", end=None)
    topic.send_values(0, "behind")
    committed = ["plain", "yes 1", "yes 2", "yes 3"]
    for options in ({}, {"minPartitions": 20}, {"maxRecordsPerPartition": 1}, {"fetchMaxBytes": 1}):
        assert reads.values(topic, failOnDataLoss="true", **options) == committed
    everything = ["plain", "yes 1", "yes 2", "no 1", "no 2", "yes 3", "open", "behind"]
    assert reads.values(topic, isolationLevel="read_uncommitted") == everything
    inside = options_for(topic, {"startingOffsets": {"0": 5}, "endingOffsets": {"0": 7}})
    assert reads.values(topic, **inside) == [], "the range begins inside the aborted transaction"


@pytest.mark.parametrize("options", [{}, {"minPartitions": 8}])
def test_an_empty_topic_has_one_range_without_rows(reads: Reads, topic: FilledTopic, options: dict[str, Any]) -> None:
    """Spark would make a partition without a value of none."""
    reader = reads.reader(subscribe=topic.name, **options)
    assert len(reader.partitions()) == 1
    assert read_all(reader) == []


def test_sixty_four_splits_fetch_every_byte_once(reads: Reads, http: httpx.Client) -> None:
    """Issue 5, acceptance 4: bytes fetched over range bytes at most 1.05, every offset exactly once."""
    topic = new_topic(http, 2)
    for partition, batch_count in ((0, 150), (1, 50)):
        for _ in range(batch_count):
            topic.send(partition, [Record(0, TIMESTAMP, None, b"v" * 100)] * 20)
    range_bytes = http.post(f"{topic.path}/splits").json()["size_bytes"]
    assert range_bytes > 400_000
    before = counted(http, "rollway_fetched_bytes_total")
    reader = reads.reader(subscribe=topic.name, minPartitions=64)
    assert len(reader.partitions()) == 64
    rows = [(row["partition"], row["offset"]) for row in read_all(reader)]
    assert rows == [(0, offset) for offset in range(3000)] + [(1, offset) for offset in range(1000)]
    assert range_bytes <= counted(http, "rollway_fetched_bytes_total") - before <= 1.05 * range_bytes


def test_splits_of_many_topics_are_in_proportion(reads: Reads, http: httpx.Client) -> None:
    small, large = new_topic(http, 2), new_topic(http)
    small.send_values(0, "s")
    for _ in range(40):
        large.send_values(0, *"abcdefghij")
    reader = reads.reader(subscribe=f"{small.name},{large.name}", minPartitions=8)
    assert 8 <= len(reader.partitions()) <= 10
    rows = [(row["topic"], row["offset"]) for row in read_all(reader)]
    assert rows == [(small.name, 0), *((large.name, offset) for offset in range(400))]


def test_no_range_has_more_records_than_it_may(reads: Reads, topic: FilledTopic) -> None:
    for _ in range(3):
        topic.send_values(0, *map(str, range(10)))
    reader = reads.reader(subscribe=topic.name, maxRecordsPerPartition=4)
    sizes = [sum(batch.num_rows for batch in reader.read(part)) for part in reader.partitions()]
    assert (sum(sizes), max(sizes)) == (30, 4)
    assert [row["offset"] for row in read_all(reader)] == list(range(30))


def test_too_many_ranges_are_an_error_of_the_option(reads: Reads, topic: FilledTopic) -> None:
    batch = encode_batch(columns_from_records([Record(0, TIMESTAMP, None, b"v")]))
    topic.send_batch(0, batch * 10_001)
    with pytest.raises(OptionError) as caught:
        reads.values(topic, maxRecordsPerPartition=1)
    assert str(caught.value) == (
        f"maxRecordsPerPartition is 1, which would cut {topic.name} into more than 10,000 Spark partitions: "
        "a larger one makes fewer"
    )
    assert len(reads.reader(subscribe=topic.name, maxRecordsPerPartition=2).partitions()) == 5_001


def test_small_batches_of_any_codec_are_joined_in_order(reads: Reads, topic: FilledTopic) -> None:
    for number, codec in enumerate(list(Codec) * 2):
        records = [Record(0, TIMESTAMP, None, f"{number}-{place}".encode()) for place in range(3)]
        topic.send_batch(0, encode_batch(columns_from_records(records), codec=codec))
    expected = [f"{number}-{place}" for number in range(10) for place in range(3)]
    assert reads.values(topic) == expected
    assert reads.values(topic, fetchMaxBytes=1) == expected
    reader = reads.reader(subscribe=topic.name)
    assert len([batch for part in reader.partitions() for batch in reader.read(part)]) == 1


def test_records_of_both_clocks_say_which(reads: Reads, http: httpx.Client, topic: FilledTopic) -> None:
    topic.send_values(0, "sent")
    changed = http.patch(topic.path, json={"config": {"message.timestamp.type": "LogAppendTime"}})
    assert changed.status_code == 200
    topic.send_values(0, "appended")
    assert [row["timestampType"] for row in reads.rows(subscribe=topic.name)] == [0, 1]


@pytest.mark.parametrize(
    ("start", "end", "left"), [(0, 5, ["a3", "a4"]), (4, 9, ["a4"]), (0, 2, []), (7, 9, []), (3, 5, ["a3", "a4"])]
)
def test_what_is_gone_is_an_error_or_left_out(
    reads: Reads, pair: FilledTopic, start: int, end: int, left: list[str]
) -> None:
    """failOnDataLoss both ways: offsets below the log start, and above the end."""
    pair.delete_before(0, 3)
    asked = options_for(pair, {"startingOffsets": {"0": start}, "endingOffsets": {"0": end}})
    asked["assign"] = json.dumps({pair.name: [0]})
    assert [row["value"].decode() for row in reads.rows(**asked, failOnDataLoss="false")] == left
    if (start, end) == (3, 5):
        assert [row["value"].decode() for row in reads.rows(**asked)] == left
        return
    with pytest.raises(DataLossError, match="are gone; to go on without them, set failOnDataLoss to false"):
        reads.rows(**asked)


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(4, -1, []), (4, 4, []), (-2, 5, None), (4, 5, None), (0, 0, []), (2, 1, []), (9, 9, []), (1, 3, ["b", "c"])],
)
def test_what_is_not_committed_and_what_is_empty_is_no_loss(
    reads: Reads, topic: FilledTopic, start: int, end: int, expected: list[str] | None, fail_on_data_loss: str
) -> None:
    """Offsets 3 to 5 are behind an open transaction, and those before 1 are deleted."""
    topic.send_values(0, "a", "b", "c")
    topic.transact(0, "open", end=None)
    topic.send_values(0, "d")
    topic.delete_before(0, 1)
    asked = options_for(topic, {"startingOffsets": {"0": start}, "endingOffsets": {"0": end}})
    for options in ({}, {"minPartitions": 4}):
        options = {"failOnDataLoss": fail_on_data_loss, **asked, **options}
        if expected is None:
            with pytest.raises(NotCommittedError, match=f"{topic.name}-0 .* offset 5, .* not committed .* offset 3 on"):
                reads.values(topic, **options)
        else:
            assert reads.values(topic, **options) == expected


def test_what_is_deleted_while_it_is_read_is_an_error_or_left_out(reads: Reads, pair: FilledTopic) -> None:
    strict = reads.reader(subscribe=pair.name)
    lenient = reads.reader(subscribe=pair.name, failOnDataLoss="false")
    parts = strict.partitions()

    def values(reader: RollwayReader) -> list[str]:
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        return [row["value"].decode() for row in rows]

    pair.delete_before(0, 2)
    with pytest.raises(DataLossError, match=f"records 0 to 2 of {pair.name}-0 .* are gone"):
        values(strict)
    assert values(lenient) == ["a2", "a3", "a4", "b0", "b1", "b2", "b3", "b4"]
    pair.delete()
    with pytest.raises(DataLossError, match="are gone; to go on without them"):
        values(strict)
    assert values(lenient) == []
    new_topic(pair.client, 2, pair.name).send_values(0, "another topic of this name")
    with pytest.raises(DataLossError, match="are gone; to go on without them"):
        values(strict)


def test_a_task_that_stops_early_lets_its_fetches_go(reads: Reads, topic: FilledTopic) -> None:
    """A limit on rows: Spark takes what it needs and closes the rest."""
    for number in range(20):
        topic.send_values(0, str(number))
    reader = reads.reader(subscribe=topic.name, fetchMaxBytes=1)
    [part] = reader.partitions()
    batches = reader.read(part)
    assert next(batches).num_rows == 1
    batches.close()  # type: ignore[attr-defined]
