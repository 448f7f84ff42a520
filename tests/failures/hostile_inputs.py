"""Inputs that are small on the wire and large in memory or long on the loop, and what counts their cost."""

from __future__ import annotations

import functools
import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
import zstandard

from app.fast_path import fetch_json
from app.record_json import strict_json
from rollway.records import Codec, Record, columns_from_records, encode_batch
from tests.support.servers import ThreadedServer

RAW = "application/vnd.kafka.record-batch.v2"
NDJSON = "application/x-ndjson"
MESSAGE_SET = "application/vnd.kafka.message-set"
KIB = 1024
MIB = 1024 * KIB

ANSWERS_BYTES_MAX = 8 * MIB
BODIES_BYTES_MAX = 64 * MIB
DECODING_BYTES_MAX = 640 * MIB
SETTINGS: dict[str, Any] = {
    "decoded_answers_bytes_max": ANSWERS_BYTES_MAX,
    "request_bodies_bytes_max": BODIES_BYTES_MAX,
    "decoding_bytes_max": DECODING_BYTES_MAX,
}

# What one turn of the loop may do. A millisecond of CPU time each, about.
LOOP_PARSED_BYTES_MAX = 1 * MIB
LOOP_TEXT_BYTES_MAX = 1 * MIB
LOOP_DECOMPRESSED_BYTES_MAX = 2 * MIB


def batch_of(*records: Record, codec: Codec = Codec.GZIP) -> bytes:
    """A record batch, compressed."""
    return encode_batch(columns_from_records(records), codec=codec)


def header_bomb(count: int) -> bytes:
    """A batch of one record with ``count`` empty headers: 2 bytes each, 1 bit with gzip, 25 bytes in JSON."""
    return batch_of(Record(0, 1, None, b"", (("", None),) * count))


class Bomb(NamedTuple):
    """Stored batches, small as they are."""

    name: str
    batches: Callable[[], list[bytes]]


BOMBS = [
    Bomb("headers", lambda: [header_bomb(500_000)] * 3),
    Bomb("zeros", lambda: [batch_of(Record(0, 1, None, bytes(12 * MIB)))]),
    Bomb("zeros-zstd", lambda: [batch_of(Record(0, 1, None, bytes(12 * MIB)), codec=Codec.ZSTD)]),
    Bomb("zeros-lz4", lambda: [batch_of(Record(0, 1, None, bytes(12 * MIB)), codec=Codec.LZ4)]),
    Bomb("letters", lambda: [batch_of(Record(0, 1, b"k", b"a" * (5 * MIB)))] * 2),
    Bomb("tiny", lambda: [batch_of(*[Record(place, 1, None, None) for place in range(40_000)])] * 2),
    Bomb("batches", lambda: [batch_of(Record(0, 1, None, bytes(64 * KIB)))] * 60),
    Bomb("values", lambda: [batch_of(Record(0, 1, None, b"[" + b"[]," * 1_500_000 + b"[]]"))]),
    Bomb("quotes", lambda: [batch_of(Record(0, 1, None, b'"' * (3 * MIB)))]),
    Bomb("bytes", lambda: [batch_of(Record(0, 1, None, b"\xff" * (7 * MIB)))]),
    Bomb("keys", lambda: [batch_of(Record(0, 1, b"\x01" * (2 * MIB), None), Record(1, 1, b"", b""))]),
]

FETCHES: list[tuple[str, str, dict[str, str]]] = [
    # Without an encoding the fast path is asked first.
    ("json", "records?offset=0", {"Accept-Encoding": "identity"}),
    ("ndjson", "records?offset=0", {"Accept": NDJSON, "Accept-Encoding": "identity"}),
    ("lines", "record-lines?offset=0", {"Accept-Encoding": "identity"}),
    ("base64", "records?offset=0&encoding=base64", {}),
    ("as-json", "records?offset=0&encoding=json", {}),
    ("gzip", "records?offset=0", {"Accept-Encoding": "gzip"}),
    ("committed", "records?offset=0&isolation=read_committed", {}),
    ("by-time", "records?timestamp=1", {}),
    ("messages", "records?offset=0", {"Accept": MESSAGE_SET}),
    ("record", "records/0", {}),
    ("value", "records/0/value", {}),
]


