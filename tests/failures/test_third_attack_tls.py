"""TLS connections whose clients leave, or never begin."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.http.connection.connection_limits import TURNED_AWAY_MAX
from app.http.connection.response_cycle import EdgeCycle
from app.http.tls import tls_gate
from app.http.transfer.send_queue import taken_mark
from tests.support.access import Authority
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer

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
        while cycle.transport.get_extra_info("socket") is not None:  # noqa: ASYNC110 - no event tells of it
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
    with ThreadedServer(tmp_path / "data", has_fast_path=False) as server, Connection(server.port) as connection:
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


def silent(server: ThreadedServer, count: int, *, source: str = "127.0.0.1") -> list[socket.socket]:
    """Connections that never shake hands."""
    address = ("127.0.0.1", server.port)
    return [socket.create_connection(address, timeout=20, source_address=(source, 0)) for _ in range(count)]


def close_all(connections: list[socket.socket]) -> None:
    for each in connections:
        each.close()


def await_closed(connections: list[socket.socket], count: int) -> None:
    """Return when the service has closed this many."""
    closed = 0
    deadline = time.monotonic() + 20
    # Not select(), which knows no descriptor above 1023: other tests of this process have services open.
    with selectors.DefaultSelector() as waiting:
        for each in connections:
            waiting.register(each, selectors.EVENT_READ, each)
        while closed < count:
            assert time.monotonic() < deadline, f"{closed} are closed, not {count}"
            for ready, _ in waiting.select(1):
                with contextlib.suppress(ConnectionError):
                    assert not ready.data.recv(100)
                waiting.unregister(ready.fileobj)
                closed += 1


def test_clients_are_served_while_others_never_shake_hands(tmp_path: Path) -> None:
    """Clients that open sockets took all descriptors of the service, whatever its limits: each stayed for a minute."""
    with secured(tmp_path, connections_max=4) as made:
        crowd = silent(made.server, TURNED_AWAY_MAX + 20)
        await_closed(crowd, 20)
        assert len(made.server.handshakes) <= TURNED_AWAY_MAX
        # The crowd takes no connection from others, who are told over TLS once there are enough of them.
        told: list[int] = []
        with contextlib.ExitStack() as stack:
            while 503 not in told:
                connection = stack.enter_context(made.connect())
                connection.send(HEALTH)
                told.append(connection.read_answer().status)
        assert told == [200] * 4 + [503]
        assert len(made.server.handshakes) <= TURNED_AWAY_MAX
        close_all(crowd)


def test_a_crowd_displaces_its_own_handshakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is slow to begin, at another address, is older than all of them."""
    monkeypatch.setattr(tls_gate, "HANDSHAKES_MAX", 8)
    with secured(tmp_path) as made:
        (slow,) = silent(made.server, 1, source="127.0.0.2")
        crowd = silent(made.server, 40)
        await_closed(crowd, 33)
        with made.context.wrap_socket(slow, server_hostname="localhost") as encrypted:
            encrypted.sendall(HEALTH)
            assert encrypted.recv(100).startswith(b"HTTP/1.1 200 ")
        close_all(crowd)


def test_a_handshake_is_as_late_as_a_head(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with secured(tmp_path, request_header_timeout_ms=100) as made:
        connections = silent(made.server, 3)
        # A hello that does not end, and no hello.
        connections[1].sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        connections[2].sendall(b"\x16\x03\x01")
        await_closed(connections, 3)
        close_all(connections)
        deadline = time.monotonic() + 20
        while made.server.handshakes:
            assert time.monotonic() < deadline
        assert not made.server.connection_class.peers
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_who_speaks_no_tls_or_leaves_is_forgotten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with secured(tmp_path) as made:
        plain, gone, reset = silent(made.server, 3)
        plain.sendall(HEALTH)
        gone.close()
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        reset.close()
        with contextlib.suppress(ConnectionError):
            while plain.recv(100):
                pass
        plain.close()
        deadline = time.monotonic() + 20
        while made.server.handshakes or made.server.connection_class.peers:
            assert time.monotonic() < deadline
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(tmp_path: Path) -> None:
    with secured(tmp_path) as made, socket.create_connection(("127.0.0.1", made.server.port), timeout=20) as bare:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = made.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                bare.sendall(outgoing.read())
                incoming.write(bare.recv(65536))
        tls.write(HEALTH * 2)
        bare.sendall(outgoing.read())
        answers = b""
        while answers.count(b'{"status":"ok"}') < 2:
            try:
                answers += tls.read(65536)
            except ssl.SSLWantReadError:
                incoming.write(bare.recv(65536))


def test_a_stop_ends_handshakes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that ended behind the stop would be a connection that nothing tells of it."""
    with secured(tmp_path) as made:
        connections = silent(made.server, 3)
        deadline = time.monotonic() + 20
        while len(made.server.handshakes) < 3:
            assert time.monotonic() < deadline
        made.server.call(made.server.handshakes.stop)
        connections += silent(made.server, 1)
        await_closed(connections, 4)
    close_all(connections)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
