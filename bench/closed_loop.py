"""A closed loop: a fixed number of requests outstanding, the next one sent when an answer has come.

One thread goes around a ring of blocking sockets: take the answer of one, send its next request, go on to the next. No
selector, no event loop, no parser in the common case: an answer as long as the one before is taken to be whole. What
is left is two system calls per request, so that a server in Python on another core is busy before this is.

It never sleeps for an answer but asks again and again: waking up takes a virtual machine up to 50 us, in which the
server would run dry and be measured asleep. How long there was nothing to take is its idle time; the rest is its share
of its core, which stands in every row. A share near 100 % beside a server that is less busy says that the generator was
measured.

For large bodies the kernel does the work on this side: bodies go out by sendfile from memory, and answers are thrown
away where they arrive (``MSG_TRUNC``) instead of being copied.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from bench.machine import CONGESTION_WANTED
from bench.processes import Address, BenchError, ServerProcess
from bench.rows import Sample

ANSWER_SECONDS_MAX = 30
HEAD_BYTES_MAX = 64 * 1024
DISCARD_BYTES = 64 * 1024 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Idle:
    """Adds up the time that a loop waits."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def receive(self, receive: Callable[[memoryview, int, int], int], buffer: memoryview) -> int:
        """``recv_into`` that asks again and again until there is something.

        Raises:
            BlockingIOError: nothing came for long.
        """
        started = now = time.perf_counter()
        while now - started < ANSWER_SECONDS_MAX:
            try:
                received = receive(buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                now = time.perf_counter()
                continue
            self.seconds += now - started
            return received
        raise BlockingIOError


class Counted(NamedTuple):
    """What a loop did."""

    requests: int
    body_bytes: int
    """Bytes of answers without their heads."""
    seconds: float
    idle_seconds: float
    """How long the loop waited with no answer to take."""


def connect(address: Address, tls: ssl.SSLContext | None = None) -> socket.socket:
    """A blocking connection that fails rather than wait forever; with ``tls``, once both sides have shaken hands."""
    connection = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", ANSWER_SECONDS_MAX, 0))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", ANSWER_SECONDS_MAX, 0))
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_WANTED.encode())
    return connection if tls is None else tls.wrap_socket(connection)


@contextlib.contextmanager
def connections(address: Address, count: int, tls: ssl.SSLContext | None = None) -> Iterator[list[socket.socket]]:
    """``count`` connections, closed at the end."""
    opened: list[socket.socket] = []
    try:
        opened.extend(connect(address, tls) for _ in range(count))
        yield opened
    finally:
        for connection in opened:
            connection.close()


def failed(error: OSError) -> BenchError:
    """What happened to a connection, as a sentence."""
    if isinstance(error, BlockingIOError):
        return BenchError(f"No answer came for {ANSWER_SECONDS_MAX} s.")
    return BenchError(f"A connection failed: {error.strerror or error}.")


def head_of(data: bytes | bytearray | memoryview) -> tuple[int, int] | None:
    """Lengths of an answer's head and body; ``None`` while the head is not whole.

    Raises:
        BenchError: it is no success.
    """
    head = bytes(data)
    end = head.find(b"\r\n\r\n")
    if end < 0:
        return None
    if head[9:10] != b"2":
        raise BenchError(f"A request was refused: {head[9:400].decode('latin-1')!r}.")
    found = _LENGTH.search(head, 0, end + 2)
    if found is None and head[9:12] != b"204":
        raise BenchError("An answer has no Content-Length.")
    return end + 4, 0 if found is None else int(found[1])


def rest_of_answer(connection: socket.socket, buffer: memoryview, received: int) -> int:
    """Receive until the answer that begins ``buffer`` is whole, and return its length.

    Raises:
        BenchError: it is no success, or the connection ended.
    """
    while True:
        if not received:
            raise BenchError("The server closed a connection.")
        head = head_of(buffer[:received])
        if head is not None and received >= sum(head):
            if received > sum(head):
                raise BenchError("An answer is longer than its Content-Length.")
            return received
        more = connection.recv_into(buffer[received:])
        if not more:
            raise BenchError("The server closed a connection in the middle of an answer.")
        received += more


def take_answer(connection: socket.socket, buffer: memoryview) -> int:
    """Receive one answer into the beginning of ``buffer``, and return its length.

    Raises:
        BenchError: it is no success, or the connection ended.
    """
    return rest_of_answer(connection, buffer, connection.recv_into(buffer))


def _bear(burden_seconds: float) -> None:
    """Be busy for so long."""
    until = time.perf_counter() + burden_seconds
    while time.perf_counter() < until:
        pass


