"""s2-lite, the S2 API over HTTP on a local directory, built from its crate."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Iterator
from functools import partial
from typing import Self

from bench.peers import packages
from bench.peers.peer import (
    BATCH_MESSAGES,
    CONNECTIONS,
    FILL_BATCHES,
    CannotRunError,
    Figures,
    Surroundings,
    Way,
    closed_loop,
    messages,
)
from bench.peers.sockets import FixedWork, HttpWork, Started, connect, free_port, is_whole_http

BASIN = "rollway-bench"
_HEADERS = f"Host: 127.0.0.1\r\nS2-Basin: {BASIN}\r\nS2-Format: raw\r\nAccept: application/json\r\n"


class S2Lite:
    name = "s2-lite"
    batching = "500 records in one JSON request"

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._server: Started | None = None

    def __enter__(self) -> Self:
        around = self._surroundings
        program = packages.cargo("s2-lite", "server", around.cache, may_install=around.may_install)
        port = free_port()
        directory = around.directory / "s2"
        (directory / "data").mkdir(parents=True)
        # An append is answered after the next flush: the shortest interval that is not all flushing.
        environment = {**os.environ, "SL8_FLUSH_INTERVAL": "2ms"}
        command = [program, "--local-root", str(directory / "data"), "--port", str(port)]
        self._server = Started(self.name, command, port, directory, around.cores.server, environment)
        self._call("POST", "/v1/basins", {"basin": BASIN, "config": {"create_stream_on_append": True}})
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()

    def _call(self, method: str, path: str, document: object) -> None:
        assert self._server is not None
        with contextlib.closing(http.client.HTTPConnection(*self._server.address, timeout=60)) as connection:
            connection.request(method, path, json.dumps(document), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status >= 300:
                raise CannotRunError(f"{method} {path} is answered {answer.status}: {answer.read()[:200]!r}.")

    def version(self) -> str:
        return ""

    def ways(self, message_bytes: int) -> Iterator[Way]:
        assert self._server is not None
        stream = f"/v1/streams/messages-{message_bytes}/records"
        values = [{"body": message.decode()} for message in messages(message_bytes)]
        body = json.dumps({"records": values}, separators=(",", ":"))
        head = f"POST {stream} HTTP/1.1\r\n{_HEADERS}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        append = f"{head}\r\n{body}".encode()
        # Of several requests that make one stream at the same time it refuses all but the first.
        self._send(append, 1)
        yield Way("append", "JSON over HTTP", "written", partial(_append, self._server, append), is_http=True)
        self._send(append, max(1, int(FILL_BATCHES * self._surroundings.scale)))
        read = f"GET {stream}?seq_num=0&count={BATCH_MESSAGES} HTTP/1.1\r\n{_HEADERS}\r\n".encode()
        yield Way("fetch", "JSON over HTTP", "", partial(_fetch, self._server, read), is_http=True)

    def _send(self, request: bytes, count: int) -> None:
        assert self._server is not None
        with connect(self._server.address) as connection:
            work = HttpWork(connection, request)
            for _ in range(count):
                work.send()
                work.finish()


def _append(server: Started, request: bytes, seconds: float) -> Figures:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(server.address)) for _ in range(CONNECTIONS)]
        works = [HttpWork(each, request) for each in opened]
        return closed_loop(server.pid, works, seconds)


def _fetch(server: Started, request: bytes, seconds: float) -> Figures:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(server.address)) for _ in range(CONNECTIONS)]
        works = [FixedWork(each, request, is_whole_http, BATCH_MESSAGES) for each in opened]
        return closed_loop(server.pid, works, seconds)
