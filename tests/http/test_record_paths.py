"""Record batches and lines on paths of their own: one form each way, and the same log behind them."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest

from rollway.records import Record, columns_from_records, encode_batch
from tests.support.servers import ThreadedServer
from tests.support.writers import record_batch

RAW = "application/vnd.kafka.record-batch.v2"
OCTETS = "application/octet-stream"
NDJSON = "application/x-ndjson"
BATCH = record_batch(b"a", b"b")


@pytest.fixture
def batches(topic: str) -> str:
    return f"{topic}/partitions/0/record-batches"


@pytest.fixture
def lines(topic: str) -> str:
    return f"{topic}/partitions/0/record-lines"


def put(client: httpx.Client, path: str, content: bytes = BATCH, **headers: str) -> httpx.Response:
    return client.post(path, content=content, headers={"Content-Type": OCTETS} | headers)


def as_stored(content: bytes) -> bytes:
    """Without base offset and leader epoch, which the log gives."""
    return content[8:12] + content[16:]


# Batches


@pytest.mark.parametrize("media_type", [OCTETS, RAW, None])
def test_batches_come_back_byte_for_byte(client: httpx.Client, batches: str, media_type: str | None) -> None:
    headers = {} if media_type is None else {"Content-Type": media_type}
    answer = client.post(batches, content=BATCH, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert (answer.json()["base_offset"], answer.json()["last_offset"]) == (0, 1)
    fetched = client.get(batches, params={"offset": 0})
    assert as_stored(fetched.content) == as_stored(BATCH)
    assert (fetched.headers["content-type"], fetched.headers["next-offset"]) == (OCTETS, "2")
    negotiated = client.get(batches.replace("record-batches", "records"), params={"offset": 0}, headers={"Accept": RAW})
    assert negotiated.content == fetched.content


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("*/*", OCTETS),
        (OCTETS, OCTETS),
        (RAW, RAW),
        (f"{RAW}, */*;q=0.1", RAW),
        ("application/problem+json", OCTETS),
        (f"{OCTETS}, application/problem+json", OCTETS),
        ("application/*", OCTETS),
        ("application/json", None),
    ],
)
def test_accept_chooses_the_name(client: httpx.Client, batches: str, accept: str, answered: str | None) -> None:
    put(client, batches)
    for _ in range(2):
        answer = client.get(batches, params={"offset": 0}, headers={"Accept": accept})
        if answered is None:
            assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")
        else:
            assert (answer.status_code, answer.headers["content-type"]) == (200, answered)
            assert "Accept" in answer.headers["vary"]


def test_head_says_how_long_it_is(client: httpx.Client, batches: str, lines: str) -> None:
    put(client, batches)
    for path in (batches, lines):
        got, head = client.get(path, params={"offset": 0}), client.head(path, params={"offset": 0})
        assert (head.status_code, head.content) == (200, b"")
        for name in ("content-length", "content-type", "next-offset", "high-watermark"):
            assert head.headers[name] == got.headers[name]


def test_a_closed_range_may_be_kept(client: httpx.Client, batches: str) -> None:
    put(client, batches)
    params = {"offset": 0, "end_offset": 2}
    tag = client.get(batches, params=params).headers["etag"]
    assert tag.startswith('"')
    assert client.get(batches, params=params, headers={"If-None-Match": tag}).status_code == 304


def test_whole_batches_hold_the_records_that_are_asked_for(client: httpx.Client, batches: str) -> None:
    for _ in range(3):
        put(client, batches)
    answer = client.get(batches, params={"offset": 1, "max_records": 2})
    assert (len(answer.content), answer.headers["next-offset"]) == (2 * len(BATCH), "4")


@pytest.mark.parametrize("query", ["encoding=utf8", "magic=1", "hard_limit=true"])
def test_parameters_of_other_forms_are_unknown(client: httpx.Client, batches: str, query: str) -> None:
    for _ in range(2):
        answer = client.get(f"{batches}?offset=0&{query}")
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "unknown_parameter")
    answer = client.post(f"{batches}?encoding=utf8", content=BATCH)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "unknown_parameter")


@pytest.mark.parametrize("name", ["Producer-Id", "Producer-Epoch", "Base-Sequence"])
def test_batches_carry_their_producer(client: httpx.Client, batches: str, name: str) -> None:
    refused = put(client, batches, **{name: "0"})
    (fault,) = refused.json()["errors"]
    assert (refused.status_code, fault["pointer"], fault["code"]) == (422, name, "unsupported_header")
    assert put(client, batches).json()["base_offset"] == 0


def test_a_key_makes_batches_harmless_to_send_again(client: httpx.Client, batches: str) -> None:
    first, again = (put(client, batches, **{"Idempotency-Key": "one"}) for _ in range(2))
    assert (first.json()["base_offset"], again.json()["base_offset"]) == (0, 0)
    assert (again.json()["duplicate"], again.headers["idempotent-replayed"]) == (True, "true")
    other = put(client, batches, record_batch(b"c", b"d"), **{"Idempotency-Key": "one"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


def test_batches_of_a_transaction_become_part_of_it(client: httpx.Client, topic: str, batches: str) -> None:
    name = f"loader-{topic.rpartition('/')[2]}"
    given = client.post("/v1/producers", json={"transactional_id": name}).json()
    content = encode_batch(
        columns_from_records([Record(0, 1, None, b"a")]),
        producer_id=given["producer_id"],
        producer_epoch=given["producer_epoch"],
        base_sequence=0,
        transactional=True,
    )
    wrong = put(client, batches, content, **{"Transactional-Id": f"{name}-other"})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "invalid_producer_id_mapping")
    assert put(client, batches, content, **{"Transactional-Id": name}).status_code == 200
    committed = {"offset": 0, "isolation": "read_committed"}
    assert client.get(batches, params=committed).content == b""
    assert client.post(f"/v1/transactions/{name}/abort", json=given).status_code == 200
    read = client.get(batches, params=committed)
    assert read.headers["aborted-transactions"] == f"{given['producer_id']}/0"


def test_acks_0_has_no_offsets(client: httpx.Client, batches: str, lines: str) -> None:
    for _ in range(2):
        answer = client.post(f"{batches}?acks=0", content=BATCH, headers={"Content-Type": OCTETS})
        assert (answer.status_code, answer.json()["base_offset"], answer.json()["record_count"]) == (200, -1, 2)
    streamed = client.post(f"{lines}?acks=0", content=b'{"value":"x"}\n', headers={"Content-Type": NDJSON})
    assert (streamed.status_code, streamed.headers["content-type"], streamed.content) == (200, NDJSON, b"")
    assert client.get(lines.rpartition("/")[0]).json()["log_end_offset"] == 5


def test_an_expected_offset_is_held(client: httpx.Client, batches: str) -> None:
    assert client.post(f"{batches}?expected_offset=0", content=BATCH).status_code == 200
    for _ in range(2):
        refused = client.post(f"{batches}?expected_offset=0", content=BATCH)
        assert (refused.status_code, refused.json()["log_end_offset"]) == (412, 2)


def test_a_fetch_waits_for_batches(client: httpx.Client, server: ThreadedServer, batches: str) -> None:
    found: list[httpx.Response] = []

    def read() -> None:
        found.append(httpx.get(f"{server.url}{batches}", params={"offset": 0, "wait_ms": 30_000}, timeout=60))

    reader = threading.Thread(target=read)
    reader.start()
    put(client, batches)
    reader.join(60)
    assert as_stored(found[0].content) == as_stored(BATCH)


@pytest.mark.parametrize(
    ("method", "place", "limit"),
    [
        ("POST", "record-batches", "producer_byte_rate"),
        ("POST", "record-lines", "producer_byte_rate"),
        ("GET", "record-batches", "consumer_byte_rate"),
        ("GET", "record-lines", "consumer_byte_rate"),
    ],
)
def test_quotas_hold_on_these_paths(client: httpx.Client, topic: str, method: str, place: str, limit: str) -> None:
    path, name = f"{topic}/partitions/0/{place}", f"{method}-{place}"
    put(client, f"{topic}/partitions/0/record-batches")
    bodies = {"record-batches": (OCTETS, BATCH), "record-lines": (NDJSON, b'{"value":"x"}\n')}
    assert client.put("/v1/quotas", params={"client_id": name}, json={limit: 1}).status_code == 200
    media_type, content = bodies[place]
    for status in (200, 429):
        if method == "POST":
            answer = put(client, path, content, **{"Content-Type": media_type, "Client-Id": name})
        else:
            # One that is larger than the quota is answered whole; what it costs comes before the next.
            answer = client.get(path, params={"offset": 0}, headers={"Client-Id": name})
        assert answer.status_code == status, answer.text
    assert answer.json()["code"] == "throttled"


# Lines


def send(client: httpx.Client, path: str, *records: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    content = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    answer = client.post(path, content=content, headers={"Content-Type": NDJSON} | headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, NDJSON), answer.text
    return [json.loads(line) for line in answer.content.splitlines()]


@pytest.mark.parametrize("accept", ["*/*", NDJSON, "application/problem+json"])
def test_lines_come_back_as_lines(client: httpx.Client, lines: str, accept: str) -> None:
    (appended,) = send(client, lines, {"value": "a", "key": "k"}, {"value": None})
    assert (appended["base_offset"], appended["record_count"]) == (0, 2)
    for _ in range(2):
        answer = client.get(lines, params={"offset": 0}, headers={"Accept": accept})
        found = [json.loads(line) for line in answer.content.splitlines()]
        assert [(record["key"], record["value"]) for record in found] == [("k", "a"), (None, None)]
        assert (answer.headers["content-type"], answer.headers["next-offset"]) == (NDJSON, "2")
    assert client.get(lines, params={"offset": 0}, headers={"Accept": "application/json"}).status_code == 406


def test_lines_of_a_topic_go_to_its_partitions(client: httpx.Client, topic: str) -> None:
    records = [{"value": str(number), "partition": number % 2} for number in range(6)]
    answered = send(client, f"{topic}/record-lines", *records)
    assert sum(line["record_count"] for line in answered) == 6
    for number in range(2):
        found = client.get(f"{topic}/partitions/{number}/record-lines", params={"offset": 0}).content.splitlines()
        assert [json.loads(line)["value"] for line in found] == [str(each) for each in range(number, 6, 2)]


def test_lines_may_be_sent_again(client: httpx.Client, topic: str, lines: str) -> None:
    key = {"Idempotency-Key": "lines"}
    first, again = (send(client, lines, {"value": "a"}, **key) for _ in range(2))
    assert [(line["base_offset"], line["duplicate"]) for line in (*first, *again)] == [(0, False), (0, True)]
    of_topic = {"Idempotency-Key": "lines-of-a-topic"}
    spread = [send(client, f"{topic}/record-lines", {"value": "b", "partition": 1}, **of_topic) for _ in range(2)]
    assert [each[0]["duplicate"] for each in spread] == [False, True]
    producer = client.post("/v1/producers", json={}).json()
    sequence = {"Producer-Id": str(producer["producer_id"]), "Producer-Epoch": "0", "Base-Sequence": "0"}
    streamed = [send(client, lines, {"value": "c"}, **sequence) for _ in range(2)]
    assert [each[0]["base_offset"] for each in streamed] == [1, 1]


def test_lines_are_of_no_transaction(client: httpx.Client, topic: str, lines: str) -> None:
    for path in (lines, f"{topic}/record-lines"):
        headers = {"Content-Type": NDJSON, "Transactional-Id": "loader"}
        refused = client.post(path, content=b'{"value":"a"}\n', headers=headers)
        (fault,) = refused.json()["errors"]
        assert (refused.status_code, fault["pointer"]) == (422, "Transactional-Id")
