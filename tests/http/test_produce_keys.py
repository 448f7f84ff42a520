"""Requests to many partitions under an Idempotency-Key: each part once, with the first answer's offsets."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.retry_load import batch
from tests.support.servers import ServerProcess, http_client
from tests.support.writers import record_batch


def part(topic: str, partition: int, *values: str, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "records": [{"value": value} for value in values], **more}


def raw(topic: str, partition: int, batches: bytes) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "record_batches": base64.b64encode(batches).decode()}


def produce(
    client: httpx.Client, *parts: dict[str, Any], key: str = "k", query: str = "", **more: Any
) -> httpx.Response:
    headers = {"Idempotency-Key": key}
    return client.post(f"/v1/produce?{query}", json={"partitions": list(parts), **more}, headers=headers)


def places(answer: httpx.Response, *, is_replay: bool) -> list[tuple[str, int, int]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers.get("Idempotent-Replayed") == ("true" if is_replay else None)
    results = answer.json()["results"]
    assert all(result["duplicate"] is is_replay for result in results if result["record_count"])
    return [(result["topic"], result["partition"], result["base_offset"]) for result in results]


def values(client: httpx.Client, topic: str, partition: int) -> list[Any]:
    answer = client.get(f"/v1/topics/{topic}/partitions/{partition}/records", params={"offset": 0})
    return [record["value"] for record in answer.json()["records"]]


def refused(answer: httpx.Response, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text


@pytest.fixture
def topic(client: httpx.Client, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    assert client.put(f"/v1/topics/{name}", json={"partitions": 3}).status_code == 201
    return str(name)


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_a_retry_is_answered_with_the_original_offsets_also_after_kill_9(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data").start()
    parts = [
        part("t", 0, "a", "b"),
        part("t", 0, "a", "b"),
        raw("t", 1, record_batch(b"c") + record_batch(b"d", b"e")),
        part("u", 0, "f"),
        part("t", 2),
    ]
    with http_client(server.url) as client:
        for name in ("t", "u"):
            assert client.put(f"/v1/topics/{name}", json={"partitions": 3}).status_code == 201
        first = places(produce(client, *parts), is_replay=False)
        assert first == [("t", 0, 0), ("t", 0, 2), ("t", 1, 0), ("u", 0, 0), ("t", 2, -1)]
        assert places(produce(client, *parts), is_replay=True) == first
    server.kill()
    server = ServerProcess(tmp_path / "data").start()
    with http_client(server.url) as client:
        assert places(produce(client, *parts), is_replay=True) == first
        refused(produce(client, *parts[:-2]), "idempotency_key_reused")
        assert [values(client, "t", number) for number in range(3)] == [["a", "b", "a", "b"], ["c", "d", "e"], []]
        assert values(client, "u", 0) == ["f"]
    assert server.stop() == 0


def test_a_retry_completes_what_was_done_in_part(client: httpx.Client, topic: str) -> None:
    later = f"{topic}-later"
    parts = [part(topic, 0, "a"), part(later, 0, "b")]
    partly = produce(client, *parts)
    assert partly.status_code == 207
    assert "Idempotent-Replayed" not in partly.headers
    assert client.put(f"/v1/topics/{later}", json={"partitions": 1}).status_code == 201
    completed = produce(client, *parts)
    assert completed.status_code == 200
    assert "Idempotent-Replayed" not in completed.headers
    assert [result["duplicate"] for result in completed.json()["results"]] == [True, False]
    places(produce(client, *parts), is_replay=True)
    assert (values(client, topic, 0), values(client, later, 0)) == (["a"], ["b"])


def test_another_request_under_the_key_writes_nothing(client: httpx.Client, topic: str) -> None:
    places(produce(client, part(topic, 0, "a"), part(topic, 1, "b")), is_replay=False)
    for others in (
        [part(topic, 0, "x"), part(topic, 1, "b")],
        [part(topic, 0, "a"), part(topic, 1, "b"), part(topic, 2, "c")],
        [part(topic, 1, "b"), part(topic, 0, "a")],
        [part(topic, 2, "a")],
        [raw(topic, 2, record_batch(b"a"))],
    ):
        refused(produce(client, *others), "idempotency_key_reused")
    places(produce(client, part(topic, 2, "a"), key="another"), is_replay=False)
    assert [values(client, topic, number) for number in range(3)] == [["a"], ["b"], ["a"]]


def test_a_key_is_refused_where_the_request_has_a_producer(client: httpx.Client, topic: str) -> None:
    plain = part(topic, 0, "a")
    numbered = part(topic, 0, "a", base_sequence=0)
    stamped = raw(topic, 0, batch(["a"], producer_id=7, producer_epoch=0, base_sequence=0))
    for answer in (
        produce(client, numbered, producer_id=7, producer_epoch=0),
        produce(client, numbered, producer_id=7, producer_epoch=0, transactional_id="t"),
        produce(client, stamped),
        produce(client, plain, query="atomic=true"),
        produce(client, plain, key=""),
    ):
        refused(answer, "invalid_request")
        assert values(client, topic, 0) == []
    twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    refused(client.post("/v1/produce", json={"partitions": [plain]}, headers=twice), "invalid_request")
    assert values(client, topic, 0) == []
