"""Parts of a response on their way into a socket: budgets, full sockets, cold and short files."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.http.transfer import page_cache
from app.http.transfer.unsent_parts import SLACK_BYTES, FileEndedError, UnsentParts
from app.http.transfer.wire import Wire
from log_model.offsets import Position
from log_model.reads import FileSlice
from storage.disk.file_system import LocalFile, LocalFileSystem

CONTENT = random.Random(1).randbytes(300_000)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[LocalFile]:
    (tmp_path / "file").write_bytes(CONTENT)
    opened = LocalFileSystem().open(tmp_path / "file", writable=False)
    yield opened
    opened.close()


@pytest.fixture
def ends() -> Iterator[tuple[Wire, socket.socket]]:
    """A connection: the wire that is sent on, and the socket of its peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    with peer, ours:
        ours.setblocking(False)
        peer.settimeout(30)
        wire = Wire(ours.fileno())
        yield wire, peer
        wire.release()


def received(peer: socket.socket, size_bytes: int) -> bytes:
    pieces = b""
    while len(pieces) < size_bytes and (piece := peer.recv(size_bytes - len(pieces))):
        pieces += piece
    return pieces


def test_all_parts_are_sent_in_order(file: LocalFile, ends: tuple[Wire, socket.socket]) -> None:
    wire, peer = ends
    parts = UnsentParts([b"head", b"", FileSlice(file, Position(5), 1000), FileSlice(file, Position(0), 10)])
    assert (parts.size_bytes(), bool(parts)) == (1014, True)
    assert parts.send(wire, 1_000_000)
    assert (parts.sent_bytes, bool(parts)) == (1014, False)
    assert received(peer, 1014) == b"head" + CONTENT[5:1005] + CONTENT[:10]


def test_a_budget_ends_a_piece_unless_little_is_left(file: LocalFile, ends: tuple[Wire, socket.socket]) -> None:
    wire, peer = ends
    size_bytes = SLACK_BYTES + 2000
    parts = UnsentParts([FileSlice(file, Position(0), size_bytes)])
    assert not parts.send(wire, 1000)
    assert (parts.sent_bytes, parts.is_full, parts.is_cold) == (1000, False, False)
    assert parts.send(wire, 1000)
    assert parts.sent_bytes == size_bytes
    assert received(peer, size_bytes) == CONTENT[:size_bytes]


def test_bytes_that_were_sent_before_are_skipped(file: LocalFile, ends: tuple[Wire, socket.socket]) -> None:
    wire, peer = ends
    for sent_bytes in (2, 4, 7):
        parts = UnsentParts([b"head", FileSlice(file, Position(0), 100)])
        parts.skip(sent_bytes)
        assert parts.send(wire, 1_000_000)
        rest = (b"head" + CONTENT[:100])[sent_bytes:]
        assert (parts.sent_bytes, received(peer, len(rest))) == (104, rest)


def test_a_full_socket_is_told_from_a_cold_file(
    file: LocalFile, ends: tuple[Wire, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, peer = ends
    monkeypatch.setattr(page_cache, "seems_cached", lambda *_: False)
    parts = UnsentParts([b"head", FileSlice(file, Position(7), 100)])
    assert not parts.send(wire, 1_000_000)
    assert (parts.sent_bytes, parts.is_full, parts.is_cold) == (4, False, True)
    # As a thread sends it. The owner may close its file.
    parts.keep_file()
    file.close()
    source, position, size_bytes = parts.cold_piece()
    assert (position, size_bytes) == (7, 100)
    parts.end_cold_piece(os.sendfile(wire.descriptor, source, position, size_bytes))
    assert (parts.sent_bytes, bool(parts)) == (104, False)
    assert received(peer, 104) == b"head" + CONTENT[7:107]
    endless = UnsentParts([bytes(64 * 1024 * 1024)])
    assert not endless.send(wire, 1 << 30)
    assert (endless.is_full, endless.is_cold) == (True, False)


def test_a_file_that_is_too_short_or_closed_is_told(file: LocalFile, ends: tuple[Wire, socket.socket]) -> None:
    wire, peer = ends
    parts = UnsentParts([FileSlice(file, Position(len(CONTENT) - 10), 20)])
    assert not parts.send(wire, 1000)
    with pytest.raises(FileEndedError):
        parts.send(wire, 1000)
    assert received(peer, 10) == CONTENT[-10:]
    file.close()
    for send in (lambda closed: closed.send(wire, 1000), UnsentParts.keep_file):
        with pytest.raises(FileEndedError):
            send(UnsentParts([FileSlice(file, Position(0), 10)]))
