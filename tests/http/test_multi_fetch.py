"""Fetching many partitions in one request, as JSON and in frames (spec D2, D5 to D8, D11, B9)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from app.fetch.multi_fetch_body import parse_multi_fetch
from app.problems.problem import Problem
from rollway.records import MultiFrame, RecordBatch, decode_multi_frame, split_batches
from schemas.multi_fetch import MultiFetch
from tests.http.test_long_poll import until, waiting_count
from tests.support.servers import ThreadedServer
from tests.support.writers import record_batch

FRAMES = "application/vnd.rollway.multi-fetch"
RAW = "application/vnd.kafka.record-batch.v2"
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def name_of(topic: str) -> str:
    return topic.rpartition("/")[2]


def asked(topic: str, partition: int, offset: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": name_of(topic), "partition": partition, "fetch_offset": offset, **more}


def produce(client: httpx.Client, topic: str, partition: int, *values: bytes) -> int:
    """Append one batch; its size."""
    batch = record_batch(*values)
    path = f"{topic}/partitions/{partition}/records"
    assert client.post(path, content=batch, headers={"Content-Type": RAW}).status_code == 200
    return len(batch)


def fetch(client: httpx.Client, *partitions: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    answer = client.post("/v1/fetch", json={"partitions": partitions, **more})
    assert answer.status_code in (200, 207), answer.text
    found: list[dict[str, Any]] = answer.json()["partitions"]
    assert (answer.status_code == 207) == any(one["error"] for one in found)
    return found


def frames(client: httpx.Client, *partitions: dict[str, Any], **more: Any) -> tuple[httpx.Response, MultiFrame]:
    answer = client.post("/v1/fetch", json={"partitions": partitions, **more}, headers={"Accept": FRAMES})
    assert answer.headers["content-type"] == FRAMES, answer.text
    return answer, decode_multi_frame(answer.content)


def sizes(client: httpx.Client, *partitions: dict[str, Any], **more: Any) -> list[int]:
    _, whole = frames(client, *partitions, **more)
    for one in whole.frames:
        split_batches(one.content)
    return [len(one.content) for one in whole.frames]


class Waiting:
    """A fetch in a thread of its own."""

    def __init__(self, server: ThreadedServer, *partitions: dict[str, Any], **more: Any) -> None:
        self._url = f"{server.url}/v1/fetch"
        self._body = {"max_wait_ms": 50_000, "partitions": partitions, **more}
        self._answer: httpx.Response | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._answer = httpx.post(self._url, json=self._body, timeout=30)

    def result(self) -> httpx.Response:
        self._thread.join(30)
        assert self._answer is not None
        return self._answer


@pytest.fixture
def wide_topic(client: httpx.Client, topic: str) -> str:
    """A topic with 8 partitions."""
    assert client.patch(topic, json={"partitions": 8}).status_code == 200
    return topic


def test_answers_stand_in_the_order_of_the_request(client: httpx.Client, topic: str) -> None:
    produce(client, topic, 0, b"a", b"b", b"c")
    produce(client, topic, 1, b"d")
    one, other = fetch(client, asked(topic, 1), asked(topic, 0, 1))
    assert [record["value"] for record in one["records"]] == ["d"]
    assert [(record["offset"], record["value"]) for record in other["records"]] == [(1, "b"), (2, "c")]
    limits = ("log_start_offset", "high_watermark", "last_stable_offset", "log_end_offset", "next_offset")
    assert [other[name] for name in limits] == [0, 3, 3, 3, 3]
    described = client.get(topic).json()
    assert (other["topic"], other["topic_id"], other["error"]) == (name_of(topic), described["topic_id"], None)


def test_d_7_one_budget_in_the_order_of_the_request(client: httpx.Client, wide_topic: str) -> None:
    """Kafka's own numbers: 190 bytes for each partition, 800 for all."""
    batch_bytes = 0
    for partition in range(6):
        for number in range(9):
            batch_bytes = produce(client, wide_topic, partition, b"%d" % number)
    in_one = 190 // batch_bytes * batch_bytes
    order = [asked(wide_topic, partition, max_bytes=190) for partition in (3, 0, 5, 1, 4, 2)]
    expected, left = [], 800
    for _ in order:
        expected.append(min(190, left) // batch_bytes * batch_bytes)
        left -= expected[-1]
    assert expected[0] == in_one
    assert expected[-1] < in_one
    assert sizes(client, *order, max_bytes=800) == expected
    assert sizes(client, *reversed(order), max_bytes=800) == expected
    assert sizes(client, *order, max_bytes=2 * batch_bytes) == [2 * batch_bytes, 0, 0, 0, 0, 0]
    assert sizes(client, *order, max_bytes=0) == [batch_bytes, 0, 0, 0, 0, 0]
    large_bytes = produce(client, wide_topic, 6, bytes(5000))
    assert sizes(client, asked(wide_topic, 6, max_bytes=190), *order, max_bytes=800) == [large_bytes, *[0] * 6]
    # Not the first with records: what does not fit is left out, and no part of it is sent (spec D8).
    assert sizes(client, *order[:2], asked(wide_topic, 6, max_bytes=190), max_bytes=800) == [in_one, in_one, 0]


def test_d_7_a_large_first_batch_comes_whole_behind_an_empty_partition(client: httpx.Client, topic: str) -> None:
    large_bytes = produce(client, topic, 1, bytes(100_000))
    assert sizes(client, asked(topic, 0), asked(topic, 1, max_bytes=10), max_bytes=100) == [0, large_bytes]
    empty, large = fetch(client, asked(topic, 0), asked(topic, 1, max_bytes=10), max_bytes=100)
    assert (len(empty["records"]), len(large["records"])) == (0, 1)


def test_one_bad_partition_never_breaks_the_others(client: httpx.Client, topic: str) -> None:
    produce(client, topic, 0, b"a", b"b")
    topic_id = client.get(topic).json()["topic_id"]
    bad = [
        (asked(topic, 0, 3), 1, "offset_out_of_range"),
        (asked(topic, 9), 3, "unknown_topic_or_partition"),
        ({"topic": "no-such-topic", "partition": 0, "fetch_offset": 0}, 3, "unknown_topic_or_partition"),
        (asked(topic, 0, current_leader_epoch=7), 75, "unknown_leader_epoch"),
    ]
    for wrong, kafka_code, code in bad:
        failed, good = fetch(client, wrong, asked(topic, 1), max_wait_ms=60_000)
        assert (failed["error"]["kafka_code"], failed["error"]["code"], good["error"]) == (kafka_code, code, None)
        limits = ("log_start_offset", "high_watermark", "last_stable_offset", "log_end_offset", "next_offset")
        assert [failed[name] for name in limits] == [-1] * 5
        answer, whole = frames(client, asked(topic, 1), wrong)
        assert [one.error_code for one in whole.frames] == [0, kafka_code]
        assert answer.headers["fetched-partitions"].endswith("/-1/-1/-1/-1")
    (hint,) = fetch(client, asked(topic, 0, 3))
    assert (hint["error"]["log_start_offset"], hint["error"]["log_end_offset"]) == (0, 2)
    by_id = {"partition": 0, "fetch_offset": 0}
    unknown, good = fetch(client, {"topic_id": NO_TOPIC_ID, **by_id}, {"topic_id": topic_id, **by_id})
    assert (unknown["error"]["kafka_code"], unknown["topic"], unknown["topic_id"]) == (100, None, None)
    assert (good["topic"], len(good["records"])) == (name_of(topic), 2)
    zero, good = fetch(client, {"topic_id": NO_TOPIC_ID, **asked(topic, 1)}, {"topic_id": "A" * 22, **asked(topic, 0)})
    assert (zero["error"]["kafka_code"], good["error"]) == (103, None)


def test_d_5_what_needs_no_wait_is_answered_at_once(client: httpx.Client, topic: str) -> None:
    """Each would wait for longer than the client does."""
    at_once = {"max_wait_ms": 60_000}
    assert fetch(client, asked(topic, 0), asked(topic, 9), **at_once)[1]["error"]["kafka_code"] == 3
    assert fetch(client, **at_once) == []
    assert fetch(client, asked(topic, 0), min_bytes=0, **at_once)[0]["records"] == []
    size = produce(client, topic, 1, b"a")
    assert len(fetch(client, asked(topic, 0), asked(topic, 1), min_bytes=size, **at_once)) == 2
    # More than the budget is never waited for (spec D4).
    assert len(fetch(client, asked(topic, 1), min_bytes=10_000, max_bytes=size, **at_once)) == 1


def test_d_6_an_append_to_any_of_them_answers(client: httpx.Client, server: ThreadedServer, topic: str) -> None:
    waiting = Waiting(server, asked(topic, 0), asked(topic, 1))
    until(lambda: waiting_count(server) == 1)
    produce(client, topic, 1, b"news")
    empty, news = waiting.result().json()["partitions"]
    assert (empty["records"], [record["value"] for record in news["records"]]) == ([], ["news"])
    assert waiting_count(server) == 0


def test_d_6_bytes_of_all_partitions_count_together(client: httpx.Client, server: ThreadedServer, topic: str) -> None:
    size = produce(client, topic, 0, b"x")
    waiting = Waiting(server, asked(topic, 0), asked(topic, 1), min_bytes=3 * size)
    until(lambda: waiting_count(server) == 1)
    produce(client, topic, 1, b"y")
    assert waiting_count(server) == 1
    produce(client, topic, 1, b"z")
    assert [len(one["records"]) for one in waiting.result().json()["partitions"]] == [1, 2]


@pytest.mark.needs_local("it looks into the local engine")
def test_d_6_a_bare_roll_wakes_nobody(client: httpx.Client, server: ThreadedServer, topic: str) -> None:
    produce(client, topic, 0, b"x")
    waiting = Waiting(server, asked(topic, 0, 1))
    until(lambda: waiting_count(server) == 1)
    parts, loop = server.service.parts, server.service.loop
    log = parts.engine.manager.partition(name_of(topic), 0)
    assert loop is not None
    asyncio.run_coroutine_threadsafe(parts.engine.partitions.run_in_log(log, log.roll), loop).result(30)
    assert len(log.snapshot.segments) == 2
    assert waiting_count(server) == 1
    produce(client, topic, 0, b"y")
    (one,) = waiting.result().json()["partitions"]
    assert [record["offset"] for record in one["records"]] == [1]


def test_the_end_of_a_topic_answers(client: httpx.Client, server: ThreadedServer, topic: str) -> None:
    topic_id = client.get(topic).json()["topic_id"]
    by_name = Waiting(server, asked(topic, 0))
    by_id = Waiting(server, {"topic_id": topic_id, "partition": 0, "fetch_offset": 0})
    until(lambda: waiting_count(server) == 2)
    assert client.delete(topic).status_code == 204
    assert by_name.result().json()["partitions"][0]["error"]["kafka_code"] == 3
    assert by_id.result().json()["partitions"][0]["error"]["kafka_code"] == 100


@pytest.mark.needs_local("it looks into the data directory")
def test_b_9_frames_hold_the_bytes_of_the_log(client: httpx.Client, topic: str, data_dir: Path) -> None:
    for number in range(5):
        produce(client, topic, 0, b"a%d" % number)
        produce(client, topic, 1, bytes(20_000), b"b%d" % number)
    for first, second in ((0, 1), (1, 0)):
        answer, whole = frames(client, asked(topic, first, 2), asked(topic, second, 4), asked(topic, 9))
        assert whole.error_code == 0
        assert len(answer.content) == 4 + int.from_bytes(answer.content[:4], "big")
        assert [one.error_code for one in whole.frames] == [0, 0, 3]
        told = [entry.split("/") for entry in answer.headers["fetched-partitions"].split(", ")]
        for one, partition, offset, entry in zip(whole.frames, (first, second), (2, 4), told, strict=False):
            stored = (data_dir / "logs" / f"{name_of(topic)}-{partition}" / f"{0:020}.log").read_bytes()
            batches = [batch for batch in split_batches(stored) if batch.header.last_offset >= offset]
            assert bytes(one.content) == b"".join(bytes(batch.buffer) for batch in batches)
            end = str(batches[-1].header.next_offset)
            assert entry == [name_of(topic), str(partition), end, end, end, "0"]
        assert answer.headers["fetch-session-id"] == "0"
        assert answer.headers["throttle-time-ms"] == "0"


def test_a_thousand_partitions(client: httpx.Client, server: ThreadedServer) -> None:
    """As many as one likes; the headers of frames have a limit, and the rest comes with the next request."""
    path = "/v1/topics/" + "n" * 200
    specification = {"partitions": 1000, "config": {"flush.policy": "interval"}}
    assert client.put(path, json=specification, timeout=300).status_code == 201
    everything = [asked(path, partition) for partition in range(1000)]
    waiting = Waiting(server, *everything)
    until(lambda: waiting_count(server) == 1)
    produce(client, path, 777, b"news")
    answer = waiting.result().json()["partitions"]
    assert [(one["partition"], len(one["records"])) for one in answer if one["records"]] == [(777, 1)]
    assert len(answer) == 1000
    idle, whole = frames(client, *everything)
    assert [len(one.content) > 0 for one in whole.frames] == [True]
    assert idle.headers["fetched-partitions"].startswith("n" * 200 + "/777/1/1/1/0")
    with_records = range(0, 1000, 7)
    for partition in with_records:
        produce(client, path, partition, b"more")
    body: dict[str, Any] = {"session_epoch": 0, "partitions": everything}
    seen: dict[int, int] = {}
    for epoch in range(1, 100):
        full = client.post("/v1/fetch", json=body, headers={"Accept": FRAMES})
        assert len(full.headers["fetched-partitions"]) <= 16 * 1024
        entries = [entry.split("/") for entry in full.headers["fetched-partitions"].split(", ") if entry]
        if not entries:
            break
        parts = decode_multi_frame(full.content).frames
        assert len(parts) == len(entries)
        moved = []
        for entry, one in zip(entries, parts, strict=True):
            partition, next_offset = int(entry[1]), int(entry[2])
            if len(one.content):
                seen[partition] = seen.get(partition, 0) + len(split_batches(one.content))
                moved.append(asked(path, partition, next_offset))
        body = {
            "session_id": int(full.headers["fetch-session-id"]),
            "session_epoch": epoch,
            "partitions": moved,
        }
    assert seen == {partition: 2 if partition == 777 else 1 for partition in with_records}


def test_what_is_decoded_at_once_has_a_limit(client: httpx.Client, topic: str) -> None:
    """Few bytes in the log may be many in an answer: all partitions share one limit."""
    body = {"records": [{"value": "0" * 30_000_000}]}
    for partition in (0, 1):
        client.patch(topic, json={"config": {"max.message.bytes": 40_000_000}})
        assert client.post(f"{topic}/partitions/{partition}/records", json=body).status_code == 200
    answers = fetch(client, asked(topic, 0), asked(topic, 1), max_bytes=100)
    assert [len(one["records"]) for one in answers] == [1, 0]
    assert [one["next_offset"] for one in answers] == [1, 0]


_ONE = '{"topic": "t", "partition": 0, "fetch_offset": 0}'
HOSTILE: list[tuple[str, str]] = [
    ("[]", ""),
    ('{"partitions": {}}', "/partitions"),
    ('{"partitions": [{"topic": "t", "partition": 0}]}', "/partitions/0/fetch_offset"),
    ('{"partitions": [{"partition": 0, "fetch_offset": 0}]}', "/partitions/0"),
    ('{"partitions": [{"topic": "..", "partition": -1, "fetch_offset": 0}]}', "/partitions/0/partition"),
    ('{"partitions": [{"topic": "a/b", "partition": 0, "fetch_offset": 0}]}', "/partitions/0/topic"),
    ('{"partitions": [{"topic_id": "short", "partition": 0, "fetch_offset": 0}]}', "/partitions/0/topic_id"),
    ('{"partitions": [{"topic": "t", "partition": 0, "fetch_offset": -1}]}', "/partitions/0/fetch_offset"),
    ('{"partitions": [{"topic": "t", "partition": 0, "fetch_offset": 9223372036854775808}]}', "/partitions/0"),
    ('{"partitions": [{"topic": "t", "partition": 0, "fetch_offset": 0.5}]}', "/partitions/0/fetch_offset"),
    ('{"partitions": [{"topic": "t", "partition": 0, "fetch_offset": 0, "x": 1}]}', "/partitions/0/x"),
    ('{"partitions": [{"topic": "t", "partition": 0, "fetch_offset": 0, "max_bytes": -1}]}', "/partitions/0"),
    ('{"max_wait_ms": 60001}', "/max_wait_ms"),
    ('{"max_wait_ms": -1}', "/max_wait_ms"),
    ('{"min_bytes": 2147483648}', "/min_bytes"),
    ('{"session_id": -1}', "/session_id"),
    ('{"session_epoch": -2}', "/session_epoch"),
    ('{"isolation": "serializable"}', "/isolation"),
    ('{"min_bytes": 1, "min_bytes": 2}', "/min_bytes"),
    ('{"forgotten": [{"partition": 0}]}', "/forgotten/0"),
    ('{"partitions": [%s, %s]}' % (_ONE, _ONE), "/partitions/1"),  # noqa: UP031 - braces
    ('{"partitions": [%s, %s]}' % (_ONE, _ONE.replace('"topic": "t"', f'"topic_id": "{NO_TOPIC_ID}"')), "/partitions"),  # noqa: UP031
]


@pytest.mark.parametrize(("body", "pointer"), HOSTILE)
def test_hostile_bodies(client: httpx.Client, body: str, pointer: str) -> None:
    answer = client.post("/v1/fetch", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)


@pytest.mark.parametrize("body", [*(body for body, _ in HOSTILE[:20]), "{}", f'{{"partitions": [{_ONE}]}}'])
def test_the_documented_model_takes_what_the_coder_takes(body: str) -> None:
    taken = []
    for read in (MultiFetch.model_validate_json, parse_multi_fetch):
        try:
            read(body.encode())
            taken.append(True)
        except (Problem, ValidationError):
            taken.append(False)
    # What no schema can say: names twice, and which of topic and topic_id.
    only_the_coder = '"min_bytes": 1, "min_bytes"' in body or ("topic" not in body and '"partition": 0' in body)
    assert taken == ([True, False] if only_the_coder else [taken[1]] * 2)


def test_leader_epochs_are_held_against_the_client(client: httpx.Client, server: ThreadedServer, topic: str) -> None:
    """Spec D11, E2, case LE-4."""
    produce(client, topic, 0, b"a", b"b", b"c")
    log = server.result_of(server.service.parts.engine.partition(name_of(topic), 0))
    old = log.leader_epoch
    waiting = Waiting(server, asked(topic, 0, 3, current_leader_epoch=old))
    until(lambda: waiting_count(server) == 1)
    assert client.post(f"{topic}/partitions/0/epochs").status_code == 200
    assert waiting.result().json()["partitions"][0]["error"]["kafka_code"] == 74
    produce(client, topic, 0, b"d")
    new = log.leader_epoch
    fenced, good = fetch(client, asked(topic, 0, current_leader_epoch=old), asked(topic, 1))
    assert (fenced["error"]["code"], good["error"]) == ("fenced_leader_epoch", None)
    (good,) = fetch(client, asked(topic, 0, 3, current_leader_epoch=new, last_fetched_epoch=old))
    assert (len(good["records"]), good.get("diverging_epoch")) == (1, None)
    diverging = asked(topic, 0, 4, last_fetched_epoch=old)
    (one,) = fetch(client, diverging, max_wait_ms=60_000)
    assert (one["diverging_epoch"], one["records"], one["error"]) == ({"epoch": old, "end_offset": 3}, [], None)
    answer, whole = frames(client, diverging)
    assert answer.headers["diverging-epochs"] == f"{name_of(topic)}/0/{old}/3"
    assert [len(frame.content) for frame in whole.frames] == [0]


def test_bodies_that_are_none(client: httpx.Client) -> None:
    json = {"Content-Type": "application/json"}
    assert client.post("/v1/fetch", content=b"{", headers=json).status_code == 400
    assert client.post("/v1/fetch", content=b"\xff{}", headers=json).status_code == 400
    assert client.post("/v1/fetch", content=b"[" * 100_000, headers=json).status_code in (400, 422)
    assert client.post("/v1/fetch", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.post("/v1/fetch", json={}, headers={"Accept": "text/csv"}).status_code == 406
    assert client.post("/v1/fetch", content=b" " * 2_000_000, headers=json).status_code == 413
    many = [{"topic": "t", "partition": partition, "fetch_offset": 0} for partition in range(10_001)]
    assert client.post("/v1/fetch", json={"partitions": many}).status_code in (413, 422)
    assert client.post("/v1/fetch", json={}).json() == {"session_id": 0, "throttle_time_ms": 0, "partitions": []}


def test_all_partitions_may_fail(client: httpx.Client) -> None:
    """Each says why; the request itself was understood."""
    answer = client.post("/v1/fetch", json={"partitions": [asked("nowhere", 0), asked("nowhere", 1)]})
    assert answer.status_code == 207
    assert [one["error"]["kafka_code"] for one in answer.json()["partitions"]] == [3, 3]


def test_the_stop_answers_those_that_wait(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server:
        httpx.put(f"{server.url}/v1/topics/t", json={"partitions": 1})
        waiting = Waiting(server, asked("t", 0))
        until(lambda: waiting_count(server) == 1)
    assert waiting.result().json()["partitions"][0]["records"] == []


def test_a_batch_that_begins_below_comes_whole(client: httpx.Client, topic: str) -> None:
    """Spec D14."""
    produce(client, topic, 0, *(b"%d" % number for number in range(10)))
    (one,) = fetch(client, asked(topic, 0, 7))
    assert [record["offset"] for record in one["records"]] == [7, 8, 9]
    _, whole = frames(client, asked(topic, 0, 7))
    batch = RecordBatch(whole.frames[0].content)
    assert (batch.header.base_offset, batch.header.record_count) == (0, 10)
