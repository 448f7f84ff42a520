"""Long polls: how soon a waiting fetch is answered once a record is there, with 1,000 of them waiting."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator

from bench.closed_loop import Idle, connect, connections, rest_of_answer, take_answer
from bench.histogram import Histogram
from bench.machine import choose_cores
from bench.processes import BenchError
from bench.requests import get, post, record_batch, records_path
from bench.rollway_server import RollwayServer
from bench.rows import Goal, Plan, Row, Sample, row_of

BENCH = "poll"
WAITERS, SMOKE_WAITERS = 1000, 20
APPENDS_PER_SECOND = 500.0
GOAL_MS = 5.0
WAIT_MS = 60_000


def _wait(topic: str, partition: int, offset: int) -> bytes:
    return get(f"{records_path(topic, partition)}?offset={offset}&wait_ms={WAIT_MS}")


class Waiters:
    """Connections with a long poll each, one per partition."""

    def __init__(self, opened: list[socket.socket], topic: str) -> None:
        self._opened = opened
        self._topic = topic
        self._offsets = [0] * len(opened)
        self._buffer = memoryview(bytearray(64 * 1024))
        self._produce = [post(records_path(topic, number), record_batch(1, 100)) for number in range(len(opened))]
        for number in range(len(opened)):
            self._ask(number)

    def _ask(self, number: int) -> None:
        self._opened[number].sendall(_wait(self._topic, number, self._offsets[number]))

    def one(self, producer: socket.socket, number: int, idle: Idle) -> float:
        """Append to one partition, and take the answer of who waits there: the seconds between, from the sending."""
        started = time.perf_counter()
        producer.sendall(self._produce[number])
        waiter = self._opened[number]
        first = idle.receive(waiter.recv_into, self._buffer)
        seconds = time.perf_counter() - started
        rest_of_answer(waiter, self._buffer, first)
        take_answer(producer, self._buffer)
        self._offsets[number] += 1
        self._ask(number)
        return seconds


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: one of many waiters is answered."""
    cores = choose_cores()
    count = SMOKE_WAITERS if plan.smoke else WAITERS
    with RollwayServer(plan.data_dir / BENCH, cores.server) as ours:
        ours.create_topic("poll", count, flush_policy="interval")
        with connections(ours.address, count) as opened, connect(ours.address) as producer:
            waiters = Waiters(opened, "poll")
            samples = [_one_by_one(ours, waiters, producer, count, plan) for _ in range(plan.rounds)]
        name = f"long poll, append to answer, p99 of one of {count:,} waiters"
        yield row_of(BENCH, name, "ms", samples, goal=Goal("value", "<=", GOAL_MS))


def _one_by_one(server: RollwayServer, waiters: Waiters, producer: socket.socket, count: int, plan: Plan) -> Sample:
    """Appends at fixed times, to one partition after another."""
    plan.say(f"{BENCH}: one of {count} waiters")
    _wait_until_waiting(server, count)
    histogram, idle = Histogram(), Idle()
    generator = random.Random(7)
    cpu = server.cpu_seconds()
    started = time.perf_counter()
    total = max(2, int(plan.seconds * APPENDS_PER_SECOND))
    for turn in range(total):
        now = time.perf_counter()
        if (wait := started + turn / APPENDS_PER_SECOND - now) > 0:
            idle.seconds += wait
            while time.perf_counter() < now + wait:
                pass
        histogram.add(waiters.one(producer, generator.randrange(count), idle))
    elapsed = time.perf_counter() - started
    cpu = server.cpu_seconds() - cpu
    table = histogram.table()
    return Sample(table["p99_ms"], cpu / elapsed, max(0.0, 1 - idle.seconds / elapsed), table)


def _wait_until_waiting(server: RollwayServer, count: int) -> None:
    deadline = time.monotonic() + WAIT_MS / 1000
    while server.metric("rollway_waiting_fetches") < count:
        if time.monotonic() > deadline:
            raise BenchError(f"{count} long polls were sent, and fewer wait.")
        time.sleep(0.01)
