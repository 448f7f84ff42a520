"""The client library believes no answer whose end nobody knows, and none that it cannot have."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rollway.client import ClientSettings, OffsetOutOfRangeError, RollwayClient, ServiceUnavailableError

FETCHED = (
    b"HTTP/1.1 200 OK\r\nNext-Offset: 1234\r\nLog-Start-Offset: 0\r\nHigh-Watermark: 1300\r\n"
    b"Last-Stable-Offset: 1300\r\n"
)


@contextmanager
def answering(*pieces: bytes, times: int = 1) -> Iterator[ClientSettings]:
    """What one connection gets: ``pieces`` in order, the last of them so many times, and then its end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                try:
                    for piece in [*pieces[:-1], *[pieces[-1]] * times]:
                        connection.sendall(piece)
                except ConnectionError:
                    # The client has had enough.
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield ClientSettings(f"http://127.0.0.1:{listener.getsockname()[1]}", retries=0)
        thread.join()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (b"Content-Length: abc", "does not say where it ends"),
        (b"Content-Length: -5", "does not say where it ends"),
        (b"Content-Length: 2, 3", "Content-Length contained multiple unmatching values"),
        (b"Content-Length:", "does not say where it ends"),
        (b"Transfer-Encoding: identity", "transfer coding 'identity'"),
        (b"Transfer-Encoding: gzip", "transfer coding 'gzip'"),
        # The chunks would be records.
        (b"Transfer-Encoding: gzip, chunked", "transfer coding 'gzip, chunked'"),
        # Memory for as much was asked for at once: MemoryError, OverflowError.
        (b"Content-Length: 99999999999999", "more than any of the service"),
        (b"Content-Length: 99999999999999999999999", "does not say where it ends"),
        (b"Content-Length: 2\r\nContent-Encoding: br", "content coding 'br', which was not asked for"),
    ],
)
def test_an_answer_that_may_be_cut_is_no_success(lines: bytes, reason: str) -> None:
    """The offsets in its head say that records were passed which a cut connection has kept back."""
    with (
        answering(FETCHED + lines + b"\r\n\r\n", b"2\r\nab\r\n0\r\n\r\n") as settings,
        RollwayClient(settings) as client,
        pytest.raises(ServiceUnavailableError, match=reason),
    ):
        client.fetch("t", 0, offset=0, max_bytes=1, isolation="read_committed")


@pytest.mark.parametrize("lines", [b"Content-Length: 2", b"Content-Length: 2\r\nContent-Length: 2"])
def test_a_whole_answer_is_one(lines: bytes) -> None:
    with answering(FETCHED + lines + b"\r\n\r\nab") as settings, RollwayClient(settings) as client:
        assert client.fetch("t", 0, offset=0, max_bytes=1, isolation="read_committed").batches == b"ab"


def test_interim_answers_have_an_end() -> None:
    with (
        answering(b"HTTP/1.1 100 Continue\r\n\r\n", times=100_000) as settings,
        RollwayClient(settings) as client,
        pytest.raises(ServiceUnavailableError, match="the answer's head does not end"),
    ):
        client.list_topics()


@pytest.mark.parametrize("value", ["x", None, 1.5, [], True])
def test_an_offset_that_is_none_is_not_said(value: object) -> None:
    problem = json.dumps({"code": "offset_out_of_range", "log_start_offset": value, "log_end_offset": 7}).encode()
    head = f"HTTP/1.1 416 X\r\nContent-Type: application/problem+json\r\nContent-Length: {len(problem)}\r\n\r\n"
    with (
        answering(head.encode() + problem) as settings,
        RollwayClient(settings) as client,
        pytest.raises(OffsetOutOfRangeError) as refused,
    ):
        client.fetch("t", 0, offset=9, max_bytes=1, isolation="read_committed")
    assert (refused.value.log_start_offset, refused.value.log_end_offset) == (-1, 7)
