"""Clients that ask on without taking their answers: few are made, the others wait as bytes; compiled and not."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.http.test_idle_connections import let_the_idle_time_pass
from tests.http.test_plain_requests import batch, connect, get, one_turn, post, server
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer, http_client

pytestmark = pytest.mark.needs_local("it tests the fast path of plain requests")

__all__ = ["server"]


@contextlib.contextmanager
def untaken(
    server: ThreadedServer, request: bytes, count: int, behind: bytes = b""
) -> Iterator[tuple[Connection, Any]]:
    """A client that has sent ``count`` known requests in one turn and takes nothing yet, and its connection there."""
    with Connection(server.port, receive_buffer_bytes=4096) as connection:
        for _ in range(3):
            connection.send(request)
            assert connection.read_answer().status == 200
        ours = connection.socket.getsockname()
        (protocol,) = (each for each in list(server.connections) if each.client == ours)
        sending = threading.Thread(target=connection.send, args=(request * count + behind,))
        with one_turn(server):
            sending.start()
        # Another answer comes when the loop has been through what it was given.
        with http_client(server.url) as client:
            while not protocol.flow.write_paused:
                assert client.get("/healthz").status_code == 200
            assert client.get("/healthz").status_code == 200
        yield connection, protocol
        sending.join(30)
        assert not sending.is_alive()


@pytest.fixture
def many(server: ThreadedServer) -> bytes:
    """A known fetch of 15 KB."""
    with connect(server) as connection:
        connection.send(post("interval", batch(b"v" * 15_000, 1)))
        assert connection.read_answer().status == 200
    return get("interval", "offset=0")


def test_who_takes_no_answers_has_few_of_them_made(server: ThreadedServer, many: bytes) -> None:
    count = 4000
    with untaken(server, many, count) as (connection, protocol):
        assert protocol.transport.get_write_buffer_size() < 256 * 1024
        bodies = [connection.read_answer().body for _ in range(count)]
    assert len(set(bodies)) == 1
    assert len(bodies[0]) > 15_000


def test_what_comes_behind_untaken_answers_is_answered_in_order(server: ThreadedServer, many: bytes) -> None:
    """Heads that are known and not, and appends: none is carried out before its turn."""
    row = [post("interval", batch(b"a", 1)), get("group", "offset=0"), post("interval", batch(b"b", 1)), many]
    with untaken(server, many, 300, b"".join(row)) as (connection, _):
        assert server.service.parts.engine.manager.partition("interval", 0).snapshot.log_end_offset == 1
        answers = [connection.read_answer() for _ in range(304)]
    assert [answer.status for answer in answers] == [200] * 304
    assert [json.loads(answers[place].body)["base_offset"] for place in (300, 302)] == [1, 2]
    assert answers[303].body.startswith(answers[0].body)


def test_who_never_takes_its_answers_is_cut_off(server: ThreadedServer, many: bytes) -> None:
    with untaken(server, many, 1000) as (connection, protocol):
        # The first look sees how much there is to take, the second that nothing was taken.
        for _ in range(2):
            assert not protocol.transport.is_closing()
            let_the_idle_time_pass(server, connection)
        assert protocol.transport.is_closing()
        assert connection.read_to_end().count(b"HTTP/1.1 200") < 1000


def test_a_stop_waits_for_no_request_that_is_behind_untaken_answers(server: ThreadedServer, many: bytes) -> None:
    with untaken(server, many, 1000) as (connection, _):
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        content = connection.read_to_end()
        stopping.join(60)
        assert not stopping.is_alive()
    assert 0 < content.count(b"HTTP/1.1 200") < 1000
