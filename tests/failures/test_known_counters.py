"""Counters of records: what was appended, and what bodies of answers held."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.engine_local.partitions.appends import LocalAppends
from rollway.records import Record, columns_from_records, encode_batch
from tests.support.servers import ThreadedServer

RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}
RECORDS = {"records": [{"value": "a"}, {"value": "b"}]}


def produced(server: ThreadedServer) -> tuple[float, float]:
    metrics = server.service.metrics
    return metrics.produced_records.value, metrics.produced_bytes.value


def fetched(server: ThreadedServer, form: str) -> float:
    return server.service.metrics.fetched_bytes.values.get(form, 0)


def end_of(client: httpx.Client, partition: str) -> int:
    return int(client.get(partition).json()["log_end_offset"])


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline


def requests_of(client: httpx.Client) -> list[tuple[str, dict[str, Any]]]:
    """Requests that are each appended once, however often they are sent: by every way that has duplicates."""
    producer = client.post("/v1/producers", json={}).json()["producer_id"]
    by_headers = {"Producer-Id": str(producer), "Producer-Epoch": "0", "Base-Sequence": "0"}
    other = client.post("/v1/producers", json={}).json()["producer_id"]
    columns = columns_from_records([Record(place, 1_700_000_000_000, None, b"a") for place in range(2)])
    raw = encode_batch(columns, producer_id=other, producer_epoch=0, base_sequence=0)
    return [
        ("", {"json": RECORDS, "headers": by_headers}),
        ("", {"content": raw, "headers": RAW}),
        ("", {"json": RECORDS, "headers": {"Idempotency-Key": f"key-{producer}"}}),
    ]


def test_duplicates_are_not_appended_and_not_counted(server: ThreadedServer, client: httpx.Client, topic: str) -> None:
    partition = f"{topic}/partitions/0"
    for query, content in requests_of(client):
        before, (records, size_bytes) = end_of(client, partition), produced(server)
        answers = [client.post(f"{partition}/records{query}", **content) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200] * 4
        assert end_of(client, partition) - before == 2
        after = produced(server)
        assert after[0] - records == 2
        assert after[1] - size_bytes < 200


def test_the_check_finds_duplicates_that_are_counted(
    server: ThreadedServer, client: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: as it was."""

    def count(self: LocalAppends, result: Any, size_bytes: int) -> None:
        self.metrics.produced_records.inc(result.record_count)
        self.metrics.produced_bytes.inc(size_bytes)

    monkeypatch.setattr(LocalAppends, "count_produced", count)
    with pytest.raises(AssertionError):
        test_duplicates_are_not_appended_and_not_counted(server, client, topic)


def test_records_without_an_acknowledgement_are_counted(
    server: ThreadedServer, client: httpx.Client, topic: str
) -> None:
    partition = f"{topic}/partitions/0"
    before = produced(server)[0]
    for _ in range(4):
        answer = client.post(f"{partition}/records?acks=0", json=RECORDS)
        assert (answer.status_code, answer.json()["base_offset"], answer.json()["record_count"]) == (200, -1, 2)
    await_that(lambda: end_of(client, partition) == 8)
    await_that(lambda: produced(server)[0] - before == 8)


def test_fetched_bytes_are_those_of_bodies(server: ThreadedServer, client: httpx.Client, topic: str) -> None:
    partition = f"{topic}/partitions/0"
    assert client.post(f"{partition}/records", json={"records": [{"value": "x" * 500}]}).status_code == 200
    name = topic.rsplit("/", 1)[1]
    frames = {"Accept": "application/vnd.rollway.multi-fetch"}
    many = {"partitions": [{"topic": name, "partition": 0, "fetch_offset": 0}]}
    asked: list[tuple[str, str, str, dict[str, Any]]] = [
        ("json", "GET", f"{partition}/records?offset=0", {}),
        ("ndjson", "GET", f"{partition}/records?offset=0", {"headers": {"Accept": "application/x-ndjson"}}),
        ("raw", "GET", f"{partition}/records?offset=0", {"headers": {"Accept": RAW["Content-Type"]}}),
        ("json", "GET", f"{partition}/records/0", {}),
        ("value", "GET", f"{partition}/records/0/value", {}),
        ("value", "GET", f"{partition}/records/0/value", {"headers": {"Range": "bytes=0-9"}}),
        ("frames", "POST", "/v1/fetch", {"json": many, "headers": frames}),
        ("json", "POST", "/v1/fetch", {"json": many}),
    ]
    for form, method, path, more in asked:
        for asked_method in ("HEAD", method) if method == "GET" else (method,):
            headers = {"Accept-Encoding": "identity", **more.get("headers", {})}
            for _ in range(3):
                before = fetched(server, form)
                answer = client.request(asked_method, path, **{**more, "headers": headers})
                assert answer.status_code in (200, 206), (form, answer.text)
                grown = fetched(server, form) - before
                assert grown == len(answer.content), (form, asked_method, path)
        assert len(answer.content) >= 10
