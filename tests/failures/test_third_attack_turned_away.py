"""Connections beyond the limits are limited, too."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from app.http.connection import peer_protocol
from app.http.connection.connection_limits import TURNED_AWAY_MAX
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


def test_few_are_told_that_they_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose answer was on its way were counted by no limit, for seconds each."""
    # As long as the test.
    monkeypatch.setattr(peer_protocol, "LINGER_SECONDS", 60.0)
    with ThreadedServer(tmp_path / "data", connections_max=1) as server, Connection(server.port) as first:
        first.send(HEALTH)
        assert first.read_answer().status == 200
        address = ("127.0.0.1", server.port)
        crowd = [socket.create_connection(address, timeout=20) for _ in range(TURNED_AWAY_MAX + 20)]
        answers: list[bytes] = []
        for each in crowd:
            try:
                answers.append(each.recv(12))
            except ConnectionError:
                answers.append(b"")
        assert answers == [b"HTTP/1.1 503"] * TURNED_AWAY_MAX + [b""] * 20
        for each in crowd:
            each.close()
        deadline = time.monotonic() + 20
        while server.connection_class.peers.turned_away:
            assert time.monotonic() < deadline
