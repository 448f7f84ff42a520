"""A connection whose answer is on its way is not idle, whatever time it had left when it asked; compiled and not."""

from __future__ import annotations

import socket

import pytest

from tests.http.test_plain_requests import RAW, batch, connect, get, offset_of, post, server
from tests.support.edge_server import Connection
from tests.support.held_flushes import HeldFlush
from tests.support.servers import ThreadedServer, http_client

pytestmark = pytest.mark.needs_local("it tests the fast path of plain requests")

__all__ = ["server"]


def let_the_idle_time_pass(server: ThreadedServer, connection: Connection) -> None:
    """What an idle connection had left when it sent its request is over."""
    ours = connection.socket.getsockname()
    (protocol,) = (each for each in list(server.connections) if each.client == ours)

    def look() -> None:
        protocol._deadline = 0.0
        protocol._look()

    server.call(look)
    # Those that are late have their turns one after the other.
    server.call(lambda: None)


def test_who_waits_for_an_fsync_is_not_idle(server: ThreadedServer) -> None:
    engine, request = server.service.parts.engine, post("group", batch(b"v"))
    with connect(server) as connection:
        for _ in range(3):
            connection.send(request)
            assert connection.read_answer().status == 200
        engine.partitions._flush_pace._hopeful_count = 0
        held = HeldFlush(engine.manager, engine.manager.partition("group", 0))
        connection.send(request)
        assert held.reached.wait(30)
        let_the_idle_time_pass(server, connection)
        held.go_on.set()
        assert offset_of(connection.read_answer()) == 6


def test_who_reads_a_large_answer_is_not_idle(server: ThreadedServer) -> None:
    with Connection(int(server.url.rpartition(":")[2]), receive_buffer_bytes=4096) as connection:
        for _ in range(8):
            connection.send(post("interval", batch(b"v" * 400_000)))
            assert connection.read_answer().status == 200
        request = get("interval", "offset=0&max_bytes=100000000")
        for _ in range(2):
            connection.send(request)
            assert len(connection.read_answer().body) > 6_000_000
        connection.send(request)
        assert connection.socket.recv(1, socket.MSG_PEEK)
        let_the_idle_time_pass(server, connection)
        assert len(connection.read_answer().body) > 6_000_000


def test_who_waits_for_the_application_is_not_idle(server: ThreadedServer) -> None:
    """A long poll whose head is known."""
    with connect(server) as connection, http_client(server.url) as client:
        connection.send(post("interval", batch(b"v")))
        assert connection.read_answer().status == 200
        for _ in range(3):
            connection.send(get("interval", "offset=0&wait_ms=20000"))
            assert connection.read_answer().status == 200
        connection.send(get("interval", "offset=2&wait_ms=20000"))
        waiters = server.service.parts.engine.partitions.waiters
        while not len(waiters):
            assert client.get("/healthz").status_code == 200
        let_the_idle_time_pass(server, connection)
        posted = client.post(
            "/v1/topics/interval/partitions/0/records", content=batch(b"w"), headers={"Content-Type": RAW}
        )
        assert posted.status_code == 200
        assert connection.read_answer().body.endswith(b"w\x00")
