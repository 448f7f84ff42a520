"""Records that delete-records has deleted are never delivered, though their batch is still there.

The log start may lie inside a batch, and a fetch from there has the whole batch.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import httpx
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rollway.records import Codec, Record, columns_from_records, encode_batch
from rollway.spark.errors import DataLossError
from rollway.spark.options.options import ReadOptions
from rollway.spark.read import fetch_rows
from rollway.spark.read.batch_reader import RollwayReader
from rollway.spark.read.stream_reader import RollwayStreamReader
from rollway.spark.schemas import read_schema
from tests.spark.topics import TIMESTAMP, FilledTopic, new_topic
from tests.support.servers import ThreadedServer

Reader = RollwayReader | RollwayStreamReader
Plan = Callable[[FilledTopic, str], tuple[Reader, Any]]
_numbers = count()


@pytest.fixture
def topic(client: httpx.Client) -> FilledTopic:
    return new_topic(client, 1, f"deleted-{next(_numbers)}")


@pytest.fixture
def plans(server: ThreadedServer) -> Iterator[dict[str, Plan]]:
    """How Spark plans to read a topic to its end: the reader, and what its tasks get."""
    streams: list[RollwayStreamReader] = []

    def options(topic: FilledTopic, fail: str, *, streaming: bool, **others: str) -> ReadOptions:
        given = {"url": server.url, "subscribe": topic.name, "failOnDataLoss": fail, "fetchMaxBytes": "1", **others}
        return ReadOptions.parse(given, streaming=streaming)

    def batch(topic: FilledTopic, fail: str, **others: str) -> tuple[Reader, Any]:
        reader = RollwayReader(options(topic, fail, streaming=False, **others), read_schema(include_headers=False))
        return reader, reader.partitions()

    def stream(topic: FilledTopic, fail: str) -> tuple[Reader, Any]:
        given = options(topic, fail, streaming=True, startingOffsets="earliest")
        reader = RollwayStreamReader(given, read_schema(include_headers=False))
        streams.append(reader)
        start = reader.initialOffset()
        return reader, reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))

    def offsets(topic: FilledTopic, fail: str) -> tuple[Reader, Any]:
        return batch(topic, fail, startingOffsets=json.dumps({topic.name: {"0": 1}}))

    yield {"batch": batch, "offsets": offsets, "stream": stream}
    for reader in streams:
        reader.stop()


def send(topic: FilledTopic, codec: Codec, first: int, end: int) -> None:
    records = [Record(0, TIMESTAMP, None, str(number).encode()) for number in range(first, end)]
    topic.send_batch(0, encode_batch(columns_from_records(records), codec=codec))


def read(planned: tuple[Reader, Any]) -> list[int]:
    reader, parts = pickle.loads(pickle.dumps(planned))
    return [int(row["value"]) for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("how", ["batch", "offsets", "stream"])
def test_what_was_deleted_inside_a_batch_stays_deleted(
    plans: dict[str, Plan], topic: FilledTopic, caplog: pytest.LogCaptureFixture, how: str, codec: Codec
) -> None:
    """The warning said that they are gone, and then they came."""
    send(topic, codec, 0, 10)
    send(topic, codec, 10, 20)
    send(topic, codec, 20, 30)
    strict, lenient = (plans[how](topic, fail) for fail in ("true", "false"))
    first = 1 if how == "offsets" else 0
    assert read(strict) == read(lenient) == [*range(first, 30)]
    topic.delete_before(0, 15)
    with pytest.raises(DataLossError, match=f"records {first} to 15"):
        read(strict)
    assert not caplog.records
    assert read(lenient) == [*range(15, 30)]
    assert f"records {first} to 15" in caplog.text
    assert read(plans["batch"](topic, "true")) == [*range(15, 30)], "what begins at the log start loses nothing"


def test_what_is_deleted_while_it_is_read_does_not_come(
    plans: dict[str, Plan], topic: FilledTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two fetches of one task."""
    for first in range(0, 50, 10):
        send(topic, Codec.NONE, first, first + 10)
    lenient = plans["stream"](topic, "false")
    fetch = fetch_rows.RollwayClient.fetch

    def delete_then_fetch(client: Any, *args: Any, offset: int, **kwargs: Any) -> Any:
        if offset == 20:
            topic.delete_before(0, 35)
        return fetch(client, *args, offset=offset, **kwargs)

    monkeypatch.setattr(fetch_rows.RollwayClient, "fetch", delete_then_fetch)
    assert read(lenient) == [*range(20), *range(35, 50)]


def test_a_transaction_whose_begin_was_deleted(plans: dict[str, Plan], topic: FilledTopic) -> None:
    topic.transact(0, *(str(number) for number in range(10)))
    topic.transact(0, *(str(number) for number in range(10, 20)), end="abort")
    topic.transact(0, *(str(number) for number in range(20, 30)))
    lenient = plans["batch"](topic, "false")
    topic.delete_before(0, 5)
    assert read(lenient) == [*range(5, 10), *range(20, 30)]
    topic.delete_before(0, 15)
    assert read(lenient) == [*range(20, 30)]
    topic.delete_before(0, 25)
    assert read(lenient) == [*range(23, 30)], "offsets 10, 21 and 32 are the markers'"


def test_the_check_finds_a_reader_that_only_looks_at_its_range(
    plans: dict[str, Plan], topic: FilledTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: records were compared with the range of the task, and not with where the fetch began."""
    send(topic, Codec.NONE, 0, 10)
    lenient = plans["batch"](topic, "false")
    topic.delete_before(0, 5)
    answers = fetch_rows._answers

    def from_the_start(client: Any, options: Any, wanted: Any) -> Any:
        return ((fetched, wanted.start_offset) for fetched, _ in answers(client, options, wanted))

    monkeypatch.setattr(fetch_rows, "_answers", from_the_start)
    assert read(lenient) == [*range(10)]
