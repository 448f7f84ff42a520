"""A defect of ours on the way of plain requests, before their handler: its client is told, others notice nothing."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.fast_path.declarations import FAST_PATH
from app.fast_path.plain_requests import PlainRequests
from app.server import connections
from rollway.records import Record, columns_from_records, encode_batch
from tests.support.servers import ThreadedServer

PATH = "/v1/topics/t/partitions/0/records"
RAW = "application/vnd.kafka.record-batch.v2"


class PlantedError(Exception):
    """What no handler expects."""


@pytest.fixture
def server(twin: str, tmp_path: Path) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path / "data") as server, httpx.Client(base_url=server.url) as client:
        assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
        # The application has validated these queries, and the fast path knows their targets.
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            for request_bytes in (produce(), fetch()) * 3:
                connection.sendall(request_bytes)
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                answer.read()
                assert answer.status == 200
        yield server


def batch(size: int = 100) -> bytes:
    return encode_batch(columns_from_records([Record(0, time.time_ns() // 1_000_000, None, b"x" * size)]))


def produce(size: int = 100) -> bytes:
    body = batch(size)
    head = f"POST {PATH}?acks=1 HTTP/1.1\r\nHost: a\r\nContent-Type: {RAW}\r\nX-Request-Id: mine\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def fetch() -> bytes:
    return f"GET {PATH}?offset=0 HTTP/1.1\r\nHost: a\r\nAccept: {RAW}\r\nX-Request-Id: mine\r\n\r\n".encode()


def plant(monkeypatch: pytest.MonkeyPatch, server: ThreadedServer, call: str) -> None:
    """Let a call of the fast path fail for the requests of this module."""
    fast_path: Any = getattr(server.app.state, FAST_PATH)
    planned = getattr(fast_path, call)

    def fail(*given: Any) -> Any:
        heads = [each for each in given if hasattr(each, "content_length")]
        if any(head.request_id != b"mine" for head in heads):
            return planned(*given)
        raise PlantedError(f"a defect in {call}")

    if call == "resolve":
        fast_path.targets.clear()
    for target in fast_path.targets.values():
        # The ways in C answer without the fast path.
        target.enqueue = None
        target.compiled_handler = fail if call == "call_of" else None
    monkeypatch.setattr(fast_path, call, fail)


def asked(server: ThreadedServer, *pieces: bytes) -> bytes:
    """All that a connection answers until it is closed."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        for piece in pieces:
            connection.sendall(piece)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def check(server: ThreadedServer, caplog: pytest.LogCaptureFixture, applied: str, *pieces: bytes) -> None:
    with httpx.Client(base_url=server.url, timeout=30) as other:
        assert other.get("/healthz").status_code == 200
        with caplog.at_level(logging.ERROR):
            answer = asked(server, *pieces)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 500 "), answer
        assert b"connection: close" in head.lower()
        problem = json.loads(body)
        assert (problem["code"], problem["applied"], problem["request_id"]) == ("internal_error", applied, "mine")
        assert problem["instance"] == PATH
        assert any("mine" in record.getMessage() and record.exc_info for record in caplog.records)
        # The connection that was there before has noticed nothing.
        assert other.get("/healthz").status_code == 200


@pytest.mark.parametrize(("request_bytes", "applied"), [(produce(), "unknown"), (fetch(), "no")], ids=["write", "read"])
@pytest.mark.parametrize("call", ["resolve", "serve"])
def test_a_defect_before_the_handler_is_answered(
    server: ThreadedServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
    request_bytes: bytes,
    applied: str,
) -> None:
    plant(monkeypatch, server, call)
    # What follows on the connection is not looked at.
    check(server, caplog, applied, request_bytes + request_bytes)


@pytest.mark.parametrize("call", ["hold_body", "hold_large", "serve"])
def test_a_defect_before_a_body_in_pieces_is_answered(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    plant(monkeypatch, server, call)
    # Below what a sink takes, or above.
    whole = produce(100_000 if call == "hold_body" else 900_000)
    check(server, caplog, "unknown", *([whole[:1000], whole[1000:]] if call == "serve" else [whole[:1000]]))


def test_a_defect_behind_a_quick_answer_is_answered(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if connections.compiled is None:
        pytest.skip("the way in Python makes its calls in serve")
    plant(monkeypatch, server, "call_of")
    check(server, caplog, "unknown", produce())


def test_the_check_finds_a_connection_that_ends_without_an_answer(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted: how it was."""

    def escape(self: PlainRequests, _: object, error: Exception) -> None:
        self.cut()

    monkeypatch.setattr(PlainRequests, "fail_request", escape)
    plant(monkeypatch, server, "serve")
    with pytest.raises((AssertionError, ConnectionError)):
        check(server, caplog, "unknown", produce())
