"""Answers that are slices of files, over real sockets: by sendfile, and by the copying road of other servers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import itertools
import os
import random
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.transfer import file_transfer, page_cache, transfer_turns
from app.http.transfer.zero_copy import EXTENSION, PIECE_BYTES, SliceResponse
from log_model.offsets import Position
from log_model.reads import FileSlice
from storage.disk.file_system import LocalFileSystem
from tests.support.edge_server import Connection, RunningServer, serving

MIB = 1024 * 1024
CONTENT_BYTES = 3 * MIB + 17
CONTENT = random.Random(7).randbytes(CONTENT_BYTES)

SLICES: dict[str, list[tuple[int, int]]] = {
    "all": [(0, CONTENT_BYTES)],
    "none": [],
    "one": [(5, 1)],
    "several": [(0, 10), (100, 0), (2 * MIB, MIB), (7, 70_000)],
    "too-long": [(0, 1000), (CONTENT_BYTES - 500, 501)],
}


def expected(name: str) -> bytes:
    return b"".join(CONTENT[start : start + length] for start, length in SLICES[name])


class FileApplication:
    """Answers a path with the slices of that name; counts the files it sent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ended = threading.Semaphore(0)
        self.is_offered: bool | None = None
        self.slices: dict[str, list[tuple[int, int]]] = dict(SLICES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.is_offered = EXTENSION in scope.get("extensions", {})
        name = scope["path"][1:]
        file = LocalFileSystem().open(self.path, writable=False)
        try:
            if name == "chunked":
                await self._send_chunked(file.fileno(), send)
                return
            slices = [FileSlice(file, Position(start), length) for start, length in self.slices[name]]
            await SliceResponse(slices, {"Next-Offset": "7"}, "application/octet-stream")(scope, receive, send)
        finally:
            file.close()
            self.ended.release()

    async def _send_chunked(self, descriptor: int, send: Send) -> None:
        class Opened:
            def fileno(self) -> int:
                return descriptor

        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"before ", "more_body": True})
        await send({"type": EXTENSION, "file": Opened(), "offset": 10, "count": 5, "more_body": True})
        os.lseek(descriptor, CONTENT_BYTES - 3, os.SEEK_SET)
        await send({"type": EXTENSION, "file": Opened()})


@pytest.fixture(scope="module")
def content_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "content"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture(params=["uvloop", "asyncio", "copying"])
def served(content_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[RunningServer, FileApplication]]:
    """On both loops, and on a server without the extension."""
    app = FileApplication(content_path)
    http = HttpToolsProtocol if request.param == "copying" else None
    with serving(app, http=http, loop="asyncio" if request.param == "asyncio" else "uvloop") as server:
        yield server, app


def get(name: str, *, method: str = "GET") -> bytes:
    return f"{method} /{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


def resident_bytes() -> int:
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the directory of now, not of pathlib's laziness


@pytest.mark.parametrize("name", ["all", "none", "one", "several"])
def test_slices_arrive_whole_and_in_order(served: tuple[RunningServer, FileApplication], name: str) -> None:
    server, _ = served
    answer = server.request(get(name))
    assert answer.body == expected(name)
    assert answer.headers["content-length"] == str(len(expected(name)))
    assert answer.headers["next-offset"] == "7"
    assert answer.headers["content-type"] == "application/octet-stream"


def test_the_server_offers_the_extension_and_others_do_not(served: tuple[RunningServer, FileApplication]) -> None:
    server, app = served
    server.request(get("one"))
    assert app.is_offered == (server.server.config.http_protocol_class is not HttpToolsProtocol)


def test_head_has_the_length_and_no_bytes(served: tuple[RunningServer, FileApplication]) -> None:
    server, _ = served
    with server.connect() as connection:
        connection.send(get("all", method="HEAD") + get("one"))
        assert connection.read_answer(is_head=True).headers["content-length"] == str(CONTENT_BYTES)
        assert connection.read_answer().body == expected("one")


def test_the_connection_is_kept(served: tuple[RunningServer, FileApplication]) -> None:
    server, _ = served
    with server.connect() as connection:
        for name in ("all", "one", "several", "none", "all"):
            connection.send(get(name))
            assert connection.read_answer().body == expected(name)


def test_pipelined_answers_keep_their_order(served: tuple[RunningServer, FileApplication]) -> None:
    server, _ = served
    names = ["all", "one", "several", "none", "one", "all"]
    with server.connect() as connection:
        connection.send(b"".join(get(name) for name in names))
        for name in names:
            assert connection.read_answer().body == expected(name)


def test_a_slow_reader_gets_everything(served: tuple[RunningServer, FileApplication]) -> None:
    server, app = served
    with server.connect(receive_buffer_bytes=4096) as connection:
        connection.send(get("all"))
        assert connection.read_answer().body == CONTENT
    assert app.ended.acquire(timeout=10)


