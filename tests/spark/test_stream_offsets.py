"""Where a stream begins and where its micro-batches end, against a real service; Spark itself has no part here."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from rollway.client import TopicNotFoundError
from rollway.spark.errors import DataLossError, NotCommittedError, StartNotFoundError
from rollway.spark.options.options import ReadOptions
from rollway.spark.read.stream_reader import IDLE_WAIT_MS, RollwayStreamReader
from rollway.spark.schemas import read_schema
from tests.spark.topics import TIMESTAMP, FilledTopic, counted, new_topic
from tests.support.servers import ServerProcess, http_client

_numbers = count()


class Streams:
    """Stream readers of the service under test."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.open: list[RollwayStreamReader] = []

    def reader(self, topic: FilledTopic | None = None, **options: object) -> RollwayStreamReader:
        texts = {name: str(value) for name, value in options.items()}
        if topic is not None:
            texts["subscribe"] = topic.name
        parsed = ReadOptions.parse({"url": self._url, **texts}, streaming=True)
        self.open.append(RollwayStreamReader(parsed, read_schema(include_headers=False)))
        return self.open[-1]


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with http_client(server.url) as client:
        yield client


@pytest.fixture
def streams(server: ServerProcess) -> Iterator[Streams]:
    streams = Streams(server.url)
    yield streams
    for reader in streams.open:
        reader.stop()


@pytest.fixture
def topic(http: httpx.Client) -> FilledTopic:
    """Two partitions; the first has the values a, b and c, one second apart."""
    topic = new_topic(http, 2)
    for place, value in enumerate("abc"):
        topic.send_values(0, value, timestamp=TIMESTAMP + 1000 * place)
    return topic


def offsets(topic: FilledTopic, *numbers: int) -> dict[str, dict[str, Any]]:
    by_partition = {str(partition): number for partition, number in enumerate(numbers)}
    return {topic.name: {"topic_id": topic.topic_id, **by_partition}}