def _list_of(record: bytes, size_bytes: int) -> bytes:
    return b'{"records":[' + (record + b",") * (size_bytes // (len(record) + 1)) + b'{"value":null}]}'


class Body(NamedTuple):
    """A request with a body; ``refused`` says that a lasting refusal is right, otherwise it is carried out."""

    name: str
    method: str
    path: str
    content: Callable[[], bytes]
    refused: bool = True
    headers: Mapping[str, str] = MappingProxyType({})


_TOPIC = "/v1/topics/bodies"
_RECORDS = f"{_TOPIC}/partitions/0/records"
_GZIP = {"Content-Encoding": "gzip"}
_packed: Callable[[bytes], bytes] = functools.partial(gzip.compress, compresslevel=6, mtime=0)

BODIES = [
    Body(
        "lists",
        "POST",
        f"{_RECORDS}?encoding=json",
        lambda: _packed(_list_of(b'{"value":[]}', 24 * MIB)),
        headers=_GZIP,
    ),
    Body("twice", "POST", _RECORDS, lambda: _packed(_list_of(b'{"value":null,"value":null}', 24 * MIB)), headers=_GZIP),
    Body(
        "escapes",
        "POST",
        _RECORDS,
        lambda: _packed(_list_of(b'{"value":"\\u0041"}', 24 * MIB)),
        headers=_GZIP,
        refused=False,
    ),
    Body(
        "zstd",
        "POST",
        f"{_RECORDS}?encoding=json",
        lambda: zstandard.compress(_list_of(b'{"value":{"a":{}}}', 24 * MIB)),
        headers={"Content-Encoding": "zstd"},
    ),
    Body(
        "nested",
        "POST",
        f"{_RECORDS}?encoding=json",
        lambda: b'{"records":[{"value":' + b"[" * MIB + b"]" * MIB + b"}]}",
    ),
    Body(
        "one-list",
        "POST",
        f"{_RECORDS}?encoding=json",
        lambda: b'{"records":[{"value":[' + b"0," * (4 * MIB) + b"0]}]}",
    ),
    Body(
        "headers",
        "POST",
        _RECORDS,
        lambda: _packed(
            b'{"records":[{"value":"","headers":[' + b'{"name":"","value":null},' * 400_000 + b'{"name":""}]}]}'
        ),
        headers=_GZIP,
    ),
    Body(
        "topic-records",
        "POST",
        f"{_TOPIC}/records",
        lambda: _packed(_list_of(b'{"value":""}', 24 * MIB)),
        headers=_GZIP,
    ),
    Body(
        "keyed",
        "POST",
        _RECORDS,
        lambda: _packed(_list_of(b'{"value":""}', 24 * MIB)),
        headers={**_GZIP, "Idempotency-Key": "hostile"},
    ),
    Body(
        "parts",
        "POST",
        "/v1/produce",
        lambda: _packed(
            b'{"partitions":[{"topic":"bodies","partition":0,' + _list_of(b'{"value":""}', 24 * MIB)[1:-1] + b"}]}"
        ),
        headers=_GZIP,
    ),
    Body("no-parts", "POST", "/v1/produce", lambda: b'{"partitions":[' + b"{}," * MIB + b"{}]}"),
    Body(
        "line",
        "POST",
        f"{_RECORDS}?encoding=json",
        lambda: b'{"value":[' + b"[]," * 600_000 + b"[]]}\n",
        headers={"Content-Type": NDJSON},
    ),
    Body(
        "own-line",
        "POST",
        f"{_TOPIC}/record-lines?encoding=json",
        lambda: b'{"value":[' + b"[]," * 600_000 + b"[]]}\n",
        headers={"Content-Type": NDJSON},
    ),
    Body("fetch", "POST", "/v1/fetch", lambda: b'{"partitions":[' + b"{}," * 300_000 + b"{}]}"),
    Body("offsets", "POST", "/v1/offsets", lambda: b'{"partitions":[' + b"{}," * 300_000 + b"{}]}"),
    Body(
        "config", "PATCH", _TOPIC, lambda: json.dumps({"config": {str(number): 1 for number in range(60_000)}}).encode()
    ),
    Body(
        "topic", "PUT", "/v1/topics/hostile", lambda: b'{"config":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}"
    ),
    Body("producer", "POST", "/v1/producers", lambda: b'{"a":[' + b"[]," * 300_000 + b"[]]}"),
    Body("quotas", "PUT", "/v1/quotas?user=default", lambda: b"[" + b'"' + b"\\u0000" * 150_000 + b'"]'),
    Body("splits", "POST", f"{_TOPIC}/splits", lambda: b"[" * 900_000),
    Body("faults", "POST", "/v1/offsets", lambda: b'{"partitions":[' + b"0," * 40_000 + b"0]}"),
]


@dataclass
class LoopWork:
    """What the loop's thread does in a turn: the most of each kind, and what was parsed at once anywhere."""

    loop_thread: int
    call_soon: Callable[[Callable[[], None]], object]
    parsed_bytes_max: int = 0
    text_bytes_max: int = 0
    decompressed_bytes_max: int = 0
    values_at_once_max: int = 0
    _turn: dict[str, int] = field(default_factory=dict)

    def note(self, kind: str, size_bytes: int) -> None:
        """Count work, if it is the loop's thread that does it."""
        if threading.get_ident() != self.loop_thread:
            return
        if not self._turn:
            self.call_soon(self._end_turn)
        self._turn[kind] = self._turn.get(kind, 0) + size_bytes

    def _end_turn(self) -> None:
        for kind, size_bytes in self._turn.items():
            name = f"{kind}_bytes_max"
            setattr(self, name, max(getattr(self, name), size_bytes))
        self._turn.clear()


@pytest.fixture
def loop_work(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> LoopWork:
    """Counts what the loop of ``server`` parses and decodes."""
    return watch(server, monkeypatch)


def watch(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> LoopWork:
    """Count in the places where bytes become objects or text."""
    loop = server.service.loop
    assert loop is not None
    found: list[int] = []
    server.call(lambda: found.append(threading.get_ident()))
    work = LoopWork(found[0], loop.call_soon)
    decode, records_of = strict_json.decode, fetch_json.records_of

    def counted_decode(decoder: msgspec.json.Decoder[Any], body: bytes | bytearray, **named: Any) -> Any:
        work.note("parsed", len(body))
        work.values_at_once_max = max(work.values_at_once_max, sum(body.count(mark) for mark in b"[{,:"))
        return decode(decoder, body, **named)

    def counted_records(*arguments: Any, limits: Any, **named: Any) -> Any:
        decompressed_before, text_before = limits.meter.decompressed_bytes, limits.meter.text_bytes
        try:
            return records_of(*arguments, limits=limits, **named)
        finally:
            work.note("decompressed", limits.meter.decompressed_bytes - decompressed_before)
            work.note("text", limits.meter.text_bytes - text_before)

    for module in (
        "app.record_json.strict_json",
        "app.record_json.translate",
        "app.produce.produce_body",
        "app.fetch.multi_fetch_body",
    ):
        monkeypatch.setattr(f"{module}.decode", counted_decode)
    monkeypatch.setattr(fetch_json, "records_of", counted_records)
    return work


def store(client: httpx.Client, bomb: Bomb) -> str:
    """The partition's path, with the batches of ``bomb`` in it."""
    path = f"/v1/topics/bomb-{bomb.name}"
    # The records are of 1970, and a busy machine is not through with them at the first check of retention.
    client.put(path, json={"config": {"flush.policy": "interval", "retention.ms": -1}}).raise_for_status()
    for batch in bomb.batches():
        client.post(f"{path}/partitions/0/records", content=batch, headers={"Content-Type": RAW}).raise_for_status()
    return f"{path}/partitions/0"


def read_on(client: httpx.Client, partition: str, query: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
    """Every answer of a reader that goes on at ``next_offset``, also around what it is told it cannot have."""
    end = client.get(partition.rsplit("/partitions", 1)[0]).json()["partitions"][0]["high_watermark"]
    offset, answers = 0, 0
    while offset < end and answers < 30:
        # The fast path answers from the second time on.
        answer = client.get(f"{partition}/records?{query.replace('OFFSET', str(offset))}", headers=headers)
        yield answer
        answers += 1
        next_offset = answer.json()["next_offset"] if answer.is_error else int(answer.headers["Next-Offset"])
        assert next_offset > offset
        offset = next_offset
