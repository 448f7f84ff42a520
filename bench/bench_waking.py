"""Waking: one append answers all long polls of a partition, beside bare sends of the same bytes to as many sockets."""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import select
import socket
import struct
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from bench.closed_loop import ANSWER_SECONDS_MAX, connect, take_answer
from bench.histogram import Histogram
from bench.machine import choose_cores, running_on
from bench.processes import Address, BenchError
from bench.requests import get, post, record_batch, records_path
from bench.rollway_server import RollwayServer
from bench.rows import Goal, Plan, Row, Sample, row_of

BENCH = "waking"
COUNTS, SMOKE_COUNTS = (1, 10, 100, 1_000, 10_000), (20, 40)
WAIT_MS = 60_000
# All of 127.0.0.0/8 is this machine, and one address has a limited number of ports.
CONNECTIONS_PER_ADDRESS = 4_000
LIMIT = "bare sends"
GOALS = {1_000: Goal("value", "<=", 10), 10_000: Goal("ratio", "<=", 1.5)}
# Those of the round before may still be on their way out.
_SETTINGS = {"connections_max": "40000", "connections_per_address_max": "20000", "waiter_count_max": "12000"}


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: the 99th percentile of each number of waiters, counted from the append, and another client meanwhile.

    Raises:
        BenchError: an answer was wrong, or did not come.
    """
    cores = choose_cores()
    counts = SMOKE_COUNTS if plan.smoke else COUNTS
    # The service inherits what is allowed at its start.
    allowed = {count: _allow_descriptors(count + 1_000) for count in counts}
    with RollwayServer(plan.data_dir / BENCH, cores.server, settings=_SETTINGS) as ours:
        for count in counts:
            name = f"long poll, append to answer, p99 of {count:,} waiters woken at once"
            if not allowed[count]:
                yield Row(BENCH, name, None, "ms", note="This system allows too few open files.")
                continue
            topic = f"waking-{count}"
            ours.create_topic(topic, 1, flush_policy="interval")
            # The first round tells the service the query.
            answer = _woken(ours, topic, 0, count)[1]
            samples, bare = [], []
            for number in range(1, plan.rounds + 1):
                plan.say(f"{BENCH}: {count} waiters of one partition")
                samples.append(_woken(ours, topic, number, count)[0])
                bare.append(_sent(answer, count, cores.server))
            worst = max(sample.extra["other_max_ms"] for sample in samples)
            note = f"another client's request meanwhile: at most {worst:.1f} ms"
            yield row_of(BENCH, name, "ms", samples, limit=LIMIT, limits=bare, goal=GOALS.get(count), note=note)


def _allow_descriptors(count: int) -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    return True


@contextlib.contextmanager
def _waiters(address: Address, count: int, request: bytes = b"") -> Iterator[list[socket.socket]]:
    """``count`` connections, each with ``request`` sent at once: a service does not wait long for a first one."""
    with contextlib.ExitStack() as stack:
        opened: list[socket.socket] = []
        for number in range(count):
            connection = stack.enter_context(socket.socket())
            # Closed at once, since ports that were closed in order are not free for a minute: less than a round takes.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.settimeout(ANSWER_SECONDS_MAX)
            connection.bind((f"127.0.0.{2 + number // CONNECTIONS_PER_ADDRESS}", 0))
            connection.connect(address)
            opened.append(connection)
            connection.sendall(request)
        yield opened


def _woken(server: RollwayServer, topic: str, offset: int, count: int) -> tuple[Sample, bytes]:
    """Let ``count`` clients wait at ``offset``, and wake them."""
    request = get(f"{records_path(topic)}?offset={offset}&wait_ms={WAIT_MS}")
    with _waiters(server.address, count, request) as opened, connect(server.address) as other:
        _wait_until_waiting(server, count)
        return _wake(server, opened, other, topic)


def _sent(answer: bytes, count: int, cores: frozenset[int]) -> Sample:
    with _bare_sends(answer, count, cores) as (address, pipe), _waiters(address, count) as sinks:
        pipe.recv()
        return _send(sinks, pipe)


def _wake(server: RollwayServer, opened: list[socket.socket], other: socket.socket, topic: str) -> tuple[Sample, bytes]:
    """Append, and take all answers. The other client asks all the time. Returns an answer, too."""
    asked = get(f"{records_path(topic)}?offset=0&max_bytes=1")
    buffer = memoryview(bytearray(64 * 1024))
    histogram, others = Histogram(), Histogram()
    left = {connection.fileno(): connection for connection in opened}
    answer = b""
    with select.epoll() as poll, connect(server.address) as producer:
        for number in (*left, other.fileno()):
            poll.register(number, select.EPOLLIN)
        cpu = server.cpu_seconds()
        started = time.perf_counter()
        producer.sendall(post(records_path(topic), record_batch(1, 100)))
        asked_at = 0.0
        while left:
            # A few at a time, or the other client would wait for this loop.
            for ready, _ in poll.poll(ANSWER_SECONDS_MAX, 8):
                if ready in left:
                    size = take_answer(left.pop(ready), buffer)
                    histogram.add(time.perf_counter() - started)
                    answer = answer or bytes(buffer[:size])
                elif asked_at:
                    take_answer(other, buffer)
                    others.add(time.perf_counter() - asked_at)
                    asked_at = 0.0
            if not asked_at and left:
                asked_at = time.perf_counter()
                other.sendall(asked)
        elapsed = time.perf_counter() - started
        cpu = server.cpu_seconds() - cpu
        take_answer(producer, buffer)
        if asked_at:
            take_answer(other, buffer)
            others.add(time.perf_counter() - asked_at)
    table = histogram.table()
    extra = {**table, "other_max_ms": others.longest * 1000}
    return Sample(table["p99_ms"], min(1.0, cpu / elapsed), None, extra), answer


def _wait_until_waiting(server: RollwayServer, count: int) -> None:
    deadline = time.monotonic() + WAIT_MS / 1000
    while (waiting := server.metric("rollway_waiting_fetches")) < count:
        if time.monotonic() > deadline:
            raise BenchError(f"{count} long polls were sent, and {waiting:.0f} wait.")
        time.sleep(0.01)


@contextlib.contextmanager
def _bare_sends(answer: bytes, count: int, cores: frozenset[int]) -> Iterator[tuple[Address, Connection]]:
    """A process that sends ``answer`` to its ``count`` connections once it is told to, and does nothing else."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_send_to_all, args=(answer, count, cores, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(WAIT_MS / 1000):
            raise BenchError("The process of bare sends does not listen.")
        yield ours.recv(), ours
    finally:
        process.kill()
        process.join()


def _send_to_all(answer: bytes, count: int, cores: frozenset[int], pipe: Connection) -> None:
    with running_on(cores), socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        pipe.send(listener.getsockname())
        opened = [listener.accept()[0] for _ in range(count)]
        for connection in opened:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipe.send(None)
        pipe.recv()
        for connection in opened:
            connection.send(answer)
        # Until it is killed: closing them all would be measured, too.
        pipe.recv()


def _send(sinks: list[socket.socket], pipe: Connection) -> Sample:
    """Have the answer sent to all, and take it."""
    histogram = Histogram()
    buffer = memoryview(bytearray(64 * 1024))
    left = {connection.fileno(): connection for connection in sinks}
    with select.epoll() as poll:
        for number in left:
            poll.register(number, select.EPOLLIN)
        started = time.perf_counter()
        pipe.send(None)
        while left:
            for ready, _ in poll.poll(ANSWER_SECONDS_MAX):
                if ready in left:
                    take_answer(left.pop(ready), buffer)
                    histogram.add(time.perf_counter() - started)
    table = histogram.table()
    return Sample(table["p99_ms"], None, None, table)
