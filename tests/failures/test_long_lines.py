"""Long records in the command line: linear work, not quadratic (`r1a-cli-fetch-long-record.py`)."""

from __future__ import annotations

import json
import os
import threading

import httpx
import pytest

from app.cli import run
from app.cli.records import fetch
from app.cli.records.line_source import LineSource, LineSplitter
from tests.support.servers import ThreadedServer

RECORD_BYTES = 8_000_000
PIECE_BYTES = 16 * 1024


class JoiningSplitter(LineSplitter):
    """A planted defect: what ``rollway fetch`` did, joining all that has come with each piece."""

    def __init__(self) -> None:
        super().__init__()
        self._joined = b""

    def feed(self, piece: bytes) -> list[bytes]:
        self.copied_bytes += len(self._joined) + len(piece)
        lines = (self._joined + piece).split(b"\n")
        self._joined = lines.pop()
        return lines

    def finish(self) -> list[bytes]:
        return [self._joined]


def copied_bytes_of_a_long_line(splitter: LineSplitter) -> int:
    """Feed a line of 8 MB in pieces of 16 KiB, as they come from a socket."""
    lines: list[bytes] = []
    for _ in range(RECORD_BYTES // PIECE_BYTES):
        lines += splitter.feed(b"x" * PIECE_BYTES)
    lines += splitter.feed(b"\ny")
    lines += splitter.finish()
    assert [len(line) for line in lines] == [RECORD_BYTES // PIECE_BYTES * PIECE_BYTES, 1]
    return splitter.copied_bytes


def test_a_long_line_is_copied_once() -> None:
    assert copied_bytes_of_a_long_line(LineSplitter()) <= RECORD_BYTES + 1


def test_the_check_finds_a_splitter_that_joins_with_each_piece() -> None:
    assert copied_bytes_of_a_long_line(JoiningSplitter()) > 100 * RECORD_BYTES


def test_rollway_fetch_copies_a_long_record_once(
    server: ThreadedServer,
    client: httpx.Client,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    client.patch(topic, json={"config": {"max.message.bytes": 64_000_000}}).raise_for_status()
    record = {"records": [{"value": "a" * RECORD_BYTES}]}
    client.post(f"{topic}/partitions/0/records", json=record).raise_for_status()
    made: list[LineSplitter] = []

    def note() -> LineSplitter:
        made.append(LineSplitter())
        return made[-1]

    monkeypatch.setattr(fetch, "LineSplitter", note)
    assert run(["fetch", topic.rsplit("/", 1)[1], "-p", "0", "--server", server.url]) == 0
    written = capfdbinary.readouterr().out
    assert len(json.loads(written)["value"]) == RECORD_BYTES
    assert sum(splitter.copied_bytes for splitter in made) <= len(written)


def test_a_long_line_of_an_input_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour: ``rollway produce`` reads a pipe 64 KiB at a time."""
    made: list[LineSplitter] = []

    def note() -> LineSplitter:
        made.append(LineSplitter())
        return made[-1]

    monkeypatch.setattr("app.cli.records.line_source.LineSplitter", note)
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(b"x" * RECORD_BYTES + b"\n")

    writing = threading.Thread(target=write)
    writing.start()
    try:
        lines = [line for line in LineSource(reader, linger_ms=10_000).lines() if line is not None]
    finally:
        writing.join()
        os.close(reader)
    assert list(map(len, lines)) == [RECORD_BYTES]
    assert sum(splitter.copied_bytes for splitter in made) <= RECORD_BYTES
