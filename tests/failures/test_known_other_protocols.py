"""Request lines of other protocols than HTTP are 400, and end the connection: the parser reads RTSP's and ICE's."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

import httpx
import pytest

from app.http.connection import parser
from tests.support.servers import ThreadedServer

HEAD = b"\r\nHost: x\r\n\r\n"
GOOD = b"GET /healthz HTTP/1.1\r\nHost: x\r\nRange: x\r\n\r\n"


def statuses(server: ThreadedServer, pieces: Sequence[bytes]) -> list[bytes]:
    """Those of the answers to these bytes, sent one piece after the other, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, piece in enumerate(pieces):
            connection.sendall(piece)
            if number + 1 < len(pieces):
                # Nothing tells that the service has read: an answer to another connection comes behind that.
                httpx.get(f"{server.url}/healthz")
        received = b""
        while data := connection.recv(65536):
            received += data
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", received)


@pytest.mark.parametrize(
    "line",
    [
        b"OPTIONS /x RTSP/1.0",
        b"OPTIONS /x RTSP/1.1",
        b"GET /healthz RTSP/1.1",
        b"DESCRIBE /x RTSP/1.0",
        b"SOURCE /x ICE/1.0",
        b"GET /healthz FOO/1.1",
        b"GET /healthz http/1.1",
    ],
)
def test_other_protocols_are_refused(server: ThreadedServer, line: bytes) -> None:
    assert statuses(server, [line + HEAD]) == [b"400"]
    # Behind others on the connection, plain and not, and behind a body.
    assert statuses(server, [GOOD.replace(b"Range: x\r\n", b"") + line + HEAD + GOOD]) == [b"200", b"400"]
    assert statuses(server, [GOOD + line + HEAD + GOOD]) == [b"200", b"400"]
    body = b"POST /v1/topics HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    assert statuses(server, [body + line + HEAD + GOOD]) == [b"405", b"400"]


@pytest.mark.parametrize("cut", [3, 9, 11, 12, 14, 16])
def test_also_in_two_pieces(server: ThreadedServer, cut: int) -> None:
    line = b"OPTIONS /x RTSP/1.0"
    assert statuses(server, [line[:cut], line[cut:] + HEAD + GOOD]) == [b"400"]


def test_what_only_looks_like_it_is_left_alone(server: ThreadedServer, client: httpx.Client, topic: str) -> None:
    text = "OPTIONS /x RTSP/1.0\r\nGET / ICE/1.0"
    path = f"{topic}/partitions/0/records"
    for _ in range(3):
        for headers in ({}, {"Range": "x", "X-Text": "GET / RTSP/1.0"}):
            sent = client.post(path, json={"records": [{"value": text * 100}]}, headers=headers)
            assert sent.status_code == 200
    query = b"GET /healthz HTTP/1.1\r\nX-A: GET / RTSP/1.0\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert statuses(server, [query]) == [b"200"]
    assert statuses(server, [query[:31], query[31:40], query[40:]]) == [b"200"]


def test_the_check_finds_lines_that_are_let_through(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the parser alone."""
    monkeypatch.setattr(parser.RequestLines, "pieces", lambda _, data, __: [data])
    with pytest.raises(AssertionError):
        test_other_protocols_are_refused(server, b"OPTIONS /x RTSP/1.0")