def test_a_file_that_is_too_short_cuts_the_connection(served: tuple[RunningServer, FileApplication]) -> None:
    server, app = served
    with server.connect() as connection:
        connection.send(get("too-long"))
        status, headers = connection.read_head()
        assert (status, headers["content-length"]) == (200, "1501")
        body = connection.read_to_end()
        assert len(body) < 1501
        assert expected("too-long").startswith(body)
    assert app.ended.acquire(timeout=10)


def test_a_chunked_answer_may_hold_files(content_path: Path) -> None:
    with serving(FileApplication(content_path)) as server, server.connect() as connection:
        connection.send(get("chunked"))
        _, headers = connection.read_head()
        assert headers["transfer-encoding"] == "chunked"
        body = b""
        while not body.endswith(b"0\r\n\r\n"):
            body += connection.read_some()
        assert body == b"7\r\nbefore \r\n5\r\n" + CONTENT[10:15] + b"\r\n3\r\n" + CONTENT[-3:] + b"\r\n0\r\n\r\n"


def test_http_1_0_and_half_closed_clients_get_the_whole_file(content_path: Path) -> None:
    with serving(FileApplication(content_path)) as server, server.connect(receive_buffer_bytes=4096) as connection:
        connection.send(b"GET /all HTTP/1.0\r\n\r\n")
        _, headers = connection.read_head()
        connection.socket.shutdown(socket.SHUT_WR)
        assert headers["connection"] == "close"
        assert connection.read_to_end() == CONTENT


def test_a_client_that_leaves_in_the_middle_costs_nothing(served: tuple[RunningServer, FileApplication]) -> None:
    server, app = served
    big = app.slices["big"] = [(0, CONTENT_BYTES)] * 20
    assert server.request(get("one")).status == 200
    server.wait_until(lambda: not server.server.server_state.connections)
    before = open_descriptors()
    while app.ended.acquire(blocking=False):
        pass
    for reset in (False, True):
        with server.connect(receive_buffer_bytes=4096) as connection:
            connection.send(get("big"))
            _, headers = connection.read_head()
            assert int(headers["content-length"]) == len(big) * CONTENT_BYTES
            if reset:
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        assert app.ended.acquire(timeout=20)
    server.wait_until(lambda: not server.server.server_state.connections)
    assert open_descriptors() == before


def test_a_client_that_takes_nothing_is_cut_off(content_path: Path) -> None:
    app = FileApplication(content_path)
    app.slices["big"] = [(0, CONTENT_BYTES)] * 20
    with serving(app, send_stall_timeout_ms=50) as server, server.connect(receive_buffer_bytes=4096) as connection:
        connection.send(get("big"))
        assert app.ended.acquire(timeout=20)
        server.wait_until(lambda: not server.server.server_state.connections)
        connection.read_head()
        assert len(connection.read_to_end()) < 20 * CONTENT_BYTES


def test_a_client_that_takes_no_copy_is_cut_off_too(content_path: Path) -> None:
    """The stall timer holds for answers that are no files."""

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        sent_after_end = itertools.count()
        while next(sent_after_end) < 1000:
            await send({"type": "http.response.body", "body": b"x" * MIB, "more_body": True})
        ended.release()

    ended = threading.Semaphore(0)
    with serving(endless, send_stall_timeout_ms=50) as server, server.connect(receive_buffer_bytes=4096) as connection:
        connection.send(get("any"))
        assert ended.acquire(timeout=20)
        server.wait_until(lambda: not server.server.server_state.connections)


def test_a_transfer_that_is_cut_off_at_shutdown_ends(content_path: Path) -> None:
    app = FileApplication(content_path)
    app.slices["big"] = [(0, CONTENT_BYTES)] * 20
    connection: Connection
    with serving(app) as server:
        connection = server.connect(receive_buffer_bytes=4096)
        connection.send(get("big"))
        connection.read_head()
    assert app.ended.acquire(timeout=10)
    with connection:
        assert len(connection.read_to_end()) < 20 * CONTENT_BYTES


def test_small_requests_are_answered_beside_a_bulk_transfer(content_path: Path) -> None:
    app = FileApplication(content_path)
    app.slices["big"] = [(0, CONTENT_BYTES)] * 20
    with serving(app) as server, server.connect(receive_buffer_bytes=4096) as bulk:
        bulk.send(get("big"))
        bulk.read_head()
        # The bulk transfer waits for its client now, or sends: both must let others through.
        for _ in range(20):
            assert server.request(get("one")).body == expected("one")


def test_a_file_closed_by_its_owner_is_still_sent_whole(content_path: Path) -> None:
    """A descriptor's number may be another file's at once; the transfer has its own."""

    async def closing(scope: Scope, receive: Receive, send: Send) -> None:
        file = LocalFileSystem().open(content_path, writable=False)
        response = SliceResponse([FileSlice(file, Position(0), CONTENT_BYTES)])
        sending = asyncio.create_task(response(scope, receive, send))
        await transferring.wait()
        file.close()
        await sending

    transferring = asyncio.Event()
    wait = file_transfer.FileTransfer._wait

    def seen(self: file_transfer.FileTransfer) -> None:
        wait(self)
        transferring.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_transfer.FileTransfer, "_wait", seen)
        with serving(closing) as server, server.connect(receive_buffer_bytes=4096) as connection:
            connection.send(get("any"))
            assert connection.read_answer().body == CONTENT


