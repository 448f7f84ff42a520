"""Long keys and many partitions: what grows with them is done beside the loop, or a little in each of its turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex

import httpx
import pytest

from app.engine.appending import AppendOptions
from app.event_loop.pools import INLINE_BYTES_MAX
from app.fetch import offset_lookup
from app.produce import enlisting, idempotence, partitioning, produce_dispatch, producing
from app.record_json.translate import ParsedRecords
from tests.support.servers import ThreadedServer

NDJSON = "application/x-ndjson"
LONG = "k" * (INLINE_BYTES_MAX + 1)
PARTITIONS = 40


@pytest.fixture
def wide(client: httpx.Client, topic: str) -> Iterator[str]:
    """A topic of many partitions."""
    path = f"{topic}-wide"
    settings = {"partitions": PARTITIONS, "config": {"flush.policy": "interval"}}
    client.put(path, json=settings).raise_for_status()
    yield path
    client.delete(path).raise_for_status()


class Watched:
    """Which threads call a function, and how often the loop does in one of its turns."""

    def __init__(self, server: ThreadedServer, monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> None:
        loop = server.service.loop
        assert loop is not None
        self._loop = loop
        self._loop_thread = 0
        server.call(self._note_loop)
        self.calls: list[bool] = []
        """Of each call whether it was made on the loop."""
        self.most_in_turn = 0
        self._in_turn = 0
        self._call: Callable[..., Any] = getattr(place, name)
        monkeypatch.setattr(place, name, self)

    def _note_loop(self) -> None:
        self._loop_thread = threading.get_ident()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls.append(threading.get_ident() == self._loop_thread)
        if self.calls[-1]:
            if not self._in_turn:
                self._loop.call_soon(self._end_turn)
            self._in_turn += 1
            self.most_in_turn = max(self.most_in_turn, self._in_turn)
        return self._call(*arguments, **named)

    def _end_turn(self) -> None:
        self._in_turn = 0


@pytest.mark.parametrize("headers", [{}, {"Content-Type": NDJSON}, {"Idempotency-Key": "long"}], ids=str)
def test_long_keys_are_hashed_beside_the_loop(
    server: ThreadedServer,
    client: httpx.Client,
    wide: str,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
) -> None:
    """31 KB of gzip with a key of 31 MB stopped the loop for five seconds."""
    hashing = Watched(server, monkeypatch, partitioning, "partitions_for_keys")
    record = f'{{"key":"{LONG}","value":"v"}}'
    body = record if NDJSON in headers.values() else f'{{"records":[{record}]}}'
    answer = client.post(f"{wide}/records", content=body, headers={"Content-Type": "application/json", **headers})
    assert answer.status_code == 200
    assert hashing.calls == [False]


@pytest.mark.parametrize("place", ["key", "header", "header-name"])
def test_keys_and_headers_are_encoded_beside_the_loop(
    server: ThreadedServer, client: httpx.Client, topic: str, wide: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Only values were counted: 60 KB of gzip with a header of 60 MB stopped the loop for a second."""
    record: dict[str, Any] = {
        "key": {"key": LONG, "value": ""},
        "header": {"value": "", "headers": [{"name": "n", "value": LONG}]},
        "header-name": {"value": "", "headers": [{"name": LONG, "value": ""}]},
    }[place]
    encoding = Watched(server, monkeypatch, producing, "validated_batches")
    for path in (f"{wide}/records", f"{topic}/partitions/0/records"):
        # An unpaired escape is not plain, so that the records are read and encoded in two steps.
        records = {"records": [record, {"value": "", "headers": []}, {"key": "\u00e9\x01", "value": None}]}
        answer = client.post(path, json=records, headers={"Idempotency-Key": place})
        assert answer.status_code == 200, answer.text
    assert encoding.calls
    assert encoding.calls[-1] is False


class Counted(list[Any]):
    """A list that counts how often one of its members is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        self.looks += len(self)
        return super().__iter__()

    def __getitem__(self, place: SupportsIndex | slice) -> Any:
        self.looks += 1
        return super().__getitem__(place)


def test_a_record_is_looked_at_as_often_for_many_partitions_as_for_few(
    server: ThreadedServer, client: httpx.Client, topic: str, wide: str
) -> None:
    """Each partition counted the bytes of the whole request: 15,000 records for 2,700 partitions took 1.7 s."""
    loop = server.service.loop
    assert loop is not None

    def looks_for(name: str, partitions: int) -> int:
        count = 10 * PARTITIONS
        values = Counted([b"v"] * count)
        parsed = ParsedRecords([None] * count, values, [1] * count, None, [row % partitions for row in range(count)], 1)
        producing_all = producing.produce_to_topic(server.service.parts.producing, name, parsed, AppendOptions())
        outcomes = asyncio.run_coroutine_threadsafe(producing_all, loop).result(30)
        assert [outcome.problem for outcome in outcomes] == [None] * partitions
        return values.looks

    few, many = (looks_for(wide.rsplit("/", 1)[1], count) for count in (2, PARTITIONS))
    assert many <= 2 * few


def test_many_partitions_take_turns(
    server: ThreadedServer, client: httpx.Client, wide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind of request a few parts are worked on before others have their turn of the loop."""
    name = wide.rsplit("/", 1)[1]
    parts = [{"topic": name, "partition": number, "records": [{"value": "v"}]} for number in range(PARTITIONS)]
    prepared = Watched(server, monkeypatch, produce_dispatch, "_prepared")
    submitted = Watched(server, monkeypatch, enlisting, "_submit")
    assert client.post("/v1/produce", json={"partitions": parts}).status_code == 200
    assert (len(prepared.calls), len(submitted.calls)) == (PARTITIONS, PARTITIONS)
    assert prepared.most_in_turn <= 8
    assert submitted.most_in_turn <= 32

    keyed = Watched(server, monkeypatch, idempotence, "_produce_rows")
    records = [{"partition": number, "value": "v"} for number in range(PARTITIONS)]
    for headers in ({}, {"Idempotency-Key": "many"}):
        assert client.post(f"{wide}/records", json={"records": records}, headers=headers).status_code == 200
    assert len(keyed.calls) == PARTITIONS
    assert keyed.most_in_turn <= 32

    failed = Watched(server, monkeypatch, offset_lookup, "problem_for")
    queries = [{"topic": "none", "partition": number, "timestamp": 1} for number in range(200)]
    assert client.post("/v1/offsets", json={"queries": queries}).status_code == 404
    assert len(failed.calls) == 200
    assert failed.most_in_turn <= 64
