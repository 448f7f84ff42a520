"""Rollway itself, in the same loop as its peers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from typing import Self

from bench.peers.peer import (
    BATCH_MESSAGES,
    CONNECTIONS,
    FILL_BATCHES,
    Figures,
    Surroundings,
    Way,
    closed_loop,
    messages,
)
from bench.peers.sockets import FixedWork, HttpWork, connect, is_whole_http
from bench.requests import JSON, RAW, get, post, records_path
from bench.rollway_server import RollwayServer
from rollway.records import Record, columns_from_records, encode_batch

TIMESTAMP_MS = 1_700_000_000_000


class Rollway:
    name = "Rollway"
    batching = "raw: one opaque record batch of 500, made before; JSON: 500 records in one request"

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._server = RollwayServer(surroundings.directory / "rollway", surroundings.cores.server)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def version(self) -> str:
        return ""

    def ways(self, message_bytes: int) -> Iterator[Way]:
        server, kind = self._server, "raw batch over HTTP"
        bodies = {RAW: encoded_batch(message_bytes), JSON: _document(message_bytes)}
        server.create_topic("append", flush_policy="interval")
        for media_type, name in ((RAW, kind), (JSON, "JSON over HTTP")):
            measure = partial(_append, server, post(records_path("append"), bodies[media_type], media_type))
            yield Way("append", name, "written", measure, is_http=True)
        server.delete_topic("append")
        server.create_topic("fsynced", flush_policy="group")
        yield Way("append", kind, "fsynced", partial(_append, server, post(records_path("fsynced"), bodies[RAW])), True)
        server.delete_topic("fsynced")
        server.create_topic("fetch", flush_policy="interval")
        self._fill(post(records_path("fetch"), bodies[RAW]))
        path = f"{records_path('fetch')}?offset=0"
        raw = get(f"{path}&max_bytes={len(bodies[RAW])}")
        yield Way("fetch", kind, "", partial(_fetch, server, raw), is_http=True)
        records = get(f"{path}&max_records={BATCH_MESSAGES}", JSON)
        yield Way("fetch", "JSON over HTTP", "", partial(_fetch, server, records), is_http=True)
        server.delete_topic("fetch")

    def _fill(self, request: bytes) -> None:
        with connect(self._server.address) as connection:
            work = HttpWork(connection, request)
            for _ in range(max(1, int(FILL_BATCHES * self._surroundings.scale))):
                work.send()
                work.finish()


def encoded_batch(message_bytes: int) -> bytes:
    """The messages as one uncompressed record batch."""
    values = messages(message_bytes)
    records = [Record(number, TIMESTAMP_MS, None, value, ()) for number, value in enumerate(values)]
    return bytes(encode_batch(columns_from_records(records)))


def _document(message_bytes: int) -> bytes:
    values = [{"value": message.decode()} for message in messages(message_bytes)]
    return json.dumps({"records": values}, separators=(",", ":")).encode()


def _append(server: RollwayServer, request: bytes, seconds: float) -> Figures:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(server.address)) for _ in range(CONNECTIONS)]
        works = [HttpWork(each, request) for each in opened]
        return closed_loop(server.pid, works, seconds)


def _fetch(server: RollwayServer, request: bytes, seconds: float) -> Figures:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(server.address)) for _ in range(CONNECTIONS)]
        works = [FixedWork(each, request, is_whole_http, BATCH_MESSAGES) for each in opened]
        return closed_loop(server.pid, works, seconds)