def read_in_turns(connections: Sequence[Connection], content: bytes) -> None:
    """Read an answer with this body from each, a little from one after the other."""
    for connection in connections:
        connection.read_head()
    left = dict.fromkeys(connections, memoryview(content))
    while left:
        for connection, rest in list(left.items()):
            piece = connection.read_some()
            assert piece
            assert rest[: len(piece)] == piece
            left[connection] = rest[len(piece) :]
            if not left[connection]:
                del left[connection]


def test_a_crowd_of_large_answers_arrives_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who must queue behind others begins with its turn."""
    first_piece_bytes = transfer_turns.TransferTurns.first_piece_bytes
    began: list[int] = []

    def counted(self: transfer_turns.TransferTurns, size_bytes: int) -> int:
        began.append(first_piece_bytes(self, size_bytes))
        return began[-1]

    # Small, so that a turn of the loop ends before each transfer.
    monkeypatch.setattr(transfer_turns, "TURN_BYTES", 256 * 1024)
    monkeypatch.setattr(transfer_turns.TransferTurns, "first_piece_bytes", counted)
    content = random.Random(6).randbytes(12 * MIB + 5)
    path = tmp_path / "large"
    path.write_bytes(content)
    app = FileApplication(path)
    app.slices["large"] = [(0, len(content))]
    with serving(app) as server, contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(server.connect()) for _ in range(12)]
        for _ in range(50):
            if 0 in began:
                break
            for connection in crowd:
                connection.send(get("large"))
            read_in_turns(crowd, content)
    assert 0 in began
    assert any(began)


def test_what_is_cold_behind_what_is_warm_is_sent_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop looked at the same cold place again and again: a little of what it had found warm was left before it."""
    warm_bytes, size = 3 * MIB, 7 * MIB
    monkeypatch.setattr(page_cache, "seems_cached", lambda _, offset, length: offset + length <= warm_bytes)
    content = random.Random(5).randbytes(size)
    path = tmp_path / "half-warm"
    path.write_bytes(content)
    app = FileApplication(path)
    app.slices["half-warm"] = [(0, size)]
    with serving(app) as server, server.connect() as connection:
        connection.send(get("half-warm"))
        assert connection.read_answer().body == content


@pytest.mark.parametrize("is_cached", [True, False])
def test_half_a_gib_is_sent_without_holding_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cached: bool
) -> None:
    """Cached data leaves on the loop, cold data from a thread; neither passes through memory of ours."""
    monkeypatch.setattr(page_cache, "seems_cached", lambda *_: is_cached)
    size = 512 * MIB
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size - 4)
        file.write(b"last")
    app = FileApplication(path)
    app.slices["sparse"] = [(0, size)]
    buffer = bytearray(MIB)
    with serving(app) as server, server.connect() as connection:
        before = resident_bytes()
        most = 0
        connection.send(get("sparse"))
        _, headers = connection.read_head()
        assert headers["content-length"] == str(size)
        received = len(connection.read_some())
        last = b""
        while received < size:
            count = connection.socket.recv_into(buffer)
            assert count
            last = (last + bytes(buffer[max(0, count - 4) : count]))[-4:]
            received += count
            most = max(most, resident_bytes())
        assert received == size
        assert last == b"last"
        assert most - before < 32 * MIB


def test_the_copying_road_holds_a_piece_at_a_time(content_path: Path) -> None:
    """Without the extension, reads are bounded whatever the slice."""
    sizes: list[int] = []

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: dict[str, object]) -> None:
            body = message.get("body", b"")
            assert isinstance(body, bytes)
            sizes.append(len(body))
            await send(message)

        file = LocalFileSystem().open(content_path, writable=False)
        await SliceResponse([FileSlice(file, Position(0), CONTENT_BYTES)])(scope, receive, note)  # type: ignore[arg-type]
        file.close()

    with serving(watched, http=HttpToolsProtocol) as server:
        answer = server.request(get("any"))
    assert hashlib.sha256(answer.body).digest() == hashlib.sha256(CONTENT).digest()
    assert max(sizes) == PIECE_BYTES


def test_an_answer_longer_or_shorter_than_its_length_is_no_answer(content_path: Path) -> None:
    def application(counts: Sequence[int], length: int) -> object:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            with content_path.open("rb") as file:
                headers = [(b"content-length", str(length).encode())]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                for number, count in enumerate(counts):
                    more = number < len(counts) - 1
                    await send({"type": EXTENSION, "file": file, "offset": 0, "count": count, "more_body": more})

        return app

    for counts, length in (([5, 6], 10), ([5, 4], 10)):
        with serving(application(counts, length)) as server, server.connect() as connection:  # type: ignore[arg-type]
            connection.send(get("any"))
            connection.read_head()
            assert len(connection.read_to_end()) < length
