"""Producing to many topic-partitions in one request: one outcome for each part, in the order of the request."""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Sequence
from itertools import count
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from app.problems.problem import Problem
from app.produce.produce_body import parse_produce_request
from schemas.produce import PartsToProduce
from storage.disk.file_system import LocalFile
from tests.support.servers import ThreadedServer
from tests.support.writers import record_batch

_numbers = count()


def encoded(*batches: bytes) -> str:
    return base64.b64encode(b"".join(batches)).decode()


def part(topic: str, partition: int, *values: str, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "records": [{"value": value} for value in values], **more}


def produce(client: httpx.Client, *parts: dict[str, Any], query: str = "", **more: Any) -> httpx.Response:
    return client.post(f"/v1/produce?{query}", json={"partitions": list(parts), **more})


def values(client: httpx.Client, topic: str, partition: int) -> list[Any]:
    answer = client.get(f"/v1/topics/{topic}/partitions/{partition}/records", params={"offset": 0})
    return [record["value"] for record in answer.json()["records"]]


@pytest.fixture
def names(client: httpx.Client) -> tuple[str, str]:
    """Two topics of three partitions."""
    made = (f"left-{next(_numbers)}", f"right-{next(_numbers)}")
    for name in made:
        assert client.put(f"/v1/topics/{name}", json={"partitions": 3}).status_code == 201
    return made


def test_every_part_has_a_result_in_the_order_of_the_request(client: httpx.Client, names: tuple[str, str]) -> None:
    left, right = names
    answer = produce(
        client,
        part(right, 2, "a", "b"),
        part(left, 0, "c"),
        {"topic": left, "partition": 1, "record_batches": encoded(record_batch(b"d"), record_batch(b"e", b"f"))},
        part(right, 2, "g"),
        part(left, 2),
    )
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert [(result["topic"], result["partition"], result["base_offset"]) for result in results] == [
        (right, 2, 0),
        (left, 0, 0),
        (left, 1, 0),
        (right, 2, 2),
        (left, 2, -1),
    ]
    assert answer.json()["throttle_time_ms"] == 0
    assert values(client, right, 2) == ["a", "b", "g"]
    assert values(client, left, 1) == ["d", "e", "f"]
    assert client.get(f"/v1/topics/{left}/partitions/2").json()["log_end_offset"] == 0


def test_v_26_nothing_to_append_is_answered_at_once(client: httpx.Client, names: tuple[str, str]) -> None:
    """Case V-26, spec A2: without an append the answer still comes."""
    assert produce(client).json() == {"results": [], "throttle_time_ms": 0}
    (result,) = produce(client, part(names[0], 0)).json()["results"]
    assert (result["base_offset"], result["record_count"]) == (-1, 0)


def test_a_7_a_part_that_fails_stops_no_other(client: httpx.Client, names: tuple[str, str]) -> None:
    """Spec A2, A7: base_offset -1; log_start_offset -1 for 2, 3, 17 and the real one for 87; record_errors."""
    left, right = names
    client.put(f"/v1/topics/{right}-compacted", json={"config": {"cleanup.policy": "compact"}})
    produce(client, part(right, 0, *"abc"))
    client.post(f"/v1/topics/{right}/partitions/0/delete-records", json={"offset": 2})
    torn = bytearray(record_batch(b"x"))
    torn[-1] ^= 1
    answer = produce(
        client,
        part(left, 0, "kept"),
        part(left, 7, "no such partition"),
        part("nowhere", 0, "no such topic"),
        part("no/topic", 0, "no such name"),
        {"topic": right, "partition": 0, "record_batches": encoded(torn)},
        {"topic": f"{right}-compacted", "partition": 0, "records": [{"key": "k", "value": "v"}, {"value": "no key"}]},
        part(right, 1, "kept too"),
    )
    assert answer.status_code == 207, answer.text
    results = answer.json()["results"]
    codes = [result["error"]["kafka_code"] if "error" in result else 0 for result in results]
    assert codes == [0, 3, 3, 17, 2, 87, 0]
    failures = [result for result in results if "error" in result]
    assert {failure["base_offset"] for failure in failures} == {-1}
    assert [failure["log_start_offset"] for failure in failures] == [-1, -1, -1, -1, 0]
    (compacted,) = [failure for failure in failures if failure["error"]["kafka_code"] == 87]
    assert [error["batch_index"] for error in compacted["record_errors"]] == [1]
    assert [fault["pointer"] for fault in compacted["error"]["errors"]] == ["/partitions/5/records/1"]
    assert values(client, left, 0) == ["kept"]
    assert values(client, right, 1) == ["kept too"]
    assert client.get(f"/v1/topics/{right}-compacted/partitions/0").json()["log_end_offset"] == 0


