"""Clients of TLS that do not read: what waits for them is counted and bounded, and they are cut off, as over plain HTTP
(`sec-tls-slow-readers-memory.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from app.http.connection import response_cycle
from app.http.transfer.send_queue import taken_mark
from tests.support.access import Authority
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer

MIB = 1024 * 1024
# A quarter of it is more than the kernel takes of an answer for a client that reads nothing.
BUDGET_BYTES = 8 * MIB
READERS = 16
# One answer is a quarter of what is free at most: 2 MiB when no other is held.
RECORDS_PATH = "/v1/topics/slow/partitions/0/records"
REQUEST = f"GET {RECORDS_PATH}?offset=0&max_bytes=8388608 HTTP/1.1\r\nHost: a\r\n\r\n".encode()
WAIT_SECONDS = 30.0


class Secured(NamedTuple):
    """A service that speaks TLS, with a topic of 8 MiB, and how to connect."""

    server: ThreadedServer
    connect: Callable[[], Connection]


@contextlib.contextmanager
def secured_service(tmp_path: Path, stall_timeout_ms: int) -> Iterator[Secured]:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    context = ssl.create_default_context(cafile=str(authority.file))
    with ThreadedServer(
        tmp_path / "data",
        tls_certificate=certificate,
        tls_key=key,
        decoded_answers_bytes_max=BUDGET_BYTES,
        send_stall_timeout_ms=stall_timeout_ms,
    ) as server:
        with httpx.Client(base_url=f"https://localhost:{server.port}", verify=context, timeout=30) as client:
            client.put("/v1/topics/slow", json={}).raise_for_status()
            body = json.dumps({"records": [{"value": "x" * 1000}] * 900})
            for _ in range(8):
                client.post(RECORDS_PATH, content=body, headers={"Content-Type": "application/json"}).raise_for_status()
        yield Secured(server, lambda: Connection(server.port, receive_buffer_bytes=4096, tls=context))


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    with secured_service(tmp_path, 600_000) as running:
        yield running


def until(is_so: Callable[[], bool]) -> bool:
    """Wait until it is so; false when it has not become so in time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            return False
    return True


def bytes_on_their_way(secured: Secured) -> tuple[int, int]:
    """Let readers ask for large answers and read nothing: bytes of all answers that began, and bytes that are held."""
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(secured.connect()) for _ in range(READERS)]
        total_bytes = 0
        for reader in readers:
            reader.send(REQUEST)
            status, headers = reader.read_head()
            if status == 200:
                total_bytes += int(headers["content-length"])
        return total_bytes, secured.server.service.parts.answer_budget.held_bytes


def test_answers_nobody_reads_stay_within_the_budget(secured: Secured) -> None:
    total_bytes, held_bytes = bytes_on_their_way(secured)
    assert total_bytes <= 2 * BUDGET_BYTES + READERS * response_cycle.TLS_PIECE_BYTES
    assert held_bytes > 0
    assert until(lambda: secured.server.service.parts.answer_budget.held_bytes == 0)


def test_the_check_finds_answers_that_are_written_whole(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted defect: the whole answer is given to the transport, which takes it, and its hold is released."""
    monkeypatch.setattr(response_cycle, "TLS_PIECE_BYTES", 1 << 40)
    total_bytes, _ = bytes_on_their_way(secured)
    assert total_bytes > 2 * BUDGET_BYTES + READERS * 64 * 1024


def test_a_reader_that_takes_nothing_is_cut_off(tmp_path: Path) -> None:
    with secured_service(tmp_path, 300) as secured, secured.connect() as reader:
        reader.send(REQUEST)
        status, headers = reader.read_head()
        assert status == 200
        assert until(lambda: not secured.server.connections)
        assert secured.server.service.parts.answer_budget.held_bytes == 0
        with contextlib.suppress(ssl.SSLError):
            assert len(reader.read_to_end()) < int(headers["content-length"])


def test_a_reader_that_takes_little_is_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a sip whenever the service has looked whether it took anything: the answer arrives whole."""
    looks: list[int] = []

    def look(transport: asyncio.WriteTransport, *, is_tls: bool) -> int:
        looks.append(taken_mark(transport, is_tls=is_tls))
        return looks[-1]

    monkeypatch.setattr(response_cycle, "taken_mark", look)
    with secured_service(tmp_path, 300) as secured, secured.connect() as reader:
        reader.send(REQUEST)
        _, headers = reader.read_head()
        length, body = int(headers["content-length"]), b""
        for _ in range(5):
            count = len(looks)
            assert until(lambda count=count: len(looks) > count)  # type: ignore[misc]
            # More than TCP's window of this socket, so that it is opened again.
            sip_bytes = len(body) + 64 * 1024
            while len(body) < sip_bytes:
                body += reader.read_some()
        while len(body) < length and (piece := reader.read_some()):
            body += piece
        assert len(body) == length


def test_every_byte_arrives_as_it_was_made(secured: Secured) -> None:
    with secured.connect() as reader:
        for _ in range(3):
            reader.send(REQUEST)
            answer = reader.read_answer()
            records = json.loads(answer.body)["records"]
            assert [record["offset"] for record in records] == list(range(len(records)))
            assert len(answer.body) > 4 * response_cycle.TLS_PIECE_BYTES
