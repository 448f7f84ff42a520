"""An open loop: requests at fixed times, whether earlier ones were answered or not.

A latency counts from the moment its request was due. A server that stops for a second so answers for all that should
have been asked in that second (a closed loop would have asked one: coordinated omission).
"""

from __future__ import annotations

import collections
import contextlib
import gc
import select
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.closed_loop import ANSWER_SECONDS_MAX, Idle, connections, failed, take_answer
from bench.histogram import Histogram
from bench.processes import Address

CONNECTIONS = 256


class Schedule(NamedTuple):
    """When each request is due: ``rate`` a second for ``seconds``, evenly."""

    rate: float
    seconds: float

    @property
    def total(self) -> int:
        """How many requests there are, at least one."""
        return max(1, int(self.rate * self.seconds))

    def due(self, number: int) -> float:
        """Seconds from the beginning to the request of this number: at a rate of 50, request 5 is due at 0.1."""
        return number / self.rate

    def due_by(self, seconds: float) -> int:
        """How many requests are due this long after the beginning: at a rate of 50, 6 of them by 0.1."""
        return min(self.total, int(seconds * self.rate) + 1)


class Timed(NamedTuple):
    """What an open loop did."""

    latencies: Histogram
    late: Histogram
    """How long after it was due a request was sent: what the generator, or a lack of free connections, added."""
    requests: int
    seconds: float
    idle_seconds: float


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Keep this process from collecting garbage, which would be measured as the server's."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def at_rate(address: Address, requests: Sequence[bytes], schedule: Schedule, count: int = CONNECTIONS) -> Timed:
    """Send ``requests`` in turn when they are due, on whichever of ``count`` connections is free.

    Raises:
        BenchError: an answer is no success, or did not come.
    """
    latencies, late = Histogram(), Histogram()
    idle = Idle()
    buffer = memoryview(bytearray(64 * 1024))
    due: dict[int, float] = {}
    clock, length, total, rate = time.perf_counter, len(requests), schedule.total, schedule.rate
    sent = answered = 0
    try:
        with connections(address, count) as opened, select.epoll() as poll, without_collections():
            free = collections.deque(opened)
            by_number = {connection.fileno(): connection for connection in opened}
            for number in by_number:
                poll.register(number, select.EPOLLIN)
            started = last = clock()
            while answered < total:
                now = clock()
                while sent < total and free and (moment := started + sent / rate) <= now:
                    connection = free.popleft()
                    due[connection.fileno()] = moment
                    connection.sendall(requests[sent % length])
                    now = clock()
                    late.add(now - moment)
                    sent += 1
                ready = poll.poll(0)
                if not ready:
                    idle.seconds += clock() - now
                    if now - last > ANSWER_SECONDS_MAX:
                        raise BlockingIOError
                    continue
                last = now
                for number, _ in ready:
                    connection = by_number[number]
                    take_answer(connection, buffer)
                    latencies.add(clock() - due.pop(number))
                    answered += 1
                    free.append(connection)
            elapsed = clock() - started
    except OSError as error:
        raise failed(error) from None
    return Timed(latencies, late, answered, elapsed, idle.seconds)