def test_when_all_parts_fail_the_first_error_is_the_answer(client: httpx.Client, names: tuple[str, str]) -> None:
    answer = produce(client, part(names[0], 9, "x"), part("no/topic", 0, "x"))
    assert (answer.status_code, answer.json()["kafka_code"], len(answer.json()["results"])) == (404, 3, 2)


@pytest.mark.needs_local("it breaks, fills or holds up a disk")
def test_a_1_a_broken_disk_of_one_partition_is_56_there_and_nowhere_else(
    client: httpx.Client, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spec A1: the others are appended, and the service lives on."""
    broken, healthy = names
    real = LocalFile.write

    def write(file: LocalFile, position: int, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        if f"{broken}-1" in str(file.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(file, position, parts)

    monkeypatch.setattr(LocalFile, "write", write)
    for _ in range(2):
        answer = produce(client, part(broken, 1, "lost"), part(broken, 0, "kept"), part(healthy, 1, "kept"))
        assert answer.status_code == 207
        first, *others = answer.json()["results"]
        assert (first["error"]["kafka_code"], first["base_offset"], first["log_start_offset"]) == (56, -1, -1)
        assert all("error" not in other for other in others)
    assert values(client, broken, 0) == ["kept", "kept"]
    assert client.get("/readyz").status_code == 200


def test_a_4_other_acks_are_21_and_nothing_is_written(client: httpx.Client, names: tuple[str, str]) -> None:
    answer = produce(client, part(names[0], 0, "x"), query="acks=2")
    assert (answer.status_code, answer.json()["kafka_code"]) == (422, 21)
    assert client.get(f"/v1/topics/{names[0]}/partitions/0").json()["log_end_offset"] == 0


def test_a_4_acks_0_closes_the_connection_when_a_part_fails(client: httpx.Client, names: tuple[str, str]) -> None:
    left, _ = names
    fine = produce(client, part(left, 0, "x"), query="acks=0")
    assert (fine.status_code, fine.headers.get("connection")) == (200, None)
    (taken,) = fine.json()["results"]
    assert [taken[name] for name in ("topic", "base_offset", "last_offset", "record_count")] == [left, -1, -1, 1]
    mixed = produce(client, part(left, 0, "y"), part(left, 9, "dropped"), query="acks=0")
    assert (mixed.status_code, mixed.headers["connection"]) == (207, "close")
    taken, failed = mixed.json()["results"]
    assert (taken["base_offset"], taken["record_count"], failed["error"]["kafka_code"]) == (-1, 1, 3)
    spread = {"records": [{"value": "z", "partition": 0}, {"value": "dropped", "partition": 9}]}
    answer = client.post(f"/v1/topics/{left}/records?acks=0", json=spread)
    assert (answer.status_code, answer.headers["connection"]) == (207, "close")
    taken, failed = answer.json()["results"]
    assert (taken["base_offset"], taken["record_count"], failed["error"]["kafka_code"]) == (-1, 1, 3)
    assert produce(client, part(left, 9, "dropped"), query="acks=0").status_code == 404
    produce(client, part(left, 0, "last"))
    assert values(client, left, 0) == ["x", "y", "z", "last"]


def test_internal_topics_are_17(client: httpx.Client, server: ThreadedServer, names: tuple[str, str]) -> None:
    """Spec A7."""
    client.post("/v1/producers", json={"transactional_id": f"id-{next(_numbers)}"})
    answer = produce(client, part("__transaction_state", 0, "x"), part(names[0], 0, "kept"))
    first, second = answer.json()["results"]
    assert (first["error"]["kafka_code"], first["log_start_offset"], second["base_offset"]) == (17, -1, 0)


def test_a_producer_may_send_its_records_again(client: httpx.Client, names: tuple[str, str]) -> None:
    """Spec E19, with the sequences in the body."""
    left, right = names
    producer = client.post("/v1/producers").json()
    parts = [part(left, 0, "a", "b", base_sequence=0), part(right, 0, "c", base_sequence=0)]
    for duplicate in (False, True):
        answer = produce(client, *parts, **producer)
        assert answer.status_code == 200, answer.text
        results = answer.json()["results"]
        assert [(result["base_offset"], result["duplicate"]) for result in results] == [(0, duplicate)] * 2
    gap = produce(client, part(left, 0, "z", base_sequence=9), part(right, 0, "d", base_sequence=1), **producer)
    first, second = gap.json()["results"]
    assert (first["error"]["kafka_code"], first["log_start_offset"], second["base_offset"]) == (45, 0, 1)
    assert values(client, left, 0) == ["a", "b"]


def test_a_transaction_takes_records_of_many_partitions(client: httpx.Client, names: tuple[str, str]) -> None:
    left, right = names
    name = f"loader-{next(_numbers)}"
    producer = client.post("/v1/producers", json={"transactional_id": name}).json()
    identity = {key: producer[key] for key in ("producer_id", "producer_epoch")}
    parts = [part(left, 0, "a", base_sequence=0), part(right, 1, "b", base_sequence=0)]
    answer = produce(client, *parts, transactional_id=name, **identity)
    assert answer.status_code == 200, answer.text
    assert client.get(f"/v1/topics/{left}/partitions/0").json()["last_stable_offset"] == 0
    assert client.post(f"/v1/transactions/{name}/commit", json=identity).is_success
    for topic, partition in ((left, 0), (right, 1)):
        described = client.get(f"/v1/topics/{topic}/partitions/{partition}").json()
        assert described["last_stable_offset"] == described["log_end_offset"] == 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"topic": "t", "partition": 0}, "/partitions/0"),
    ({"topic": "t", "partition": 0, "records": [], "record_batches": ""}, "/partitions/0"),
    ({"topic": "t", "partition": -1, "records": []}, "/partitions/0/partition"),
    ({"topic": 7, "partition": 0, "records": []}, "/partitions/0/topic"),
    ({"topic": "t", "partition": 0, "record_batches": "?"}, "/partitions/0/record_batches"),
    ({"topic": "t", "partition": 0, "records": [{}]}, "/partitions/0/records/0/value"),
    ({"topic": "t", "partition": 0, "records": [{"value_base64": "?"}]}, "/partitions/0/records/0/value_base64"),
    ({"topic": "t", "partition": 0, "records": [], "more": 1}, "/partitions/0/more"),
    ({"partition": 0, "records": []}, "/partitions/0/topic"),
]


@pytest.mark.parametrize(("wrong", "pointer"), REFUSED)
def test_what_is_no_request_is_refused_whole_with_a_pointer(
    client: httpx.Client, names: tuple[str, str], wrong: dict[str, Any], pointer: str
) -> None:
    """The document of the reference refuses the same."""
    answer = client.post("/v1/produce", json={"partitions": [wrong, part(names[0], 0, "x")]})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)
    assert client.get(f"/v1/topics/{names[0]}/partitions/0").json()["log_end_offset"] == 0
    with pytest.raises(ValidationError):
        PartsToProduce.model_validate({"partitions": [wrong]})


def test_producers_and_sequences_belong_together(client: httpx.Client, names: tuple[str, str]) -> None:
    topic = names[0]
    for pointer, parts, more in (
        ("/producer_epoch", [part(topic, 0, "x", base_sequence=0)], {"producer_id": 1}),
        ("/partitions/0/base_sequence", [part(topic, 0, "x")], {"producer_id": 1, "producer_epoch": 0}),
        ("/partitions/0/base_sequence", [part(topic, 0, "x", base_sequence=0)], {}),
        ("/producer_id", [part(topic, 0, "x", base_sequence=0)], {"transactional_id": "t"}),
    ):
        answer = produce(client, *parts, **more)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    refused = client.post("/v1/produce", json={"partitions": []}, headers={"Producer-Id": "1"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "Producer-Id")
    twice = b'{"partitions":[],"partitions":[]}'
    repeated = client.post("/v1/produce", content=twice, headers={"Content-Type": "application/json"})
    assert repeated.status_code == 422


def test_the_number_of_parts_has_a_limit() -> None:
    """Invariant 9."""
    body = b'{"partitions":[%s]}' % b",".join([b'{"topic":"t","partition":0,"records":[]}'] * 3)
    assert len(parse_produce_request(body, "utf8", part_count_max=3, now_ms=0).parts) == 3
    with pytest.raises(Problem, match="at most 2 partitions"):
        parse_produce_request(body, "utf8", part_count_max=2, now_ms=0)


def test_any_json_may_be_a_value(client: httpx.Client, names: tuple[str, str]) -> None:
    body = {"partitions": [{"topic": names[0], "partition": 0, "records": [{"key": 7, "value": {"a": [1, None]}}]}]}
    assert client.post("/v1/produce?encoding=json", json=body).status_code == 200
    PartsToProduce.model_validate(body)
    assert values(client, names[0], 0) == ['{"a":[1,null]}']
