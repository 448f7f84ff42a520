"""The reader of a connection: limits of heads, trailers and framing, offers of other protocols, and CONNECT."""

from __future__ import annotations

from typing import Any

import pytest

from app.http.connection.connection_limits import ConnectionLimits, Refusal, problem_of
from app.http.connection.request_reader import RequestReader
from app.http.connection.stages import Stage
from app.settings import Settings

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\n"


class Recorder:
    """A connection that keeps all calls of its reader."""

    limits = ConnectionLimits.of(Settings(request_header_bytes_max=1024, request_header_count_max=8))

    def __init__(self) -> None:
        self.parser: Any = None
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.stage = Stage.IDLE
        self.body_bytes = 0
        self.requests: list[tuple[bytes, list[tuple[bytes, bytes]], int | None]] = []
        self.bodies: list[bytes] = []
        self.ended_count = 0

    def on_message_begin(self) -> None:
        self.stage, self.url, self.headers, self.body_bytes = Stage.HEAD, b"", [], 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def begin_request(self, content_length: int | None) -> None:
        self.requests.append((self.url, self.headers, content_length))
        self.bodies.append(b"")
        self.stage = Stage.BODY

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        self.stage = Stage.IDLE
        self.ended_count += 1


@pytest.fixture
def connection() -> Recorder:
    return Recorder()


@pytest.fixture
def reader(connection: Recorder) -> RequestReader:
    return RequestReader(connection)


def refused(reader: RequestReader, *pieces: bytes) -> int:
    """Feed ``pieces``, of which the last is refused, and return the status of the refusal."""
    for piece in pieces[:-1]:
        assert reader.feed(piece)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the parser's error, or ours
        reader.feed(pieces[-1])
    return problem_of(raised.value).status


def test_requests_are_read_in_any_pieces(reader: RequestReader, connection: Recorder) -> None:
    whole = 2 * (HEAD + b"Content-Length: 3\r\n\r\nabc")
    for at in range(len(whole)):
        assert reader.feed(whole[at : at + 1])
    headers = [(b"host", b"localhost"), (b"content-length", b"3")]
    assert connection.requests == [(b"/v1/x", headers, 3)] * 2
    assert (connection.bodies, connection.ended_count) == ([b"abc", b"abc"], 2)


def test_heads_are_bounded_in_bytes_and_number(connection: Recorder) -> None:
    for headers in (b"A: " + b"x" * 1024, b"\r\n".join(b"A%d: x" % number for number in range(8))):
        assert refused(RequestReader(connection), HEAD + headers + b"\r\n\r\n") == 431
    # One header without an end, of which the parser itself keeps everything.
    assert refused(RequestReader(connection), HEAD + b"A: x", b"x" * 1024, b"x" * 1024, b"x") == 431
    assert connection.requests == []


def test_trailers_are_counted_and_dropped(reader: RequestReader, connection: Recorder) -> None:
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
    assert reader.feed(chunked + b"Late: x\r\n\r\n")
    ((_, headers, length),) = connection.requests
    assert (length, connection.bodies, connection.ended_count) == (None, [b"abc"], 1)
    assert b"late" not in dict(headers)
    assert refused(reader, chunked + b"".join(b"A%d: x\r\n" % number for number in range(8))) == 431


def test_chunk_framing_is_bounded(reader: RequestReader) -> None:
    # A size with leading zeros is framing without a byte of body.
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    assert refused(reader, head, b"0" * 1024, b"0" * 1024, b"0") == 400


def test_an_offer_of_another_protocol_is_ignored(reader: RequestReader, connection: Recorder) -> None:
    offer = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    assert reader.feed(HEAD + offer + b"Content-Length: 3\r\n\r\nabc" + HEAD + b"\r\n")
    assert [(url, length) for url, _, length in connection.requests] == [(b"/v1/x", 3), (b"/v1/x", 0)]
    assert b"upgrade" not in dict(connection.requests[0][1])
    assert (connection.bodies, connection.ended_count) == ([b"abc", b""], 2)


def test_nothing_is_read_behind_a_connect(reader: RequestReader, connection: Recorder) -> None:
    assert not reader.feed(b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD + b"\r\n")
    assert len(connection.requests) == 1


def test_a_request_line_of_another_protocol_is_refused(reader: RequestReader, connection: Recorder) -> None:
    with pytest.raises(Refusal) as refusal:
        reader.feed(HEAD + b"\r\nOPTIONS /x RTSP/1.0\r\nCSeq: 1\r\n\r\n")
    assert refusal.value.problem.status == 400
    # The request before it was whole.
    assert (connection.ended_count, connection.url) == (1, b"")
