"""Clients that leave while a long poll waits, with other requests behind it: nothing of their connections is read."""

from __future__ import annotations

import socket
import struct

import httpx
import pytest

from app.http.connection import response_cycle
from tests.support.servers import ThreadedServer

# The encoding keeps it from the fast path.
POLL = (
    b"GET /v1/topics/left/partitions/0/records?offset=0&wait_ms=60000 HTTP/1.1\r\nHost: localhost\r\n"
    b"Accept-Encoding: gzip\r\n\r\n"
)
PLAIN_POLL = b"GET /v1/topics/left/partitions/0/records?offset=0&wait_ms=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
MANY = b'{"max_wait_ms":60000,"partitions":[{"topic":"left","partition":0,"fetch_offset":0}]}'
FETCH = (
    b"POST /v1/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(MANY), MANY)
)
BODY = (
    b"POST /v1/topics/left/partitions/0/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 10000000\r\n\r\n{"
)


@pytest.mark.parametrize("how", ["close", "reset", "says all"])
@pytest.mark.parametrize(
    "sent",
    [[PLAIN_POLL * 2], [POLL * 2], [POLL, POLL], [POLL * 5], [FETCH * 2], [POLL + BODY], [FETCH, POLL, FETCH]],
    ids=["plain", "two", "one after the other", "five", "fetches", "before a body", "mixed"],
)
def test_a_poll_of_a_client_that_has_left_is_given_up(
    client: httpx.Client, server: ThreadedServer, monkeypatch: pytest.MonkeyPatch, sent: list[bytes], how: str
) -> None:
    """They waited until their time was up: 60 seconds here."""
    monkeypatch.setattr(response_cycle, "CLIENT_LOOK_SECONDS", 0.02)
    client.put("/v1/topics/left").raise_for_status()
    waiters = server.service.parts.engine.partitions.waiters
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        for piece in sent:
            connection.sendall(piece)
            while len(waiters) != 1:
                server.call(lambda: None)
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how == "says all":
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(12) == b"HTTP/1.1 200"
    # All of them: one that begins to wait behind another is given up too.
    while len(waiters) or any(each.pipeline for each in server.connections):
        server.call(lambda: None)


def test_a_poll_of_a_client_that_is_there_waits_on(
    client: httpx.Client, server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_cycle, "CLIENT_LOOK_SECONDS", 0.001)
    looks: list[bool] = []
    has_left = response_cycle.has_left

    def counted(transport: object) -> bool:
        looks.append(has_left(transport))  # type: ignore[arg-type]
        return looks[-1]

    monkeypatch.setattr(response_cycle, "has_left", counted)
    client.put("/v1/topics/left").raise_for_status()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(POLL * 2)
        while len(looks) < 5:
            server.call(lambda: None)
        assert len(server.service.parts.engine.partitions.waiters) == 1
        assert not any(looks)
        client.post("/v1/topics/left/partitions/0/records", json={"records": [{"value": "x"}]}).raise_for_status()
        assert connection.recv(12) == b"HTTP/1.1 200"
