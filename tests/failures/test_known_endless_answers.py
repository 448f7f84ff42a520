"""Answers that never end: bytes that drip, chunks without a bound, and gzip that becomes gigabytes."""

from __future__ import annotations

import gzip
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

import pytest

from rollway.client import (
    AnswerTooLargeError,
    ClientSettings,
    InvalidAnswerError,
    RollwayClient,
    ServiceUnavailableError,
)

OK = b"HTTP/1.1 200 OK\r\n"
FETCHED = OK + b"Next-Offset: 1\r\nLog-Start-Offset: 0\r\nHigh-Watermark: 1\r\nLast-Stable-Offset: 1\r\n"
KIB = 1024


@contextmanager
def sending(pieces: Iterator[bytes], *, pause_seconds: float = 0) -> Iterator[tuple[str, list[int]]]:
    """A server that sends these to its one client until that has had enough; its address, and the bytes it has sent."""
    sent = [0]
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                for piece in pieces:
                    connection.sendall(piece)
                    sent[0] += len(piece)
                    if stopped.wait(pause_seconds):
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", sent
        stopped.set()
        thread.join()


def dripping(start: bytes, drop: bytes) -> Iterator[bytes]:
    yield start
    for _ in count():
        yield drop


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"", b"H"),
        (OK + b"A: ", b"a"),
        (OK, b"A: a\r\n"),
        (OK + b"Content-Length: 1000000\r\n\r\n", b" "),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_an_answer_that_drips_is_given_up(start: bytes, drop: bytes) -> None:
    """Each byte came within the timeout of a read, so the client waited without end."""
    with sending(dripping(start, drop), pause_seconds=0.02) as (url, _):
        settings = ClientSettings(url, retries=0, read_timeout_ms=10_000, request_timeout_ms=150)
        with RollwayClient(settings) as client, pytest.raises(ServiceUnavailableError) as given_up:
            client.describe_topic("t")
    assert "no answer in time" in str(given_up.value)


def endless_chunks() -> Iterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n"
    for _ in count():
        yield b"4000\r\n" + b" " * 0x4000 + b"\r\n"


def endless_gzip() -> Iterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n"
    member = gzip.compress(bytes(4 * 1024 * KIB))
    for _ in count():
        yield b"%x\r\n%b\r\n" % (len(member), member)


def announced(length: int) -> Iterator[bytes]:
    yield FETCHED + b"Content-Length: %d\r\n\r\n" % length
    for _ in range(length // KIB):
        yield bytes(KIB)


@pytest.mark.parametrize("pieces", [endless_chunks, endless_gzip, lambda: announced(600 * 1024 * KIB)])
def test_an_answer_without_a_bound_is_not_read_into_memory(pieces: object) -> None:
    assert callable(pieces)
    with sending(pieces()) as (url, sent):
        settings = ClientSettings(url, retries=0, answer_bytes_max=2 * 1024 * KIB)
        with RollwayClient(settings) as client, pytest.raises(AnswerTooLargeError) as refused:
            client.describe_topic("t")
    assert "more than 2097152 bytes" in str(refused.value)
    assert isinstance(pickle.loads(pickle.dumps(refused.value)), InvalidAnswerError)
    assert sent[0] < 32 * 1024 * KIB


def test_a_fetch_may_be_as_large_as_was_asked_for() -> None:
    """And no larger than the settings allow, if that is more: the first batch comes whole in any case."""
    size = 3 * 1024 * KIB
    for max_bytes, bytes_max, is_taken in ((size, 1, True), (1, size, True), (1, 1, False)):
        with sending(announced(size)) as (url, _):
            settings = ClientSettings(url, retries=0, answer_bytes_max=bytes_max)
            with RollwayClient(settings) as client:
                if is_taken:
                    found = client.fetch("t", 0, offset=0, max_bytes=max_bytes, isolation="read_uncommitted")
                    assert len(found.batches) == size
                else:
                    with pytest.raises(AnswerTooLargeError):
                        client.fetch("t", 0, offset=0, max_bytes=max_bytes, isolation="read_uncommitted")


@pytest.mark.parametrize("name", ["request_timeout_ms", "answer_bytes_max"])
def test_limits_are_at_least_one(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0"):
        ClientSettings("http://localhost", **{name: 0})  # type: ignore[arg-type]