def small_requests(
    address: Address,
    requests: Sequence[bytes],
    outstanding: int,
    seconds: float,
    burden_seconds: float = 0.0,
    tls: ssl.SSLContext | None = None,
) -> Counted:
    """Repeat ``requests`` in turn on ``outstanding`` connections; answers fit 256 KiB and differ little in length.

    ``burden_seconds`` of work are added to each request: what a slower generator would measure.

    Raises:
        BenchError: an answer is no success, or did not come.
    """
    with connections(address, outstanding, tls) as opened:
        return _ring(opened, requests, seconds, burden_seconds)


def _ring(opened: list[socket.socket], requests: Sequence[bytes], seconds: float, burden_seconds: float) -> Counted:
    buffer = memoryview(bytearray(256 * 1024))
    ring = [(each, each.recv_into, each.sendall) for each in opened]
    whole = -1
    count = body = 0
    idle = Idle()
    wait, clock, length, nowait = idle.receive, time.perf_counter, len(requests), socket.MSG_DONTWAIT
    try:
        for number, (_, _, send) in enumerate(ring):
            send(requests[number % length])
        position = len(ring)
        started = clock()
        deadline = started + seconds
        while clock() < deadline:
            for connection, receive, send in ring:
                try:
                    received = receive(buffer, 0, nowait)
                except BlockingIOError:
                    received = wait(receive, buffer)
                if received != whole:
                    whole = rest_of_answer(connection, buffer, received)
                if burden_seconds:
                    _bear(burden_seconds)
                send(requests[position % length])
                position += 1
            count += len(ring)
        elapsed = clock() - started
        for connection in opened:
            body += sum(head_of(buffer[: take_answer(connection, buffer)]) or (0, 0))
    except OSError as error:
        raise failed(error) from None
    return Counted(count, body // len(ring) * count, elapsed, idle.seconds)


class LargeRequest:
    """A request that lies in memory as a file, so that sending it copies nothing on this side."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.size = len(head) + len(body)
        self._descriptor = os.memfd_create("request")
        with open(self._descriptor, "wb", closefd=False) as file:
            file.write(head)
            file.write(body)

    def send(self, connection: socket.socket) -> None:
        """Send it whole; blocks while the server does not take it.

        Raises:
            OSError: the connection failed.
        """
        sent = 0
        while sent < self.size:
            sent += os.sendfile(connection.fileno(), self._descriptor, sent, self.size - sent)

    def close(self) -> None:
        os.close(self._descriptor)


def large_bodies(address: Address, head: bytes, body: bytes, outstanding: int, seconds: float) -> Counted:
    """Send one large request again and again on ``outstanding`` connections; answers are small.

    Raises:
        BenchError: an answer is no success, or did not come.
    """
    request = LargeRequest(head, body)
    buffer = memoryview(bytearray(HEAD_BYTES_MAX))
    count = 0
    idle = Idle()
    try:
        with connections(address, outstanding) as opened:
            for connection in opened:
                request.send(connection)
            started = time.perf_counter()
            deadline = started + seconds
            while time.perf_counter() < deadline:
                for connection in opened:
                    rest_of_answer(connection, buffer, idle.receive(connection.recv_into, buffer))
                    request.send(connection)
                count += len(opened)
            elapsed = time.perf_counter() - started
            for connection in opened:
                take_answer(connection, buffer)
    except OSError as error:
        raise failed(error) from None
    finally:
        request.close()
    return Counted(count, 0, elapsed, idle.seconds)


class _Transfer:
    """One connection that receives large answers and throws their bodies away."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._remaining = 0
        self._piece = bytearray(2048)

    def receive(self, discard: bytearray) -> tuple[int, bool]:
        """Take what there is: how many bytes of a body, and whether the answer is now whole.

        Raises:
            BenchError: it is no success, or the connection ended.
        """
        taken = 0
        if not self._remaining:
            # The head and the beginning of the body, copied; the rest is not.
            size = self.connection.recv_into(self._piece)
            head = head_of(memoryview(self._piece)[:size]) if size else None
            if head is None:
                raise BenchError("The server closed a connection, or sent its head in pieces.")
            taken = size - head[0]
            self._remaining = head[1] - taken
            if not self._remaining:
                return taken, True
        try:
            size = self.connection.recv_into(discard, min(self._remaining, len(discard)), _DISCARD)
        except BlockingIOError:
            return taken, False
        if not size:
            raise BenchError("The server closed a connection in the middle of an answer.")
        self._remaining -= size
        return taken + size, not self._remaining


_DISCARD = socket.MSG_TRUNC | socket.MSG_DONTWAIT


class Probe:
    """A small request, asked at fixed times beside large ones by the same loop."""

    def __init__(self, request: bytes, per_second: float) -> None:
        self._request = request
        self._interval = 1 / per_second
        self._buffer = memoryview(bytearray(HEAD_BYTES_MAX))
        self._due = 0.0
        self.is_waiting = False
        self.latencies: list[float] = []

    def ask_when_due(self, connection: socket.socket, now: float) -> None:
        """Send the request when its time has come; its latency counts from when it was due."""
        if not self.is_waiting and now >= self._due:
            # A first request, or one after a pause, is due now: time without a request is not latency.
            self._due = self._due or now
            connection.sendall(self._request)
            self.is_waiting = True

    def take(self, connection: socket.socket) -> None:
        """Take the answer.

        Raises:
            BenchError: it is no success.
        """
        take_answer(connection, self._buffer)
        now = time.perf_counter()
        self.latencies.append(now - self._due)
        self._due += self._interval
        self.is_waiting = False


def large_answers(
    address: Address, requests: Sequence[bytes], outstanding: int, seconds: float, probe: Probe | None = None
) -> Counted:
    """Ask ``requests`` in turn on ``outstanding`` connections and throw large answers away as they come.

    ``probe`` is asked meanwhile, on a connection of its own.

    Raises:
        BenchError: an answer is no success, or did not come.
    """
    discard = bytearray(DISCARD_BYTES)  # never written to, so it takes no memory
    count = body = position = 0
    idle = 0.0
    try:
        with (
            connections(address, outstanding) as opened,
            connect(address) as aside,
            contextlib.closing(select.epoll()) as poll,
        ):
            poll.register(aside.fileno(), select.EPOLLIN)
            transfers = {connection.fileno(): _Transfer(connection) for connection in opened}
            for number, transfer in transfers.items():
                poll.register(number, select.EPOLLIN)
                transfer.connection.sendall(requests[position % len(requests)])
                position += 1
            started = last = time.perf_counter()
            deadline = started + seconds
            while (now := time.perf_counter()) < deadline or not body:
                if probe is not None:
                    probe.ask_when_due(aside, now)
                ready = poll.poll(0)
                if not ready:
                    idle += time.perf_counter() - now
                    if now - last > ANSWER_SECONDS_MAX:
                        raise BlockingIOError
                    continue
                last = now
                for number, _ in ready:
                    if number not in transfers:
                        assert probe is not None, "the server closed an idle connection"
                        probe.take(aside)
                        continue
                    transfer = transfers[number]
                    size, is_whole = transfer.receive(discard)
                    body += size
                    if is_whole:
                        transfer.connection.sendall(requests[position % len(requests)])
                        position += 1
                        count += 1
            elapsed = time.perf_counter() - started
    except OSError as error:
        raise failed(error) from None
    return Counted(count, body, elapsed, idle)


def measured(server: ServerProcess, load: Load, seconds: float, unit: Unit) -> Sample:
    """Run ``load`` against ``server`` for ``seconds`` and say what came of it.

    Raises:
        BenchError: a request failed, or the server ended.
    """
    server_cpu = server.cpu_seconds()
    counted = load.run(server.address, seconds)
    server_cpu = server.cpu_seconds() - server_cpu
    moved = counted.body_bytes or counted.requests * load.body_bytes
    value = {
        "requests/s": counted.requests / counted.seconds,
        "MB/s": moved / counted.seconds / 1e6,
        "M records/s": counted.requests * load.records / counted.seconds / 1e6,
    }[unit]
    extra = {"server_us_per_request": server_cpu / max(1, counted.requests) * 1e6}
    if moved:
        extra["server_seconds_per_gb"] = server_cpu / moved * 1e9
    return Sample(value, server_cpu / counted.seconds, 1 - counted.idle_seconds / counted.seconds, extra)


Unit = Literal["requests/s", "MB/s", "M records/s"]


class Load(NamedTuple):
    """What is asked of a server, again and again."""

    requests: Sequence[bytes]
    """Whole requests, asked in turn. With ``body``: the one head of it."""
    outstanding: int
    body: bytes = b""
    body_bytes: int = 0
    """How many bytes of bodies a request moves, where the answer does not tell."""
    records: int = 0
    is_large_answer: bool = False
    burden_seconds: float = 0.0
    """Work that is added to each small request, to see whether the generator has room for it."""
    tls: ssl.SSLContext | None = None
    """Small requests go over TLS."""

    def run(self, address: Address, seconds: float) -> Counted:
        """Raises BenchError when a request fails."""
        if self.body:
            return large_bodies(address, self.requests[0], self.body, self.outstanding, seconds)
        if self.is_large_answer:
            return large_answers(address, self.requests, self.outstanding, seconds)
        return small_requests(address, self.requests, self.outstanding, seconds, self.burden_seconds, self.tls)
