"""Reading committed records over HTTP, against the consumers of aiokafka and kafka-python (spec D12, E23)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import kafka
import kafka.record
import pytest
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition
from kafka.consumer.fetcher import Fetcher, IsolationLevel

from rollway.records import committed_batches, decode_batch, decode_multi_frame, split_batches
from storage.log.partition_log import PartitionLog
from tests.http.test_long_poll import until, waiting_count
from tests.http.test_multi_fetch import FRAMES, Waiting, asked
from tests.support.servers import ThreadedServer, http_client
from tests.support.transactions import TestProducer

RAW = "application/vnd.kafka.record-batch.v2"
NDJSON = "application/x-ndjson"
RECORDS = "/v1/topics/t/partitions/0/records"
COMMITTED = {"isolation": "read_committed"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path / "data") as running:
        assert httpx.put(f"{running.url}/v1/topics/t", json={"partitions": 1}).status_code == 201
        yield running


@pytest.fixture
def client(server: ThreadedServer) -> Iterator[httpx.Client]:
    with http_client(server.url) as client:
        yield client


class Producers:
    """Transactional producers that run on the service's own loop."""

    def __init__(self, server: ThreadedServer, *names: str) -> None:
        self._loop = server.service.loop
        parts = server.service.parts
        self.log: PartitionLog = server.result_of(parts.engine.partition("t", 0))
        self.producers = {name: TestProducer(parts, name) for name in names}
        for producer in self.producers.values():
            self._run(producer.initialise())

    def _run(self, call: Any) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(60)

    def send(self, name: str, *values: str) -> None:
        self._run(self.producers[name].send(self.log, *(value.encode() for value in values)))

    def end(self, name: str, *, commit: bool) -> None:
        self._run(self.producers[name].end(commit=commit))


def values(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()["records"]]


def by_aiokafka(content: bytes, aborted: list[tuple[int, int]]) -> list[str]:
    """What its consumer shows of raw batches and a list of aborted transactions."""
    records = PartitionRecords(
        TopicPartition("t", 0), MemoryRecords(content), aborted, 0, None, None, True, READ_COMMITTED
    )
    return [record.value.decode() for record in records]


class _Aborted(NamedTuple):
    """As kafka-python reads them from a fetch response."""

    producer_id: int
    first_offset: int


def by_kafka_python(content: bytes, aborted: list[tuple[int, int]]) -> list[str]:
    """What the consumer of kafka-python shows of the same."""
    records = Fetcher.PartitionRecords(
        0,
        kafka.TopicPartition("t", 0),
        kafka.record.MemoryRecords(content),
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=[_Aborted(*one) for one in aborted],
    )
    return [record.value.decode() for record in records.take()]


def by_us(content: bytes, aborted: list[tuple[int, int]]) -> list[str]:
    kept = committed_batches(split_batches(content), aborted)
    return [(value or b"").decode() for batch in kept for value in decode_batch(batch).values.to_list()]


def aborted_of(header: str) -> list[tuple[int, int]]:
    return [(int(entry.split("/")[-2]), int(entry.split("/")[-1])) for entry in header.split(", ") if entry]


def test_open_and_aborted_transactions_are_not_read(client: httpx.Client, server: ThreadedServer) -> None:
    producers = Producers(server, "one", "two")
    client.post(RECORDS, json={"records": [{"value": "plain"}]})
    producers.send("one", "a", "b")
    producers.send("two", "x")
    producers.end("one", commit=True)
    everything = client.get(RECORDS, params={"offset": 0})
    assert values(everything) == ["plain", "a", "b", "x"]
    # The marker has no record, but an offset.
    assert everything.json()["next_offset"] == 5
    first = client.get(RECORDS, params={"offset": 0, **COMMITTED})
    assert (values(first), first.json()["next_offset"], first.json()["last_stable_offset"]) == (
        ["plain", "a", "b"],
        3,
        3,
    )
    assert client.get(f"{RECORDS}/3", params=COMMITTED).status_code == 416
    producers.end("two", commit=False)
    second = client.get(RECORDS, params={"offset": 3, **COMMITTED})
    assert (values(second), second.json()["next_offset"]) == ([], 6)
    assert client.get(f"{RECORDS}/3", params=COMMITTED).status_code == 404
    assert client.get(f"{RECORDS}/3/value", params=COMMITTED).status_code == 404
    assert client.get(f"{RECORDS}/3/value").text == "x"
    assert client.get(f"{RECORDS}/1/value", params=COMMITTED).text == "a"
    lines = client.get(RECORDS, params={"offset": 0, **COMMITTED}, headers={"Accept": NDJSON})
    assert [json.loads(line)["value"] for line in lines.text.splitlines()] == ["plain", "a", "b"]


