"""The fast path and the application agree: one table of requests, sent to a service with it and to one without."""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.http.connection.fast_path_interface import plain_heads
from app.record_json import record_batches
from log_model.clock import ManualClock
from rollway.records import Codec, Record, columns_from_records, encode_batch
from tests.support.edge_server import Answer, Connection
from tests.support.servers import ThreadedServer, http_client
from tests.support.writers import record_batch

pytestmark = pytest.mark.needs_local("it tests the fast path of plain requests")

RAW = "application/vnd.kafka.record-batch.v2"
OCTETS = "application/octet-stream"
PROBLEM = "application/problem+json"
HAS_PARSER = plain_heads is not None
HAS_RECORD_PARSER = record_batches.compiled is not None
"""Without the parser of plain heads the application answers everything."""
BATCH = record_batch(b"one", b"two")


def batch_of(*values: str, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    return encode_batch(
        columns_from_records([Record(place, 5, None, each.encode()) for place, each in enumerate(values)]),
        codec=codec,
        **fields,
    )


def _with_bytes(content: bytes, position: int, layout: str, value: int) -> bytes:
    changed = bytearray(content)
    struct.pack_into(layout, changed, position, value)
    return bytes(changed)


class Case(NamedTuple):
    """A request, and whether the fast path answers it once it knows its query; ``None`` when that depends on caches."""

    name: str
    is_fast: bool | None
    topic: str = "t"
    query: str = ""
    body: bytes = BATCH
    headers: tuple[tuple[str, str], ...] = ()
    media_type: str = RAW
    partition: str = "0"
    method: str = "POST"
    place: str = "records"

    def encode(self) -> bytes:
        path = f"/v1/topics/{self.topic}/partitions/{self.partition}/{self.place}"
        lines = [f"{self.method} {path}{self.query} HTTP/1.1", "Host: a"]
        if self.media_type:
            lines.append(f"Content-Type: {self.media_type}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, f"Content-Length: {len(self.body)}", "", ""]).encode("latin-1") + self.body


def _json(name: str, *rows: dict[str, Any], is_fast: bool = True, **fields: Any) -> Case:
    body = json.dumps({"records": rows}).encode()
    return Case(name, is_fast, body=body, media_type="application/json", **fields)


def fetch_case(name: str, query: str, accept: str = "*/*", *, is_fast: bool | None = None, **fields: Any) -> Case:
    headers = (*((("Accept", accept),) if accept else ()), *fields.pop("headers", ()))
    topic = fields.pop("topic", "fetched")
    return Case(name, is_fast, topic, query, b"", headers, media_type="", method="GET", **fields)


def _fetches(name: str, accept: str, place: str = "records") -> list[Case]:
    """Whole logs and parts of them, batches cut at both ends, and ends of logs."""
    places = ["0", "1", "5", "earliest", "latest", "5&max_records=1", "0&max_records=61", "2&max_bytes=1"]
    places += ["0&max_bytes=300", "0&max_records=1000000", "5&wait_ms=1000", "3&on_truncated=earliest"]
    return [fetch_case(f"{name}fetch from {start}", f"?offset={start}", accept, place=place) for start in places]


def _by_paths_of_their_own(cases: list[Case]) -> Iterator[Case]:
    """What is sent to ``records`` as record batches, to the path that has nothing else; and both ways out."""
    for case in cases:
        if case.media_type.startswith(RAW) or case.media_type == "text/plain":
            yield case._replace(name=f"record-batches, {case.name}", place="record-batches")
    for media_type in (OCTETS, ""):
        name = f"record-batches, {media_type or 'no media type'}"
        yield Case(name, True, media_type=media_type, place="record-batches")
        yield Case(
            f"{name}, large",
            True,
            body=record_batch(b"x" * 300_000),
            media_type=media_type,
            place="record-batches",
        )
        yield Case(f"{name}, garbage", False, body=b"rubbish", media_type=media_type, place="record-batches")
    yield Case("record-batches, encoding", False, query="?encoding=utf8", place="record-batches")
    yield Case("octets to records", False, media_type=OCTETS)
    yield _json("JSON to record-batches", {"value": "v"}, is_fast=False)._replace(place="record-batches")
    yield Case("lines", False, body=b'{"value":"a"}\n', media_type="application/x-ndjson", place="record-lines")
    yield Case("batches to lines", False, place="record-lines")
    for accept in ("", "*/*", OCTETS, RAW, PROBLEM, f"{OCTETS},{PROBLEM}"):
        yield from _fetches(f"batches {accept}, ", accept, "record-batches")
    for query in ("0&end_offset=3", "0&end_offset=9999", "1&isolation=read_committed", "0&encoding=utf8", "0&magic=1"):
        yield fetch_case(f"batches, {query}", f"?offset={query}", OCTETS, place="record-batches")
        yield fetch_case(f"batches by their name, {query}", f"?offset={query}", RAW, place="record-batches")
    for accept in ("text/html", "application/json", f"{OCTETS}, {PROBLEM}", f"{RAW};q=0.5, */*;q=0.1"):
        yield fetch_case(f"batches as {accept}", "?offset=0", accept, place="record-batches", is_fast=False)
    for accept in ("", "*/*", "application/x-ndjson", f"application/x-ndjson,{PROBLEM}"):
        yield from _fetches(f"lines {accept}, ", accept, "record-lines")
    yield fetch_case("lines, base64", "?offset=0&max_records=3&encoding=base64", place="record-lines")
    yield fetch_case("lines as JSON", "?offset=0", "application/json", place="record-lines", is_fast=False)
    yield fetch_case("records as problems", "?offset=0", PROBLEM, is_fast=False)


def key(text: str) -> tuple[tuple[str, str], ...]:
    return (("Idempotency-Key", text),)


def producer(producer_id: object, epoch: object, sequence: object) -> tuple[tuple[str, str], ...]:
    values = zip(("Producer-Id", "Producer-Epoch", "Base-Sequence"), (producer_id, epoch, sequence), strict=True)
    return tuple((name, str(value)) for name, value in values)


def keyed_cases() -> Iterator[Case]:
    """Each is sent twice, so nearly all of them are repeated."""
    yield Case("an idempotency key", True, headers=key("k"))
    yield Case("a key with other records", True, headers=key("k"), body=batch_of("other"))
    yield Case("a key with more records", True, headers=key("k"), body=batch_of("one", "two", "three"))
    yield Case("a key in quotes", True, headers=key('"k"'))
    yield Case("a key with escapes", True, headers=key(r'"a\\\"b"'))
    yield Case("a long key", True, headers=key("x" * 255))
    yield Case("too long a key", False, headers=key("x" * 256))
    yield Case("an empty key", False, headers=key(""))
    yield Case("a key in open quotes", False, headers=key('"k'))
    yield Case("a key of quotes", False, headers=key('""'))
    yield Case("a key with a space", False, headers=key("a b"))
    yield Case("a key with a space in quotes", False, headers=key('"a b"'))
    yield Case("two keys", False, headers=key("k1") + key("k1"))
    yield Case("a key and a producer's headers", False, headers=key("k2") + producer(1, 0, 0))
    yield Case("a key and a transaction", False, headers=(*key("k2"), ("Transactional-Id", "x")))
    yield Case("a key for a producer's batch", False, headers=key("k3"), body=PRODUCER)
    yield Case("a key for a transactional batch", False, headers=key("k3"), body=TRANSACTIONAL)
    yield Case("a key, acks 0", True, headers=key("k4"), query="?acks=0")
    yield Case("a key, acks 1", True, headers=key("k5"), query="?acks=1")
    yield Case("a key, group fsync", True, headers=key("k6"), topic="group")
    yield Case("a key, durability fsynced", True, headers=key("k7"), query="?durability=fsynced")
    yield Case("a key, log append time", True, headers=key("k8"), topic="stamped")
    yield Case("a key, several batches", True, headers=key("k9"), body=BATCH * 3)
    yield Case("a key, fewer batches", True, headers=key("k9"), body=BATCH * 2)
    yield Case("a key, the records in one batch", True, headers=key("k9"), body=batch_of(*("one", "two") * 3))
    yield Case("a key, compressed", True, headers=key("k10"), body=batch_of("a" * 99, codec=Codec.GZIP))
    yield Case("a key, topic compresses", True, headers=key("k11"), topic="zipped")
    yield Case("a key, large enough for a sink", True, headers=key("k12"), body=record_batch(b"x" * 300_000))
    yield Case("a key, an expected offset", None, headers=key("k13"), topic="other", query="?expected_offset=0")
    yield Case("a key for garbage", False, headers=key("k14"), body=b"rubbish\0" * 20)
    yield Case("a key for too large a batch", False, headers=key("k15"), topic="small", body=record_batch(b"x" * 900))
    yield Case("a key for an internal topic", False, headers=key("k16"), topic="__consumer_offsets")
    yield fetch_case("a fetch with a key", "?offset=0", is_fast=False, headers=key("k"))
    for place, rows in enumerate(
        [
            [{"value": "v"}],
            [{"value": "v", "timestamp": 1}, {"value": "w"}],
            [{"value_base64": "AAE=", "headers": [{"name": "h", "value": "1"}]}],
            [{"value": "x" * 700}, {"value": "y" * 700}],
        ]
    ):
        yield _json(f"JSON with a key {place}", *rows, headers=key(f"json{place}"))
    yield _json(
        "JSON with a key and another time", {"value": "v", "timestamp": 2}, {"value": "w"}, headers=key("json1")
    )
    yield _json("JSON with a key and other records", {"value": "w"}, headers=key("json0"))
    yield _json("JSON with a key and more records", {"value": "v"}, {"value": "v"}, headers=key("json0"))
    yield _json("JSON with a key, many batches", *[{"value": "x" * 400}] * 3, topic="small", headers=key("json5"))
    yield _json("JSON with a key, acks 0", {"value": "v"}, query="?acks=0", headers=key("json6"))
    yield _json("JSON with a key, group fsync", {"value": "v"}, topic="group", headers=key("json7"))
    yield _json("JSON with a key, as JSON", {"value": [1]}, query="?encoding=json", headers=key("json8"))
    yield _json("JSON with a key, another partition", {"value": "v", "partition": 1}, is_fast=False, headers=key("j"))
    yield _json("JSON with a key, large", {"value": "x" * 200_000}, is_fast=False, headers=key("json9"))
    yield _json("JSON with a key, no records", is_fast=False, headers=key("json10"))
    yield _json("JSON with too long a key", {"value": "v"}, is_fast=False, headers=key("x" * 256))


def producer_cases() -> Iterator[Case]:
    yield _json("JSON of a producer", {"value": "v"}, {"value": "w"}, headers=producer(70, 0, 0))
    yield _json("JSON of a producer, the next", {"value": "x"}, headers=producer(70, 0, 2))
    yield _json("JSON of a producer, a gap", {"value": "x"}, headers=producer(70, 0, 4))
    yield _json("JSON of a producer, a part of it again", {"value": "v"}, headers=producer(70, 0, 0))
    yield _json("JSON of a producer, a new epoch", {"value": "x"}, headers=producer(70, 1, 0))
    yield _json("JSON of a producer, the old epoch", {"value": "x"}, headers=producer(70, 0, 3))
    yield _json("JSON of a producer, group fsync", {"value": "v"}, topic="group", headers=producer(70, 0, 0))
    yield _json("JSON of a producer, acks 0", {"value": "v"}, query="?acks=0", headers=producer(71, 0, 0))
    yield _json(
        "JSON of a producer, several batches", *[{"value": "x" * 400}] * 3, topic="small", headers=producer(7, 0, 0)
    )
    yield _json("JSON of a producer at the end", {"value": "v"}, {"value": "w"}, headers=producer(72, 32767, 2**31 - 1))
    yield _json("JSON of the largest producer", {"value": "v"}, headers=producer(2**62 - 1, 0, 0))
    for name, headers in {
        "a key's id": producer(2**62, 0, 0),
        "a negative id": producer(-1, 0, 0),
        "a zero in front": producer("07", 0, 0),
        "no number": producer("x", 0, 0),
        "a plus": producer("+7", 0, 0),
        "a fraction": producer("7.0", 0, 0),
        "too large an epoch": producer(7, 32768, 0),
        "too large a sequence": producer(7, 0, 2**31),
        "no epoch": (producer(7, 0, 0)[0], producer(7, 0, 0)[2]),
        "two ids": (*producer(7, 0, 0), ("Producer-Id", "7")),
        "an empty id": producer("", 0, 0),
    }.items():
        yield _json(f"JSON of a producer with {name}", {"value": "v"}, is_fast=False, headers=headers)
    yield fetch_case("a fetch of a producer", "?offset=0", is_fast=False, headers=producer(7, 0, 0))


PRODUCER = batch_of("p", producer_id=7, producer_epoch=0, base_sequence=0)
TRANSACTIONAL = _with_bytes(PRODUCER, 22, ">b", 0x10)
CASES = [
    Case("plain", True),
    Case("several batches", True, body=BATCH * 3),
    Case("acks 1", True, query="?acks=1"),
    Case("acks 0", True, query="?acks=0"),
    Case("durability fsynced", True, query="?durability=fsynced"),
    Case("durability written", True, topic="group", query="?durability=written"),
    Case("group fsync", True, topic="group"),
    Case("acks 1 before the group fsync", True, topic="group", query="?acks=1"),
    Case("log append time", True, topic="stamped"),
    Case("timeout", True, query="?timeout_ms=60000&acks=all"),
    Case("expected offset", True, topic="other", query="?expected_offset=0"),
    Case("expected offset again", True, topic="other", query="?expected_offset=0"),
    Case("client's names", True, headers=(("Client-Id", "me"), ("User-Agent", "x"), ("Accept", "*/*"))),
    Case("the library", True, headers=(("User-Agent", "rollway/0.1.0"), ("Client-Id", "rollway"))),
    Case("a name like the library's", True, headers=(("User-Agent", "rollways"),)),
    Case("the library of before", False, headers=(("User-Agent", "rollway"), ("Client-Id", "rollway"))),
    _json("JSON of the library of before", {"value": "v"}, is_fast=False, headers=(("User-Agent", "rollway"),)),
    Case("accept anything", True, headers=(("Accept", "text/html"), ("Accept-Encoding", "gzip, zstd"))),
    Case("idempotent producer", True, body=PRODUCER),
    Case("the same again", True, body=PRODUCER),
    Case("a sequence left out", True, body=batch_of("q", producer_id=7, producer_epoch=0, base_sequence=5)),
    Case("compressed", True, body=batch_of("a" * 99, codec=Codec.GZIP)),
    Case("compressed and damaged", True, body=batch_of("a" * 99, codec=Codec.GZIP)[:-1] + b"x"),
    Case("topic compresses", True, topic="zipped"),
    _json("JSON", {"value": "v"}, {"value": None, "key": "k", "timestamp": 5}),
    _json("JSON, much", {"value": "é", "headers": [{"name": "h", "value": "1"}], "partition": 0, "offset": 3}),
    _json("JSON, sixty records", *[{"value": "x" * 100}] * 60, query="?acks=1"),
    _json("JSON in base64", {"value_base64": "AAE=", "key_base64": "/w=="}, query="?encoding=base64"),
    _json("JSON with bytes", {"value_base64": "AAE=", "headers": [{"name_base64": "/w==", "value_base64": ""}]}),
    _json("JSON with bytes and text", {"value_base64": "AAE=", "value": "v"}, is_fast=False),
    _json("JSON with bytes as before", {"value": {"base64": "AAE="}}, is_fast=False),
    _json("JSON of JSON", {"value": {"a": [1, 2.5]}}, {"value": 7}, query="?encoding=json"),
    _json("JSON, acks 0", {"value": "v"}, query="?acks=0"),
    _json("JSON, group fsync", {"value": "v"}, topic="group"),
    _json("JSON, log append time", {"value": "v", "timestamp": 7}, topic="stamped"),
    _json("JSON, more than a batch", *[{"value": "x" * 400}] * 3, topic="small"),
    _json("JSON, an expected offset that is wrong", {"value": "v"}, query="?expected_offset=0"),
    _json("JSON, no records", is_fast=False),
    _json("JSON, topic compresses", {"value": "v"}, topic="zipped", is_fast=False),
    _json("JSON, another partition", {"value": "v", "partition": 1}, is_fast=False),
    _json("JSON, too large a record", {"value": "x" * 900}, topic="small", is_fast=False),
    _json("JSON, no time", {"value": "v", "timestamp": "soon"}, is_fast=False),
    _json("JSON, a number", {"value": 3}, is_fast=False),
    _json("JSON, 500 of 1 KiB", *[{"value": "x" * 1024, "key": "k"}] * 500, is_fast=HAS_RECORD_PARSER),
    _json("JSON, large", {"value": "x" * 200_000}, is_fast=HAS_RECORD_PARSER),
    _json("JSON, large and not plain", {"value": "x" * 200_000}, {"value_base64": "AA=="}, is_fast=False),
    _json("JSON, large and wrong", {"value": "x" * 200_000}, {"value": 3}, is_fast=False),
    _json("JSON, larger", {"value": "x" * 700_000}, is_fast=False),
    Case("no JSON", False, body=b"{", media_type="application/json"),
    Case("a name twice", False, body=b'{"records":[{"value":"a","v\\u0061lue":"b"}]}', media_type="application/json"),
    Case("JSON with a charset", False, body=b'{"records":[]}', media_type="application/json; charset=utf-8"),
    Case("an empty body", False, body=b""),
    Case("garbage", False, body=b"rubbish\0" * 20),
    Case("cut off", False, body=BATCH[:-1]),
    Case("a wrong checksum", False, body=BATCH[:-1] + b"?"),
    Case("magic 7", False, body=_with_bytes(BATCH, 16, ">b", 7)),
    Case("too large for the topic", False, topic="small", body=record_batch(b"x" * 900)),
    Case("large enough for a sink", True, body=record_batch(b"x" * 300_000)),
    Case("too large for the service", False, body=record_batch(b"x" * 1_100_000)),
    Case("transactional", False, body=TRANSACTIONAL),
    Case("no such topic", False, topic="nothing"),
    Case("no such partition", False, partition="7"),
    Case("a partition that is none", False, partition="x"),
    Case("a partition with a zero", False, partition="00"),
    Case("an internal topic", False, topic="__consumer_offsets"),
    Case("a topic that can be none", False, topic=".."),
    Case("bad acks", False, query="?acks=2"),
    Case("bad timeout", False, query="?timeout_ms=0"),
    Case("unknown parameter", False, query="?ack=1"),
    Case("a parameter twice", False, query="?acks=1&acks=1"),
    Case("an empty query", False, query="?"),
    Case("another media type", False, media_type="text/plain"),
    Case("media type with a parameter", False, media_type=f"{RAW}; charset=utf-8"),
    Case("a part of a producer's headers", False, headers=(("Producer-Id", "1"),)),
    Case("a producer's headers", False, headers=producer(1, 0, 0)),
    *keyed_cases(),
    *producer_cases(),
    Case("a transaction's header", False, headers=(("Transactional-Id", "x"),)),
    Case("encoded", False, headers=(("Content-Encoding", "gzip"),)),
    Case("two hosts", False, headers=(("Host", "b"),)),
    _json("records to fetch", *[{"value": "x" * 100, "key": "k"}] * 60, topic="fetched"),
    _json("others to fetch", {"value_base64": "/w==", "headers": [{"name": "h", "value": None}]}, topic="fetched"),
    *_fetches("", "application/json"),
    *_fetches("NDJSON ", "application/x-ndjson"),
    fetch_case("fetch, any form", "?offset=0"),
    fetch_case("fetch, base64", "?offset=0&max_records=3&encoding=base64"),
    fetch_case("fetch, JSON", "?offset=0&max_records=30&encoding=json", topic="stamped"),
    fetch_case("fetch, compressed answer", "?offset=0", is_fast=False, headers=(("Accept-Encoding", "gzip"),)),
    fetch_case("fetch, identity", "?offset=0", headers=(("Accept-Encoding", "identity"),)),
    fetch_case("fetch, by the library of before", "?offset=0", is_fast=False, headers=(("User-Agent", "rollway"),)),
    fetch_case("fetch, closed range", "?offset=0&end_offset=3", is_fast=False),
    fetch_case("fetch, committed", "?offset=0&isolation=read_committed", is_fast=False),
    fetch_case("fetch, beyond the end", "?offset=1000000", is_fast=False),
    fetch_case("fetch, no topic", "?offset=0", is_fast=False, topic="nothing"),
    fetch_case("fetch, no start", "?max_records=1", is_fast=False),
    fetch_case("fetch, tail", "?tail=3", is_fast=False),
    Case("GET with a body", False, method="GET"),
    Case("a method nobody has", False, method="PATCH"),
]  # fmt: skip


TOPICS: dict[str, dict[str, object]] = {
    "t": {"flush.policy": "interval"},
    "group": {"flush.policy": "group"},
    "other": {"flush.policy": "interval"},
    "fetched": {"flush.policy": "interval"},
    "large": {"flush.policy": "interval"},
    "small": {"flush.policy": "interval", "max.message.bytes": 500},
    "stamped": {"flush.policy": "interval", "message.timestamp.type": "LogAppendTime"},
    "zipped": {"flush.policy": "interval", "compression.type": "zstd"},
}


AT_REST_CASES = [case for case in CASES if case.topic in TOPICS and case.method == "POST" and case.media_type == RAW]
CASES += list(_by_paths_of_their_own(CASES))


def _topics(client: httpx.Client, *names: str) -> None:
    for name in names or TOPICS:
        answer = client.put(f"/v1/topics/{name}", json={"partitions": 1, "config": TOPICS[name]})
        assert answer.status_code == 201, answer.text


class Pair:
    """The two services."""

    def __init__(self, fast_path: ThreadedServer, application: ThreadedServer) -> None:
        self.fast_path = fast_path
        self.application = application

    def ask(self, request: bytes) -> tuple[Answer, Answer]:
        """The answers of both, each on a connection of its own."""
        answers = []
        for server in (self.fast_path, self.application):
            with connect(server) as connection:
                connection.send(request)
                answers.append(connection.read_answer())
        return answers[0], answers[1]


def connect(server: ThreadedServer) -> Connection:
    return Connection(int(server.url.rpartition(":")[2]))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pair(tmp_path_factory.mktemp("services")) as running:
        yield running


@contextlib.contextmanager
def running_pair(root: Path) -> Iterator[Pair]:
    settings: dict[str, Any] = {"request_body_bytes_max": 1_000_000}
    with (
        ThreadedServer(root / "fast_path", clock=ManualClock(), **settings) as fast_path,
        ThreadedServer(root / "application", clock=ManualClock(), has_fast_path=False, **settings) as application,
    ):
        for server in (fast_path, application):
            with http_client(server.url) as client:
                _topics(client)
        yield Pair(fast_path, application)


def comparable(answer: Answer) -> tuple[int, dict[str, str], Any]:
    """What both must answer alike. How far fsyncs have come is a matter of time, and its digits of the length."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
    assert re.fullmatch("[0-9a-f]{16}", answer.headers.get("x-request-id", "0" * 16))
    body, count = re.subn(rb'"durable_offset":[0-9]+', b"", answer.body)
    if count:
        headers["content-length"] = str(len(body))
        assert answer.headers["content-length"] == str(len(answer.body))
    return answer.status, headers, body


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answers_agree(pair: Pair, case: Case) -> None:
    request = case.encode()
    # The first lets the fast path know the query.
    for is_known in (False, True):
        before = pair.fast_path.fast_path_count
        fast, slow = pair.ask(request)
        assert comparable(fast) == comparable(slow)
        if is_known:
            assert case.is_fast is None or pair.fast_path.fast_path_count - before == (case.is_fast and HAS_PARSER)


def test_answers_agree_for_partitions_at_rest(pair: Pair) -> None:
    """Each topic is made anew before the request: its partition was not used yet, but the fast path knows the query."""
    for case in AT_REST_CASES:
        pair.ask(case.encode())
        for server in (pair.fast_path, pair.application):
            with http_client(server.url) as client:
                assert client.delete(f"/v1/topics/{case.topic}").status_code == 204
                _topics(client, case.topic)
        before = pair.fast_path.fast_path_count
        fast, slow = pair.ask(case.encode())
        assert comparable(fast) == comparable(slow), case.name
        if case.is_fast:
            assert pair.fast_path.fast_path_count - before == HAS_PARSER, case.name


@pytest.mark.parametrize("accept", ["*/*", "application/x-ndjson"])
def test_fetches_of_what_was_just_written_are_plain(pair: Pair, accept: str) -> None:
    written = _json("written", *[{"value": "x" * 100}] * 500, topic="large")
    pair.ask(written.encode())
    before = pair.fast_path.fast_path_count
    for _ in range(5):
        fast, slow = pair.ask(fetch_case("read", "?offset=0&max_records=500", accept, topic="large").encode())
        assert comparable(fast) == comparable(slow)
        assert fast.body.count(b'"offset"') == 500
    assert (pair.fast_path.fast_path_count > before) is HAS_PARSER


def test_logs_and_metrics_agree(tmp_path: Path) -> None:
    with running_pair(tmp_path) as pair:
        for case in CASES:
            pair.ask(case.encode())
            pair.ask(case.encode())
        assert (pair.fast_path.fast_path_count > len(CASES) / 3) is HAS_PARSER
        _check_logs_and_metrics(pair)


def _check_logs_and_metrics(pair: Pair) -> None:
    for name in ("t", "group", "other", "small", "stamped", "zipped"):
        logs = [
            (server.settings.data_dir / "logs" / f"{name}-0" / f"{0:020}.log").read_bytes()
            for server in (pair.fast_path, pair.application)
        ]
        assert logs[0] == logs[1]
        assert name == "small" or logs[0].strip(b"\0")
    counted = [_counters(server) for server in (pair.fast_path, pair.application)]
    assert counted[0] == counted[1]


def _counters(server: ThreadedServer) -> dict[str, str]:
    with http_client(server.url) as client:
        text = client.get("/metrics").text
    wanted = (
        *("rollway_http_requests_total", "rollway_http_request_seconds_count", "rollway_produced_"),
        *("rollway_group_requests_count", "rollway_append_seconds_count"),
    )
    return dict(
        line.rsplit(" ", 1)  # type: ignore[misc]
        for line in text.splitlines()
        if line.startswith(wanted) and "_created" not in line
    )


# Waiting, quotas, the end


def test_quotas_hold_for_plain_requests(pair: Pair) -> None:
    for server in (pair.fast_path, pair.application):
        with http_client(server.url) as client:
            quota = {"producer_byte_rate": 1}
            assert client.put("/v1/quotas", params={"client_id": "greedy"}, json=quota).status_code == 200
    case = Case("greedy", True, headers=(("Client-Id", "greedy"),))
    pair.ask(CASES[0].encode())
    before = pair.fast_path.fast_path_count
    fast, slow = pair.ask(case.encode())
    assert comparable(fast) == comparable(slow)
    assert int(fast.headers["throttle-time-ms"]) == json.loads(fast.body)["throttle_time_ms"] > 0
    assert pair.fast_path.fast_path_count == before + HAS_PARSER
    # It does not wait.
    fast, slow = pair.ask(case.encode())
    assert comparable(fast) == comparable(slow)
    assert (fast.status, json.loads(fast.body)["code"]) == (429, "throttled")


@pytest.mark.parametrize("piece_bytes", [1, 50, 1000])
def test_known_heads_with_bodies_in_pieces(pair: Pair, piece_bytes: int) -> None:
    requests = [Case("a", True, body=record_batch(b"x" * size)).encode() for size in (1, 2000, 30, 400)]
    with connect(pair.fast_path) as connection:
        connection.send(requests[0])
        assert connection.read_answer().status == 200
        row = b"".join(requests)
        for start in range(0, len(row), piece_bytes):
            connection.send(row[start : start + piece_bytes])
        offsets = [json.loads(connection.read_answer().body)["base_offset"] for _ in requests]
    assert offsets == list(range(offsets[0], offsets[0] + 4))


def test_bodies_that_are_collected_count_among_all(pair: Pair) -> None:
    budget = pair.fast_path.service.parts.body_budget
    request = Case("large", True, body=record_batch(b"x" * 200_000)).encode()
    with connect(pair.fast_path) as connection:
        for _ in range(2):
            connection.send(request)
            assert connection.read_answer().status == 200
        connection.send(request[:150_000])
        connection.send(request[150_000:190_000])
        assert budget.held_bytes <= 200_200
        connection.send(request[190_000:])
        assert connection.read_answer().status == 200
        assert budget.held_bytes == 0
        # Without room it is the application's, which says so.
        taken = budget.hold(budget.limit_bytes)
        before = pair.fast_path.fast_path_count
        connection.send(request[:150_000])
        answer = connection.read_answer()
        taken.release()
    assert (answer.status, json.loads(answer.body)["code"]) == (503, "overloaded")
    assert pair.fast_path.fast_path_count == before
