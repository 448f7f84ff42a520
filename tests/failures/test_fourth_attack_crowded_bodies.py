"""Many bodies on their way in: what comes of them at the same time, and what their decoders and streams hold."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard

from app.event_loop.turns import Turns
from app.http.bodies.body import ZSTD_WINDOW_BYTES_MAX, iterate_body
from app.record_json.work_rooms import RequestWork
from app.server.connections import BODIES_PER_TURN
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer
from tests.unit.app.http.test_body import make_request

MIB = 1024 * 1024
CROWD = 20
LAST_BLOCK = b"\x01\x00\x00"
TIMEOUT_SECONDS = 30
QUESTIONS = b'{"queries":[{"topic":"none","partition":0,"timestamp":0}]}'


def zstd_of_one_byte(byte: bytes, size_mib: int) -> bytes:
    """The head of a frame with the largest window, and blocks of this byte. They take 32 bytes for each MiB."""
    blocks = b"".join((131072 << 3 | 2).to_bytes(3, "little") + byte for _ in range(8 * size_mib))
    return b"\x28\xb5\x2f\xfd\x00" + bytes([23 - 10 << 3]) + blocks


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline


class CountedTurns:
    """In which turn of the loop something was done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done: Counter[int] = Counter()
        self._loop = loop
        self._number = 0
        self._is_over = False
        loop.call_soon_threadsafe(self._tick)

    def _tick(self) -> None:
        self._number += 1
        if not self._is_over:
            self._loop.call_soon(self._tick)

    def note(self) -> None:
        self.done[self._number] += 1

    def end(self) -> None:
        self._is_over = True


def most_in_a_turn(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of a crowd's bodies, whose last bytes come at the same time, are parsed in one turn of the loop."""
    loop = server.service.loop
    assert loop is not None
    turns = CountedTurns(loop)
    parse = RequestWork.parse

    async def parse_and_note(work: RequestWork, *rest: object) -> object:
        turns.note()
        return await parse(work, *rest)  # type: ignore[arg-type]

    head = b"POST /v1/offsets HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    begun = head % len(QUESTIONS) + QUESTIONS[:-1]
    with contextlib.ExitStack() as stack, monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(RequestWork, "parse", parse_and_note)
        crowd = [stack.enter_context(Connection(server.port)) for _ in range(CROWD)]
        for connection in crowd:
            connection.send(begun)
        # Each waits for the rest of its body.
        wait_for(
            lambda: sum(each.cycle is not None and not each.cycle.body for each in list(server.connections)) >= CROWD
        )
        all_are_there = threading.Event()
        held = pool.submit(server.call, lambda: all_are_there.wait(TIMEOUT_SECONDS))
        for connection in crowd:
            connection.send(QUESTIONS[-1:])
        all_are_there.set()
        held.result(TIMEOUT_SECONDS)
        assert {connection.read_answer().status for connection in crowd} == {404}
    turns.end()
    assert turns.done.total() == CROWD
    return max(turns.done.values())


def test_bodies_that_are_whole_at_the_same_time_take_turns(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of 200 bodies of 64 KiB stopped the loop for 1.3 to 4.5 s; only the beginning of requests took turns."""
    monkeypatch.setattr(server.connection_class, "bodies", Turns(10 * CROWD))
    assert most_in_a_turn(server, monkeypatch) > 2, "planted: there are no turns"
    monkeypatch.setattr(server.connection_class, "bodies", Turns(BODIES_PER_TURN))
    # One that was let in in the turn before, and one that had nobody before it.
    assert most_in_a_turn(server, monkeypatch) <= 2


def test_zstd_becomes_a_piece_of_a_mebibyte_at_most() -> None:
    """It was 8 MiB, 100 of which took 1.7 GB at the same time: for 26 KB on the wire."""
    body = zstd_of_one_byte(b"\n", 24) + LAST_BLOCK

    async def sizes() -> list[int]:
        return [len(piece) async for piece in iterate_body(make_request([body], encodings=["zstd"]), None)]

    found = asyncio.run(sizes())
    assert sum(found) == 24 * MIB
    assert max(found) <= MIB


@pytest.fixture
def streams(server: ThreadedServer, topic: str) -> Iterator[Callable[[bytes, str], Connection]]:
    """Opens a stream of NDJSON that does not end, with these bytes in it."""
    with contextlib.ExitStack() as stack:

        def open_one(body: bytes, headers: str = "") -> Connection:
            connection = stack.enter_context(Connection(server.port))
            head = f"POST {topic}/partitions/0/records HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n"
            chunk = b"%x\r\n%b\r\n" % (len(body), body)
            connection.send(f"{head}{headers}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk)
            return connection

        yield open_one
    wait_for(lambda: not server.service.parts.body_budget.held_bytes)


@pytest.mark.parametrize("split_at", [0, 3, 5, 6, 100])
def test_the_window_of_a_decoder_is_counted(
    split_at: int, server: ThreadedServer, streams: Callable[[bytes, str], Connection]
) -> None:
    """A stream of 262 bytes held 8 MiB for as long as it liked, and 5,000 of them what the machine has."""
    budget = server.service.parts.body_budget
    body = zstd_of_one_byte(b"\n", 9)
    connection = streams(body[:split_at] or body, "Content-Encoding: zstd\r\n")
    if split_at:
        connection.send(b"%x\r\n%b\r\n" % (len(body) - split_at, body[split_at:]))
    wait_for(lambda: budget.held_bytes == ZSTD_WINDOW_BYTES_MAX)


def test_a_small_window_is_counted_as_what_it_is(
    server: ThreadedServer, streams: Callable[[bytes, str], Connection]
) -> None:
    budget = server.service.parts.body_budget
    parameters = zstandard.ZstdCompressionParameters(window_log=18, compression_level=1)
    compressing = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    streams(compressing.compress(b"\n" * MIB) + compressing.flush(), "Content-Encoding: zstd\r\n")
    wait_for(lambda: budget.held_bytes == 2**18)


def test_what_a_stream_gathers_is_counted(server: ThreadedServer, streams: Callable[[bytes, str], Connection]) -> None:
    """Two MiB of each stream were not, so that 5,000 clients had 10 GB."""
    budget = server.service.parts.body_budget
    streams(b'{"value":"' + b"x" * MIB, "")
    wait_for(lambda: budget.held_bytes == MIB + 10)


def test_a_stream_goes_on_while_bodies_hold_all_the_memory_they_may(
    server: ThreadedServer, streams: Callable[[bytes, str], Connection]
) -> None:
    """It reads little at a time. A line of more than 64 KiB, or a window, finds no room."""
    budget = server.service.parts.body_budget
    held = budget.hold(budget.limit_bytes + 1)
    try:
        goes_on = streams(b'{"value":"%b"}\n' % (b"x" * 1000) * 3_000, "")
        goes_on.send(b"0\r\n\r\n")
        status, _ = goes_on.read_head()
        assert status == 200
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += goes_on.read_some()
        assert answer.count(b'"base_offset"') > 1
        assert b'"last_offset":2999,' in answer
        for refused in (
            streams(b'{"value":"' + b"x" * 65536, ""),
            streams(zstd_of_one_byte(b"\n", 1), "Content-Encoding: zstd\r\n"),
        ):
            status, headers = refused.read_head()
            assert (status, headers["connection"]) == (503, "close")
    finally:
        held.release()