def without_ids(document: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The document as earlier versions kept it."""
    return {
        topic: {name: value for name, value in members.items() if name != "topic_id"}
        for topic, members in document.items()
    }


def values(reader: RollwayStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """The values of a micro-batch, as tasks read them with a copy of the reader."""
    parts = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    task = pickle.loads(pickle.dumps(reader))
    return [row["value"].decode() for part in parts for batch in task.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (-1, -1)),
        ({"startingOffsets": "earliest"}, (0, 0)),
        ({"startingOffsets": {"0": 2, "1": -2}}, (2, 0)),
        ({"startingOffsets": {"0": -1, "1": 0}}, (-1, 0)),
        ({"startingTimestamp": TIMESTAMP + 500, "startingOffsetsByTimestampStrategy": "latest"}, (1, -1)),
        ({"startingOffsetsByTimestamp": {"0": TIMESTAMP + 2000, "1": 0}, "startingOffsetsByTimestampStrategy": "latest"}, (2, -1)),  # noqa: E501
    ],
)  # fmt: skip
def test_a_new_stream_begins_where_it_is_told(
    streams: Streams, topic: FilledTopic, options: dict[str, Any], expected: tuple[int, int]
) -> None:
    texts = {
        name: json.dumps({topic.name: given}) if isinstance(given, dict) else given for name, given in options.items()
    }
    assert streams.reader(topic, **texts).initialOffset() == offsets(topic, *expected)


def test_a_start_that_is_not_there_is_an_error(streams: Streams, topic: FilledTopic) -> None:
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        streams.reader(subscribe="nowhere").initialOffset()
    with pytest.raises(StartNotFoundError, match=f"{topic.name}-1 has no record at or after {TIMESTAMP}"):
        streams.reader(topic, startingTimestamp=TIMESTAMP).initialOffset()


def test_the_first_batch_from_latest_is_empty_and_fixes_where_the_second_begins(
    streams: Streams, topic: FilledTopic
) -> None:
    """Issue 5, acceptance 7: Spark keeps the end of a batch that failed, and asks for its beginning anew."""
    reader = streams.reader(topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == offsets(topic, 3, 0)
    assert values(reader, start, end) == []
    topic.send_values(0, "d")
    assert reader.initialOffset() == start, "Spark asks twice for the first batch"
    restarted = streams.reader(topic)
    assert values(restarted, restarted.initialOffset(), end) == []
    assert values(restarted, end, restarted.latestOffset(end, ReadAllAvailable())) == ["d"]


def test_a_group_begins_where_it_began_first(streams: Streams, topic: FilledTopic, http: httpx.Client) -> None:
    group = {"kafka.group.id": f"group-{next(_numbers)}"}
    assert streams.reader(topic, **group).initialOffset() == offsets(topic, 3, 0)
    topic.send_values(0, "d")
    topic.send_values(1, "e")
    again = streams.reader(topic, **group)
    start = again.initialOffset()
    assert start == offsets(topic, 3, 0)
    assert values(again, start, again.latestOffset(start, ReadAllAvailable())) == ["d", "e"]
    assert streams.reader(topic, **{"kafka.group.id": "another"}).initialOffset() == offsets(topic, 4, 1)


def test_a_group_pins_what_would_move_and_nothing_else(
    streams: Streams, topic: FilledTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """A new query's explicit start wins over the pin of an older one."""
    name = f"group {next(_numbers)}"
    group = {"kafka.group.id": name}
    assert streams.reader(topic, **group).initialOffset() == offsets(topic, 3, 0)
    assert not caplog.records
    topic.send_values(0, "d")
    topic.send_values(1, "e")
    explicit = {"startingOffsets": json.dumps({topic.name: {"0": 1, "1": 1}})}
    for options, expected in (
        ({"startingOffsets": "earliest"}, (0, 0)),
        (explicit, (1, 1)),
        ({"startingTimestamp": TIMESTAMP}, (0, 0)),
    ):
        assert streams.reader(topic, **group, **options).initialOffset() == offsets(topic, *expected)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "kafka.group.id does nothing" in caplog.text
        caplog.clear()
    mixed = {"startingOffsets": json.dumps({topic.name: {"0": -1, "1": 1}})}
    late = {"startingTimestamp": TIMESTAMP + 2**40, "startingOffsetsByTimestampStrategy": "latest"}
    for options, expected, told in (
        (mixed, (3, 1), f"{topic.name}-0 at 3 instead of 4;"),
        (late, (3, 0), f"{topic.name}-0 at 3 instead of 4, {topic.name}-1 at 0 instead of 1;"),
    ):
        assert streams.reader(topic, **group, **options).initialOffset() == offsets(topic, *expected)
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert told in record.getMessage()
        assert f"`rollway positions delete '{name}' --server http://" in record.getMessage()
        caplog.clear()


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_first_batch_that_is_planned_ends_where_it_was_planned_to(
    streams: Streams, topic: FilledTopic, fail_on_data_loss: str
) -> None:
    """A start by time is looked up again after a failure, and then finds what came after the end that Spark keeps."""
    options = {
        "startingTimestamp": TIMESTAMP + 5000,
        "startingOffsetsByTimestampStrategy": "latest",
        "failOnDataLoss": fail_on_data_loss,
    }
    reader = streams.reader(topic, **options)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end == offsets(topic, 3, 0)
    topic.send_values(0, "early", timestamp=TIMESTAMP + 4000)
    topic.send_values(0, "late", timestamp=TIMESTAMP + 5000)
    restarted = streams.reader(topic, **options)
    start = restarted.initialOffset()
    assert start == offsets(topic, 4, -1)
    assert values(restarted, start, end) == []
    assert values(restarted, end, restarted.latestOffset(end, ReadAllAvailable())) == ["early", "late"]


def test_a_start_beyond_the_log_is_an_error_or_the_end(streams: Streams, topic: FilledTopic) -> None:
    """As in Kafka's source: it reports the loss, drops the range, and goes on at the end."""
    beyond = {"startingOffsets": json.dumps({topic.name: {"0": 1000, "1": 0}})}
    strict, lenient = streams.reader(topic, **beyond), streams.reader(topic, failOnDataLoss="false", **beyond)
    with pytest.raises(DataLossError, match=f"{topic.name}-0 is to be read from offset 1000 and ends at 3"):
        strict.latestOffset(strict.initialOffset(), ReadAllAvailable())
    start = lenient.initialOffset()
    end = lenient.latestOffset(start, lenient.getDefaultReadLimit())
    assert (start, end) == (offsets(topic, 1000, 0), offsets(topic, 3, 0))
    assert values(lenient, start, end) == []
    topic.send_values(0, "d")
    restarted = streams.reader(topic, failOnDataLoss="false", **beyond)
    assert values(restarted, restarted.initialOffset(), end) == []
    assert values(restarted, end, restarted.latestOffset(end, ReadAllAvailable())) == ["d"]


def test_a_start_beyond_the_log_takes_no_share_of_a_trigger(streams: Streams, topic: FilledTopic) -> None:
    beyond = {"startingOffsets": json.dumps({topic.name: {"0": 1000, "1": 0}}), "failOnDataLoss": "false"}
    topic.send_values(1, "x", "y", "z")
    reader = streams.reader(topic, maxOffsetsPerTrigger=2, **beyond)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == offsets(topic, 3, 2)
    assert values(reader, start, end) == ["x", "y"]


def test_batches_follow_each_other(streams: Streams, topic: FilledTopic) -> None:
    reader = streams.reader(topic, startingOffsets="earliest")
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert values(reader, reader.initialOffset(), first) == ["a", "b", "c"]
    topic.send_values(1, "d")
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert (second, reader.reportLatestOffset()) == (offsets(topic, 3, 1), offsets(topic, 3, 1))
    assert values(reader, first, second) == ["d"]
    assert reader.partitions(second, second) == []


def test_committed_ends_are_before_open_transactions(streams: Streams, topic: FilledTopic) -> None:
    topic.transact(0, "d")
    topic.transact(0, "open", end=None)
    reader = streams.reader(topic, startingOffsets="earliest")
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == offsets(topic, 5, 0)
    uncommitted = streams.reader(topic, startingOffsets="earliest", isolationLevel="read_uncommitted")
    assert uncommitted.latestOffset(uncommitted.initialOffset(), ReadAllAvailable()) == offsets(topic, 6, 0)


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.parametrize("by", ["time", "offset", "checkpoint"])
def test_a_start_behind_what_is_committed_waits_for_it(
    streams: Streams, topic: FilledTopic, by: str, fail_on_data_loss: str
) -> None:
    """Nothing there can be read yet, and nothing is lost; nothing before it is read, either."""
    end_transaction = topic.begin(0, "open")
    topic.send_values(0, "d", timestamp=TIMESTAMP + 9000)
    options = {
        "time": {"startingTimestamp": TIMESTAMP + 9000, "startingOffsetsByTimestampStrategy": "latest"},
        "offset": {"startingOffsets": json.dumps({topic.name: {"0": 4, "1": -1}})},
        "checkpoint": {},
    }[by]
    reader = streams.reader(topic, failOnDataLoss=fail_on_data_loss, **options)
    if by == "checkpoint":
        before = streams.reader(topic, isolationLevel="read_uncommitted", startingOffsets="earliest")
        start = before.latestOffset(before.initialOffset(), ReadAllAvailable())
        assert start == offsets(topic, 5, 0)
        topic.send_values(0, "e")
    else:
        start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == offsets(topic, start[topic.name]["0"], 0)
    assert values(reader, start, end) == []
    end_transaction("commit")
    assert values(reader, end, reader.latestOffset(end, ReadAllAvailable())) == ["e" if by == "checkpoint" else "d"]


def test_a_batch_planned_with_uncommitted_records_is_no_loss(streams: Streams, topic: FilledTopic) -> None:
    """It was planned with read_uncommitted, and is run again with read_committed."""
    end_transaction = topic.begin(0, "open")
    topic.send_values(0, "d")
    start, end = offsets(topic, 0, 0), offsets(topic, 5, 0)
    for options in ({}, {"failOnDataLoss": "false"}, {"minPartitions": 3, "failOnDataLoss": "false"}):
        reader = streams.reader(topic, **options)
        with pytest.raises(NotCommittedError, match=f"{topic.name}-0 .* offset 5, .* not committed .* offset 3 on"):
            values(reader, start, end)
    end_transaction("commit")
    assert values(streams.reader(topic), start, end) == ["a", "b", "c", "open", "d"]


def test_a_trigger_takes_at_most_so_many_offsets(streams: Streams, topic: FilledTopic) -> None:
    reader = streams.reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(2)
    start = reader.initialOffset()
    first = reader.latestOffset(start, limit)
    second = reader.latestOffset(first, limit)
    assert (first, second) == (offsets(topic, 2, 0), offsets(topic, 3, 0))
    assert reader.latestOffset(start, ReadAllAvailable()) == second, "a trigger that wants everything gets it"


def test_a_trigger_waits_for_enough_offsets(streams: Streams, topic: FilledTopic) -> None:
    reader = streams.reader(topic, startingOffsets="earliest", minOffsetsPerTrigger=2, maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(2)
    start = reader.latestOffset(reader.initialOffset(), limit)
    topic.send_values(0, "d")
    assert reader.latestOffset(start, limit) == start
    topic.send_values(1, "e")
    assert reader.latestOffset(start, limit) == offsets(topic, 4, 1)


def test_available_now_ends_where_the_log_ended(streams: Streams, topic: FilledTopic) -> None:
    reader = streams.reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger=2, minOffsetsPerTrigger=2)
    reader.prepareForTriggerAvailableNow()
    topic.send_values(0, "d")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    second = reader.latestOffset(first, limit)
    assert (first, second) == (offsets(topic, 2, 0), offsets(topic, 3, 0)), "the rest is fewer than it would wait for"
    assert reader.latestOffset(second, limit) == second


def test_available_now_may_begin_after_its_end_was_fixed(streams: Streams, topic: FilledTopic) -> None:
    """Spark asks for the end first; what came between is not lost."""
    reader = streams.reader(topic, **{"kafka.group.id": f"group-{next(_numbers)}"})
    reader.prepareForTriggerAvailableNow()
    topic.send_values(0, "d")
    start = reader.initialOffset()
    assert start == offsets(topic, 4, 0)
    assert reader.latestOffset(start, ReadAllAvailable()) == start


def test_a_new_partition_is_read_from_its_first_record(
    streams: Streams, topic: FilledTopic, http: httpx.Client
) -> None:
    reader = streams.reader(topic, startingOffsets="latest")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert http.patch(topic.path, json={"partitions": 3}).status_code == 200
    topic.send_values(2, "new")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == offsets(topic, 3, 0, 1)
    assert values(reader, start, end) == ["new"]


def test_new_topics_of_a_pattern_are_read(streams: Streams, topic: FilledTopic, http: httpx.Client) -> None:
    reader = streams.reader(subscribePattern=f"{topic.name}(\\.new)?")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    new = new_topic(http, name=f"{topic.name}.new")
    new.send_values(0, "x")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {**offsets(topic, 3, 0), **offsets(new, 1)}
    assert values(reader, start, end) == ["x"]


def test_what_retention_deleted_before_a_batch_is_an_error_or_left_out(streams: Streams, topic: FilledTopic) -> None:
    strict = streams.reader(topic, startingOffsets="earliest")
    lenient = streams.reader(topic, startingOffsets="earliest", failOnDataLoss="false")
    start, end = offsets(topic, 0, 0), offsets(topic, 3, 0)
    topic.delete_before(0, 2)
    with pytest.raises(DataLossError, match=f"records 0 to 2 of {topic.name}-0 .* are gone"):
        values(strict, start, end)
    assert values(lenient, start, end) == ["c"]


@pytest.mark.parametrize("options", [{}, {"minPartitions": 4}])
@pytest.mark.parametrize("with_ids", [True, False])
def test_a_topic_made_anew_is_an_error_or_read_from_its_first_record(
    streams: Streams, topic: FilledTopic, http: httpx.Client, options: dict[str, Any], with_ids: bool
) -> None:
    """Told by its id; in a checkpoint of an earlier version, which has no ids, by a log that has become shorter."""
    strict, lenient = streams.reader(topic, **options), streams.reader(topic, failOnDataLoss="false", **options)
    start = offsets(topic, 3, 0) if with_ids else without_ids(offsets(topic, 3, 0))
    topic.delete()
    with pytest.raises(TopicNotFoundError):
        strict.latestOffset(start, ReadAllAvailable())
    assert lenient.latestOffset(start, ReadAllAvailable()) == {}
    new = new_topic(http, 2, topic.name)
    new.send_values(0, "x")
    told = "was deleted and made again" if with_ids else f"{topic.name}-0 was read up to offset 3 and now ends at 1"
    with pytest.raises(DataLossError, match=told):
        strict.latestOffset(start, ReadAllAvailable())
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert end == offsets(new, 1, 0)
    assert values(lenient, start, end) == ["x"]


def test_what_went_away_before_it_was_split_is_an_error_or_left_out(
    streams: Streams, topic: FilledTopic, http: httpx.Client
) -> None:
    """A batch that was planned, and is run again when a topic is gone, or made anew with fewer partitions."""
    other = new_topic(http, 2)
    other.send_values(0, "x")
    other.send_values(1, "y")
    subscribe = f"{topic.name},{other.name}"
    strict = streams.reader(subscribe=subscribe, minPartitions=8)
    lenient = streams.reader(subscribe=subscribe, minPartitions=8, failOnDataLoss="false")
    start, end = {**offsets(topic, 0, 0), **offsets(other, 0, 0)}, {**offsets(topic, 3, 0), **offsets(other, 1, 1)}
    assert sorted(values(lenient, start, end)) == ["a", "b", "c", "x", "y"]
    other.delete()
    for known in (start, offsets(topic, 0, 0)):
        assert values(lenient, known, end) == ["a", "b", "c"], "also of a topic that is new to the query"
        with pytest.raises((DataLossError, TopicNotFoundError)):
            values(strict, known, end)
    new_topic(http, 1, other.name).send_values(0, "z")
    for known in (start, offsets(topic, 0, 0)):
        assert values(lenient, known, end) == ["a", "b", "c"], "the records of another topic are not those"
        with pytest.raises(DataLossError):
            values(strict, known, end)
        # A batch that an earlier version has planned is of the topic there is.
        assert sorted(values(lenient, without_ids(known), without_ids(end))) == ["a", "b", "c", "z"]
        with pytest.raises(DataLossError):
            values(strict, without_ids(known), without_ids(end))


def test_an_idle_stream_waits_in_one_request_at_a_time(
    streams: Streams, topic: FilledTopic, http: httpx.Client
) -> None:
    """Issue 5, acceptance 7: at most 2 offset requests a second. Each waits longer than half of one."""
    assert IDLE_WAIT_MS > 500
    reader = streams.reader(topic)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    before, began = counted(http, "rollway_http_requests_total"), time.monotonic()
    for _ in range(3):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
    seconds = time.monotonic() - began
    requests = counted(http, "rollway_http_requests_total") - before - 1
    assert requests == 3, "one for each time that Spark asks; the other is that for the metrics"
    assert requests <= 2 * seconds


def test_news_end_the_wait(streams: Streams, topic: FilledTopic) -> None:
    reader = streams.reader(topic)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    topic.send_values(1, "d")
    assert reader.latestOffset(start, ReadAllAvailable()) == offsets(topic, 3, 1)


def test_news_beyond_one_request_end_the_wait_in_turn(
    streams: Streams, topic: FilledTopic, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream of more partitions than a request takes waits for a part of them each time, in one request as ever."""
    monkeypatch.setattr("rollway.client.client.FETCH_PARTITIONS_MAX", 1)
    reader = streams.reader(topic)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    before = counted(http, "rollway_http_requests_total")
    for _ in range(2):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert counted(http, "rollway_http_requests_total") - before - 1 == 2
    topic.send_values(0, "d")
    topic.send_values(1, "e")
    assert reader.latestOffset(start, ReadAllAvailable()) == offsets(topic, 4, 1)
    start = offsets(topic, 4, 1)
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    topic.send_values(1, "f")
    ends = [reader.latestOffset(start, ReadAllAvailable()) for _ in range(2)]
    assert offsets(topic, 4, 2) in ends
