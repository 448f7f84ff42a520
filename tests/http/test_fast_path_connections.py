"""Plain requests on real connections: in pieces, in rows, among others, and at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.edge_server import Answer, Connection
from tests.support.servers import ThreadedServer

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
OTHER = b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path_factory.mktemp("service") / "data") as running:
        yield running


def connect(server: ThreadedServer) -> Connection:
    return Connection(int(server.url.rpartition(":")[2]))


def is_health(answer: Answer) -> bool:
    return answer.status == 200 and answer.body == b'{"status":"ok"}'


@pytest.mark.needs_local("it tests the fast path of plain requests")
def test_equal_heads_are_answered_without_the_application(server: ThreadedServer) -> None:
    before = server.fast_path_count
    with connect(server) as connection:
        for _ in range(5):
            connection.send(HEALTH)
            assert is_health(connection.read_answer())
    assert server.fast_path_count == before + 5


@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 40])
def test_requests_may_come_in_any_pieces(server: ThreadedServer, piece_bytes: int) -> None:
    requests = HEALTH * 3 + OTHER + HEALTH * 2
    with connect(server) as connection:
        connection.send(HEALTH)
        assert is_health(connection.read_answer())
        for start in range(0, len(requests), piece_bytes):
            connection.send(requests[start : start + piece_bytes])
        answers = [connection.read_answer() for _ in range(6)]
        assert [is_health(answer) for answer in answers] == [True] * 3 + [False] + [True] * 2
        assert len({answer.headers["x-request-id"] for answer in answers}) == 6


def test_a_row_of_requests_is_answered_in_order(server: ThreadedServer) -> None:
    row = (HEALTH + HEALTH + OTHER + HEALTH + b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n") * 20
    with connect(server) as connection:
        connection.send(row)
        statuses = [connection.read_answer().status for _ in range(100)]
        assert statuses == [200, 200, 200, 200, 404] * 20
        connection.send(HEALTH)
        assert is_health(connection.read_answer())


@pytest.mark.needs_local("it tests the fast path of plain requests")
@pytest.mark.parametrize(
    "more",
    [
        b"Connection: close\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: websocket\r\nConnection: upgrade\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
        b"Content-Length: 5\r\n\r\nhello",
        b"If-None-Match: *\r\n",
        b"Accept: a/b\r\nAccept: b/c\r\n",
    ],
)
def test_what_is_not_plain_is_left_to_the_application(server: ThreadedServer, more: bytes) -> None:
    before = server.fast_path_count
    with connect(server) as connection:
        connection.send(HEALTH[:-2] + more + (b"" if b"\r\n\r\n" in more and more[-5:] == b"hello" else b"\r\n"))
        assert is_health(connection.read_answer())
    assert server.fast_path_count == before


def test_a_bad_head_behind_a_known_one_is_refused(server: ThreadedServer) -> None:
    with connect(server) as connection:
        connection.send(HEALTH)
        assert is_health(connection.read_answer())
        connection.send(HEALTH + HEALTH.replace(b"Host: a\r\n", b"Host : a\r\n"))
        assert is_health(connection.read_answer())
        assert connection.read_answer().status == 400
        assert connection.is_closed()


def test_a_clients_request_id_is_taken_if_it_is_one(server: ThreadedServer) -> None:
    with connect(server) as connection:
        for given, taken in ((b"mine", True), (b"not mine", False)):
            connection.send(HEALTH[:-2] + b"X-Request-Id: " + given + b"\r\n\r\n")
            answer = connection.read_answer()
            assert (answer.headers["x-request-id"] == given.decode()) is taken


def test_health_is_answered_after_the_stop_began(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server, connect(server) as connection:
        connection.send(HEALTH)
        assert is_health(connection.read_answer())
        loop = server.service.loop
        assert loop is not None
        loop.call_soon_threadsafe(server.service.release)
        connection.send(HEALTH)
        assert is_health(connection.read_answer())