def test_tx_9_raw_answers_name_the_aborted_transactions(client: httpx.Client, server: ThreadedServer) -> None:
    producers = Producers(server, "one")
    producers.send("one", "a")
    producers.end("one", commit=False)
    producer_id = producers.producers["one"].identity.producer_id
    raw = client.get(RECORDS, params={"offset": 0, **COMMITTED}, headers={"Accept": RAW})
    assert raw.headers["aborted-transactions"] == f"{producer_id}/0"
    assert raw.headers["next-offset"] == "2"
    assert [batch.header.is_control for batch in split_batches(raw.content)] == [False, True]
    assert by_aiokafka(raw.content, [(producer_id, 0)]) == []
    assert by_kafka_python(raw.content, [(producer_id, 0)]) == []
    uncommitted = client.get(RECORDS, params={"offset": 0}, headers={"Accept": RAW})
    assert "aborted-transactions" not in uncommitted.headers
    assert uncommitted.content == raw.content
    body = {"partitions": [asked("t", 0)], **COMMITTED}
    framed = client.post("/v1/fetch", json=body, headers={"Accept": FRAMES})
    assert framed.headers["aborted-transactions"] == f"t/0/{producer_id}/0"
    assert bytes(decode_multi_frame(framed.content).frames[0].content) == raw.content
    (one,) = client.post("/v1/fetch", json=body).json()["partitions"]
    assert (one["records"], one["next_offset"]) == ([], 2)
    assert one["aborted_transactions"] == [{"producer_id": producer_id, "first_offset": 0}]


def test_tx_10_a_committed_fetch_waits_for_the_end_of_the_transaction(
    client: httpx.Client, server: ThreadedServer
) -> None:
    producers = Producers(server, "one")
    producers.send("one", "a")
    waiting = Waiting(server, asked("t", 0), **COMMITTED)
    until(lambda: waiting_count(server) == 1)
    producers.send("one", "b")
    assert waiting_count(server) == 1
    producers.end("one", commit=False)
    (one,) = waiting.result().json()["partitions"]
    assert (one["records"], one["next_offset"], len(one["aborted_transactions"])) == ([], 3, 1)
    producers.send("one", "c")
    late = Waiting(server, asked("t", 0, 3), **COMMITTED)
    until(lambda: waiting_count(server) == 1)
    producers.end("one", commit=True)
    (one,) = late.result().json()["partitions"]
    assert [record["value"] for record in one["records"]] == ["c"]


def test_a_closed_committed_range_stays_what_it_is(client: httpx.Client, server: ThreadedServer) -> None:
    producers = Producers(server, "one")
    client.post(RECORDS, json={"records": [{"value": "plain"}]})
    producers.send("one", "a")
    closed = {"offset": 0, "end_offset": 2}
    assert "etag" not in client.get(RECORDS, params={**closed, **COMMITTED}).headers
    producers.end("one", commit=False)
    committed = client.get(RECORDS, params={**closed, **COMMITTED})
    uncommitted = client.get(RECORDS, params=closed)
    assert (values(committed), values(uncommitted)) == (["plain"], ["plain", "a"])
    assert committed.headers["etag"] != uncommitted.headers["etag"]
    assert committed.headers["cache-control"] == "max-age=60, immutable"


@pytest.mark.parametrize("seed", range(3))
def test_consumers_find_exactly_the_committed_records(client: httpx.Client, server: ThreadedServer, seed: int) -> None:
    source = random.Random(seed)
    names = ("one", "two", "three")
    producers = Producers(server, *names)
    open_values: dict[str, list[str]] = {name: [] for name in names}
    committed: set[str] = set()
    for number in range(60):
        name = source.choice(names)
        if source.random() < 0.3 and open_values[name]:
            commit = source.random() < 0.5
            producers.end(name, commit=commit)
            committed |= set(open_values[name]) if commit else set()
            open_values[name] = []
        elif source.random() < 0.2:
            client.post(RECORDS, json={"records": [{"value": f"plain {number}"}]})
            committed.add(f"plain {number}")
        else:
            sent = [f"{name} {number} {place}" for place in range(source.randint(1, 4))]
            producers.send(name, *sent)
            open_values[name] += sent
    for name in names:
        if open_values[name]:
            producers.end(name, commit=False)
    expected = [value for value in values(client.get(RECORDS, params={"offset": 0})) if value in committed]
    assert set(expected) == committed
    for max_bytes in (1, 500, 100_000):
        found: dict[str, list[str]] = {name: [] for name in ("json", "aiokafka", "kafka-python", "us")}
        offset = 0
        while offset < producers.log.snapshot.last_stable_offset:
            params = {"offset": offset, "max_bytes": max_bytes, **COMMITTED}
            found["json"] += values(client.get(RECORDS, params=params))
            raw = client.get(RECORDS, params=params, headers={"Accept": RAW})
            listed = aborted_of(raw.headers["aborted-transactions"])
            found["aiokafka"] += by_aiokafka(raw.content, list(listed))
            found["kafka-python"] += by_kafka_python(raw.content, list(listed))
            found["us"] += by_us(raw.content, listed)
            offset = int(raw.headers["next-offset"])
        assert found == dict.fromkeys(found, expected)
