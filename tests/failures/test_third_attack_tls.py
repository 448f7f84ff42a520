"""TLS connections whose clients leave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.http.response_cycle import EdgeCycle
from app.http.send_queue import taken_mark
from tests.access import Authority
from tests.edge_server import Connection
from tests.servers import ThreadedServer

RECORDS = "/v1/topics/t/partitions/0/records"
LARGE = f"GET {RECORDS}?offset=0&max_bytes=8388608 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Secured(NamedTuple):
    """A service that speaks TLS, and who trusts it."""

    server: ThreadedServer
    context: ssl.SSLContext

    def connect(self) -> Connection:
        return Connection(self.server.port, receive_buffer_bytes=4096, tls=self.context)


@contextlib.contextmanager
def secured(directory: Path, **settings: Any) -> Iterator[Secured]:
    authority = Authority(directory)
    certificate, key = authority.issue("server")
    context = ssl.create_default_context(cafile=str(authority.file))
    with ThreadedServer(directory / "data", tls_certificate=certificate, tls_key=key, **settings) as server:
        yield Secured(server, context)


@contextlib.contextmanager
def with_records(directory: Path) -> Iterator[Secured]:
    """As ``secured``, with a topic of 4 MB."""
    with secured(directory) as made:
        with httpx.Client(base_url=f"https://localhost:{made.server.port}", verify=made.context) as client:
            client.put("/v1/topics/t").raise_for_status()
            body = json.dumps({"records": [{"value": "x" * 1000}] * 900})
            for _ in range(4):
                client.post(RECORDS, content=body, headers={"Content-Type": "application/json"}).raise_for_status()
        yield made


def test_nothing_is_written_to_a_connection_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the loop told of the loss, the rest of the answer was thrown away piece by piece, with a warning for each;
    or the look at what its client had taken ended with a traceback."""
    marks: list[int] = []
    send_pieces = EdgeCycle._send_pieces

    async def lose_and_send(cycle: EdgeCycle, message: Any) -> None:
        cycle.transport.abort()
        await send_pieces(cycle, message)
        while cycle.transport.get_extra_info("socket") is not None:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
        marks.append(taken_mark(cycle.transport, is_tls=True))

    with with_records(tmp_path) as made, made.connect() as connection:
        monkeypatch.setattr(EdgeCycle, "_send_pieces", lose_and_send)
        connection.send(LARGE)
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            while connection.socket.recv(65536):
                pass
        deadline = time.monotonic() + 20
        while not marks:
            assert time.monotonic() < deadline
    assert "SSL connection is closed" not in caplog.text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_file_is_not_sent_over_a_connection_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was set for the time of sending was set back on a transport that was there no more: a traceback."""
    waited: list[bool] = []

    async def lose(cycle: EdgeCycle) -> None:
        cycle.transport.abort()
        # Until the transport is closed.
        while not cycle.disconnected:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        waited.append(True)

    until_written = EdgeCycle._until_written

    async def fill_and_wait(cycle: EdgeCycle) -> None:
        cycle.transport.write(bytes(8 * 1024 * 1024))
        cycle.flow.pause_writing()
        await until_written(cycle)

    monkeypatch.setattr(EdgeCycle, "_until_written", fill_and_wait)
    monkeypatch.setattr(EdgeCycle, "_wait_for_writing", lose)
    with ThreadedServer(tmp_path / "data", has_hot_tier=False) as server, Connection(server.port) as connection:
        with httpx.Client(base_url=server.url) as client:
            client.put("/v1/topics/t").raise_for_status()
            client.post(RECORDS, json={"records": [{"value": "x" * 100_000}]}).raise_for_status()
        head = f"GET {RECORDS}?offset=0 HTTP/1.1\r\nHost: a\r\nAccept: application/vnd.kafka.record-batch.v2\r\n\r\n"
        connection.send(head.encode())
        connection.read_to_end()
        deadline = time.monotonic() + 20
        while not waited:
            assert time.monotonic() < deadline
    assert waited
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
