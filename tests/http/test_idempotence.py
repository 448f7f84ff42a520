"""Requests sent again: with the sequences of a producer, or with an Idempotency-Key."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from log_model.clock import ManualClock
from rollway.records import Codec, Record, columns_from_records, encode_batch, parse_header, split_batches
from tests.support.servers import ServerProcess, ThreadedServer, http_client

RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}
NDJSON = {"Content-Type": "application/x-ndjson"}
SEQUENCES = 2**31
DAY_MS = 86_400_000

Post = Callable[..., httpx.Response]


def producer(sequence: int, *, epoch: int = 0, producer_id: int = 7) -> dict[str, str]:
    return {"Producer-Id": str(producer_id), "Producer-Epoch": str(epoch), "Base-Sequence": str(sequence)}


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def records(*values: str) -> dict[str, Any]:
    return {"records": [{"value": value} for value in values]}


def lines(*values: str) -> bytes:
    return b"".join(json.dumps({"value": value}).encode() + b"\n" for value in values)


def batch(*values: str, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    rows = [Record(place, 1_700_000_000_000, None, value.encode(), ()) for place, value in enumerate(values)]
    return encode_batch(columns_from_records(rows), codec=codec, **fields)


def stored(client: httpx.Client, path: str) -> list[str]:
    return [record["value"] for record in client.get(f"{path}/records", params={"offset": 0}).json()["records"]]


def acknowledged(answer: httpx.Response) -> list[tuple[int, int, bool]]:
    assert answer.status_code == 200, answer.text
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert all("error" not in line for line in told), told
    return [(line["base_offset"], line["last_offset"], line["duplicate"]) for line in told]


def refused(answer: httpx.Response, status: int, code: str, kafka_code: int = -1) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"], problem["kafka_code"]) == (status, code, kafka_code), problem
    assert problem["applied"] == "no"
    return problem


# Producers: headers


def test_ps_1_json_with_the_sequences_of_a_producer(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    first = client.post(f"{path}/records", json=records("a", "b"), headers=producer(0))
    again = client.post(f"{path}/records", json=records("a", "b"), headers=producer(0))
    assert first.json()["duplicate"] is False
    assert again.json() == {**first.json(), "duplicate": True}
    assert client.post(f"{path}/records", json=records("c"), headers=producer(2)).json()["base_offset"] == 2
    content = client.get(f"{path}/records?offset=0", headers={"Accept": RAW["Content-Type"]}).content
    heads = [parse_header(part.buffer) for part in split_batches(content)]
    assert [(head.producer_id, head.producer_epoch, head.base_sequence) for head in heads] == [(7, 0, 0), (7, 0, 2)]


def test_ps_5_a_gap_is_out_of_order(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    client.post(path, json=records("a"), headers=producer(0))
    for sequence in (2, 5, SEQUENCES - 1):
        refused(client.post(path, json=records("b"), headers=producer(sequence)), 409, "out_of_order_sequence", 45)
    refused(client.post(path, json=records("a", "b"), headers=producer(0)), 409, "out_of_order_sequence", 45)
    assert client.post(path, json=records("b"), headers=producer(1)).json()["base_offset"] == 1


def test_e19_epochs_fence(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    client.post(path, json=records("a"), headers=producer(0, epoch=3))
    refused(client.post(path, json=records("b"), headers=producer(1, epoch=2)), 409, "producer_fenced", 47)
    refused(client.post(path, json=records("b"), headers=producer(1, epoch=4)), 409, "out_of_order_sequence", 45)
    assert client.post(path, json=records("b"), headers=producer(0, epoch=4)).status_code == 200


def test_e19_sequences_wrap_inside_a_request_of_several_batches(client: httpx.Client, topic: str) -> None:
    """0 follows 2^31-1; the request is cut into batches by max.message.bytes, and known whole."""
    assert client.patch(topic, json={"config": {"max.message.bytes": 2000}}).status_code == 200
    path = f"{topic}/partitions/0/records"
    body = records(*(f"{number:0500}" for number in range(30)))
    first = client.post(path, json=body, headers=producer(SEQUENCES - 10)).json()
    assert (first["base_offset"], first["record_count"]) == (0, 30)
    assert client.post(path, json=body, headers=producer(SEQUENCES - 10)).json() == {**first, "duplicate": True}
    assert client.post(path, json=records("z"), headers=producer(20)).json()["base_offset"] == 30


def test_ps_1_log_append_time_is_that_of_the_first(client: httpx.Client, topic: str) -> None:
    assert client.patch(topic, json={"config": {"message.timestamp.type": "LogAppendTime"}}).status_code == 200
    path = f"{topic}/partitions/0/records"
    for headers in (producer(0), keyed("k")):
        first = client.post(path, json=records("a"), headers=headers).json()
        again = client.post(path, json=records("a"), headers=headers).json()
        assert first["log_append_time"] > 0
        assert again == {**first, "duplicate": True}


@pytest.mark.parametrize("left", [["Producer-Id"], ["Producer-Epoch", "Base-Sequence"]])
def test_all_three_headers_or_none(client: httpx.Client, topic: str, left: list[str]) -> None:
    headers = {name: value for name, value in producer(0).items() if name in left}
    problem = refused(
        client.post(f"{topic}/partitions/0/records", json=records("a"), headers=headers), 400, "incomplete_producer"
    )
    assert {fault["pointer"] for fault in problem["errors"]} == set(producer(0)) - set(left)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Producer-Id", "-1"),
        ("Producer-Id", str(2**62)),
        ("Producer-Id", "1.0"),
        ("Producer-Id", "+1"),
        ("Producer-Epoch", "32768"),
        ("Base-Sequence", str(SEQUENCES)),
        ("Base-Sequence", ""),
    ],
)
def test_numbers_are_whole_and_within_their_fields(client: httpx.Client, topic: str, name: str, value: str) -> None:
    headers = {**producer(0), name: value}
    problem = refused(
        client.post(f"{topic}/partitions/0/records", json=records("a"), headers=headers), 422, "invalid_request"
    )
    assert problem["errors"][0]["pointer"] == name


def test_sequences_need_one_partition(client: httpx.Client, topic: str) -> None:
    for content, media_type in ((b'{"records":[{"value":"a"}]}', {}), (lines("a"), NDJSON)):
        headers = {"Content-Type": "application/json", **media_type, **producer(0)}
        problem = refused(client.post(f"{topic}/records", content=content, headers=headers), 422, "invalid_request")
        assert "/partitions/{partition}/records" in problem["detail"]


def test_record_batches_carry_their_producer_themselves(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    own = batch("a", producer_id=9, producer_epoch=0, base_sequence=0)
    refused(client.post(path, content=own, headers={**RAW, **producer(0)}), 422, "invalid_request")
    refused(client.post(path, content=own, headers={**RAW, **keyed("k")}), 422, "invalid_request")
    reserved = batch("a", producer_id=2**62, producer_epoch=0, base_sequence=0)
    refused(client.post(path, content=reserved, headers=RAW), 400, "invalid_record", 87)
    for duplicate in (False, True):
        assert client.post(path, content=own, headers=RAW).json()["duplicate"] is duplicate


# Producers: streams


def test_a_stream_counts_on_and_may_be_resumed_anywhere(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    values = [f"v{number}" for number in range(12)]

    def send(start: int, end: int, **more: str) -> list[tuple[int, int, bool]]:
        headers = {**NDJSON, **producer(start), **more}
        return acknowledged(client.post(f"{path}/records", content=lines(*values[start:end]), headers=headers))

    assert send(0, 5) == [(0, 4, False)]
    client.post(f"{path}/records", json=records("of another"))
    assert send(5, 8) == [(6, 8, False)]
    assert send(0, 8) == [(0, 4, True), (6, 8, True)]
    assert send(2, 7) == [(2, 4, True), (6, 7, True)]
    assert send(3, 12) == [(3, 4, True), (6, 8, True), (9, 12, False)]
    assert stored(client, path) == [*values[:5], "of another", *values[5:]]


def test_a_stream_of_other_records_is_refused_where_it_differs(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    client.post(path, content=lines("a", "b", "c"), headers={**NDJSON, **producer(0)})
    answer = client.post(path, content=lines("a", "B", "c", "d"), headers={**NDJSON, **producer(0)})
    assert "with other records" in refused(answer, 409, "out_of_order_sequence", 45)["detail"]
    refused(client.post(path, content=lines("e"), headers={**NDJSON, **producer(4)}), 409, "out_of_order_sequence", 45)
    assert acknowledged(client.post(path, content=lines("d"), headers={**NDJSON, **producer(3)})) == [(3, 3, False)]


def test_a_long_stream_is_found_again_beyond_the_remembered_batches(client: httpx.Client, topic: str) -> None:
    """Only five batches are remembered; the rest is found in the log, by the block that the stream is cut into."""
    path = f"{topic}/partitions/0"
    for start in range(0, 60, 3):
        client.post(
            f"{path}/records", content=lines(*map(str, range(start, start + 3))), headers={**NDJSON, **producer(start)}
        )
        client.post(f"{path}/records", json=records("other"))
    again = acknowledged(
        client.post(f"{path}/records", content=lines(*map(str, range(66))), headers={**NDJSON, **producer(0)})
    )
    assert again[:20] == [(4 * number, 4 * number + 2, True) for number in range(20)]
    assert again[20:] == [(80, 85, False)]


def test_a_stream_wraps(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    start = SEQUENCES - 2
    assert acknowledged(client.post(path, content=lines(*"abcd"), headers={**NDJSON, **producer(start)})) == [
        (0, 3, False)
    ]
    assert acknowledged(client.post(path, content=lines(*"bcde"), headers={**NDJSON, **producer(start + 1)})) == [
        (1, 3, True),
        (4, 4, False),
    ]


# Keys: one partition


@pytest.fixture(params=["json", "ndjson", "raw", "zstd"])
def post(request: pytest.FixtureRequest, client: httpx.Client) -> Post:
    """A request to one partition in any form."""

    def send(path: str, *values: str, **headers: str) -> httpx.Response:
        match request.param:
            case "json":
                return client.post(path, json=records(*values), headers=headers)
            case "ndjson":
                return client.post(path, content=lines(*values), headers={**NDJSON, **headers})
            case "raw":
                half = len(values) // 2
                content = b"".join(batch(*part) for part in (values[:half], values[half:]) if part)
                return client.post(path, content=content, headers={**RAW, **headers})
        return client.post(path, content=batch(*values, codec=Codec.ZSTD), headers={**RAW, **headers})

    return send


def test_a_key_makes_a_retry_a_replay(client: httpx.Client, topic: str, post: Post) -> None:
    path = f"{topic}/partitions/0"
    client.post(f"{path}/records", json=records("before"))
    first = post(f"{path}/records", "a", "b", "c", **keyed("key-1"))
    assert (first.status_code, "Idempotent-Replayed" in first.headers) == (200, False), first.text
    client.post(f"{path}/records", json=records("between"))
    for form in ("key-1", '"key-1"'):
        again = post(f"{path}/records", "a", "b", "c", **keyed(form))
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.headers["content-type"] == first.headers["content-type"]
        told, before = again.json(), first.json()
        assert told.pop("durable_offset") >= before.pop("durable_offset")
        assert told == {**before, "duplicate": True}
    other = post(f"{path}/records", "a", "b", "c", **keyed("key-2"))
    assert other.json()["base_offset"] == 5
    assert stored(client, path) == ["before", "a", "b", "c", "between", "a", "b", "c"]


@pytest.mark.parametrize("other", [("a",), ("a", "b", "c"), ("a", "x"), ("x", "b")])
def test_a_key_names_one_request(client: httpx.Client, topic: str, post: Post, other: tuple[str, ...]) -> None:
    path = f"{topic}/partitions/0"
    post(f"{path}/records", "a", "b", **keyed("k"))
    refused(post(f"{path}/records", *other, **keyed("k")), 422, "idempotency_key_reused")
    assert client.get(path).json()["log_end_offset"] == 2


def test_everything_given_is_compared(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    record = {"key": "k", "value": "v", "headers": [{"name": "h", "value": "1"}], "timestamp": 1_700_000_000_000}
    assert client.post(path, json={"records": [record]}, headers=keyed("k")).status_code == 200
    without_time = {name: value for name, value in record.items() if name != "timestamp"}
    for same in (record, without_time):
        assert client.post(path, json={"records": [same]}, headers=keyed("k")).json()["duplicate"] is True
    for name, value in (("key", "j"), ("value", None), ("headers", []), ("timestamp", 1_700_000_000_001)):
        answer = client.post(path, json={"records": [{**record, name: value}]}, headers=keyed("k"))
        refused(answer, 422, "idempotency_key_reused")


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, '"open', '"a"b"', "caf\u00e9", '""'])
def test_a_key_is_visible_characters(client: httpx.Client, topic: str, key: str) -> None:
    headers = {b"Idempotency-Key": key.encode("latin-1")}
    answer = client.post(f"{topic}/partitions/0/records", json=records("a"), headers=headers)
    assert refused(answer, 422, "invalid_request")["errors"][0]["pointer"] == "Idempotency-Key"


def test_a_key_once_and_alone(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    for headers in ([*keyed("a").items(), *keyed("a").items()], [*keyed("a").items(), *producer(0).items()]):
        refused(client.post(path, json=records("a"), headers=headers), 422, "invalid_request")
    assert client.post(path, json=records("a"), headers=keyed("x" * 255)).status_code == 200


def test_a_key_and_an_expected_offset(client: httpx.Client, topic: str) -> None:
    """The retry finds the log longer than it expects, and is a replay even so."""
    path = f"{topic}/partitions/0/records?expected_offset=0"
    for duplicate in (False, True):
        assert client.post(path, json=records("a"), headers=keyed("k")).json()["duplicate"] is duplicate
    refused(client.post(path, json=records("a"), headers=keyed("j")), 412, "expected_offset_mismatch")


def test_a_request_of_many_batches_is_known_by_its_key(client: httpx.Client, topic: str) -> None:
    """Also when the batches are cut otherwise the second time."""
    path = f"{topic}/partitions/0/records"
    body = records(*(f"{number:0500}" for number in range(40)))
    client.patch(topic, json={"config": {"max.message.bytes": 2000}})
    first = client.post(path, json=body, headers=keyed("k")).json()
    for size in (1_000_000, 1000):
        client.patch(topic, json={"config": {"max.message.bytes": size}})
        assert client.post(path, json=body, headers=keyed("k")).json() == {**first, "duplicate": True}


def test_rt_10_deleted_records_are_still_a_replay(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    first = client.post(f"{path}/records", json=records("a", "b"), headers=keyed("k")).json()
    assert client.post(f"{path}/delete-records", json={"offset": 2}).status_code == 200
    again = client.post(f"{path}/records", json=records("a", "b"), headers=keyed("k")).json()
    assert (again["base_offset"], again["last_offset"], again["duplicate"]) == (0, 1, True)
    assert again["log_start_offset"] == 2 > first["log_start_offset"]


def test_many_at_once_with_one_key(client: httpx.Client, topic: str, server: ThreadedServer) -> None:
    path = f"{topic}/partitions/0/records"
    answers: list[dict[str, Any]] = []

    def send() -> None:
        with http_client(server.url) as own:
            answers.append(own.post(path, json=records("a", "b"), headers=keyed("k")).json())

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer["duplicate"] for answer in answers) == [False] + [True] * 7
    assert {(answer["base_offset"], answer["last_offset"]) for answer in answers} == {(0, 1)}


# Keys: a topic


def test_a_key_spreads_the_same_way_again(client: httpx.Client, topic: str) -> None:
    body = {"records": [{"value": "a"}, {"key": "AA", "value": "b"}, {"value": "c", "partition": 0}, {"value": "d"}]}
    first = client.post(f"{topic}/records", json=body, headers=keyed("k"))
    again = client.post(f"{topic}/records", json=body, headers=keyed("k"))
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    told = [(result["partition"], result["base_offset"]) for result in again.json()["results"]]
    assert told == [(result["partition"], result["base_offset"]) for result in first.json()["results"]]
    assert sum(client.get(f"{topic}/partitions/{number}").json()["log_end_offset"] for number in (0, 1)) == 4


def test_a_retry_completes_what_was_done_in_part(client: httpx.Client, topic: str, server: ThreadedServer) -> None:
    body = b'{"value":"a","partition":0}\n{"value":"b","partition":1}\n'
    log: Any = server.result_of(server.service.parts.engine.partition(topic.rsplit("/", 1)[1], 1))
    log.offline_reason = "by this test"
    try:
        partly = client.post(f"{topic}/records", content=body, headers={**NDJSON, **keyed("k")})
    finally:
        log.offline_reason = None
    assert partly.status_code == 207
    assert "Idempotent-Replayed" not in partly.headers
    done, failed = map(json.loads, partly.text.splitlines())
    assert (done["base_offset"], failed["partition"], failed["error"]["code"]) == (0, 1, "partition_offline")
    again = client.post(f"{topic}/records", content=body, headers={**NDJSON, **keyed("k")})
    assert acknowledged(again) == [(0, 0, True), (0, 0, False)]
    assert "Idempotent-Replayed" not in again.headers
    assert client.post(f"{topic}/records", content=body, headers={**NDJSON, **keyed("k")}).headers[
        "Idempotent-Replayed"
    ]


def test_a_key_with_another_spread_writes_nothing(client: httpx.Client, topic: str) -> None:
    def body(*partitions: int) -> dict[str, Any]:
        return {"records": [{"value": "a", "partition": number} for number in partitions]}

    assert client.post(f"{topic}/records", json=body(0, 0), headers=keyed("k")).status_code == 200
    for other in ((1, 1), (0, 1), (0, 0, 1)):
        refused(client.post(f"{topic}/records", json=body(*other), headers=keyed("k")), 422, "idempotency_key_reused")
    assert client.get(f"{topic}/partitions/1").json()["log_end_offset"] == 0


def test_a_key_belongs_to_a_topic(client: httpx.Client, topic: str) -> None:
    other = f"{topic}-other"
    client.put(other, json={"partitions": 1})
    for path in (topic, other):
        answer = client.post(f"{path}/partitions/0/records", json=records("a"), headers=keyed("k"))
        assert answer.json()["duplicate"] is False


def test_a_request_without_records_leaves_its_key_free(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    assert client.post(path, json=records(), headers=keyed("k")).json()["record_count"] == 0
    assert client.post(path, json=records("a"), headers=keyed("k")).json()["duplicate"] is False


# Time and restarts


def test_ps_6_expiry(tmp_path: Path) -> None:
    """A key and a producer are forgotten when they were idle for producer_id_expiration_ms."""
    clock = ManualClock(1_700_000_000_000)
    running = ThreadedServer(tmp_path / "data", clock=clock, producer_id_expiration_ms=1000)
    with running as server, http_client(server.url) as client:
        client.put("/v1/topics/t", json={"partitions": 1})
        path = "/v1/topics/t/partitions/0/records"
        service = server.service

        def expire() -> None:
            assert service.loop is not None
            assert service.scheduler is not None
            asyncio.run_coroutine_threadsafe(service.scheduler.run("expire_producers"), service.loop).result(30)

        def duplicates() -> list[bool]:
            return [
                client.post(path, json=records("a"), headers=headers).json()["duplicate"]
                for headers in (keyed("k"), producer(0))
            ]

        assert duplicates() == [False, False]
        clock.advance(999)
        expire()
        assert duplicates() == [True, True]
        clock.advance(1)
        expire()
        refused_gap = client.post(path, json=records("a"), headers=producer(41))
        assert refused_gap.json()["duplicate"] is False
        assert client.post(path, json=records("a"), headers=keyed("k")).json()["duplicate"] is False


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Callable[[], httpx.Client]]:
    """A client of a service that is killed and started again at every call."""
    running: list[tuple[ServerProcess, httpx.Client]] = []

    def restart() -> httpx.Client:
        for server, client in running:
            client.close()
            server.kill()
        running.clear()
        server = ServerProcess(tmp_path / "data").start()
        running.append((server, httpx.Client(base_url=server.url, timeout=30)))
        return running[0][1]

    yield restart
    for server, client in running:
        client.close()
        server.stop()


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_ps_1_kill_nine_forgets_nothing_acknowledged(killed: Callable[[], httpx.Client]) -> None:
    client = killed()
    config = {"max.message.bytes": 2000, "segment.bytes": 100_000}
    assert client.put("/v1/topics/t", json={"partitions": 2, "config": config}).status_code == 201
    path = "/v1/topics/t/partitions/0/records"
    body = records(*(f"{number:0500}" for number in range(30)))
    spread = {"records": [{"key": str(number), "value": "v"} for number in range(20)]}

    def send() -> list[dict[str, Any]]:
        return [
            client.post(path, json=body, headers=keyed("json")).json(),
            client.post(path, content=batch("r"), headers={**RAW, **keyed("raw")}).json(),
            client.post(path, json=body, headers=producer(0)).json(),
            *client.post("/v1/topics/t/records", json=spread, headers=keyed("topic")).json()["results"],
        ]

    first = send()
    streamed = lines(*(f"{number:0300}" for number in range(50)))
    stream = {**NDJSON, **producer(0, producer_id=8)}
    began = acknowledged(client.post(path, content=streamed, headers=stream))
    for _ in range(2):
        client = killed()
        for before, after in zip(first, send(), strict=True):
            assert after["duplicate"] is True, after
            assert (after["base_offset"], after["last_offset"]) == (before["base_offset"], before["last_offset"])
        again = acknowledged(client.post(path, content=streamed, headers=stream))
        assert [place[:2] for place in again] == [place[:2] for place in began]
        assert all(duplicate for _, _, duplicate in again)
