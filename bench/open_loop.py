"""An open loop: requests at fixed times, whether earlier ones were answered or not.

A latency counts from the moment its request was due. A server that stops for a second so answers for all that should
have been asked in that second (a closed loop would have asked one: coordinated omission).
"""

from __future__ import annotations

import collections
import select
import time
from typing import NamedTuple

from bench.closed_loop import ANSWER_SECONDS_MAX, Idle, connections, failed, take_answer
from bench.histogram import Histogram
from bench.processes import Address

CONNECTIONS = 64


class Timed(NamedTuple):
    """What an open loop did."""

    latencies: Histogram
    late: Histogram
    """How long after it was due a request was sent: what the generator, or a lack of free connections, added."""
    requests: int
    seconds: float
    idle_seconds: float


def at_rate(address: Address, request: bytes, rate: float, seconds: float) -> Timed:
    """Send ``request`` ``rate`` times a second, on whichever connection is free.

    Raises:
        BenchError: an answer is no success, or did not come.
    """
    latencies, late = Histogram(), Histogram()
    idle = Idle()
    buffer = memoryview(bytearray(64 * 1024))
    due: dict[int, float] = {}
    clock = time.perf_counter
    total = max(1, int(rate * seconds))
    sent = answered = 0
    try:
        with connections(address, CONNECTIONS) as opened:
            free = collections.deque(opened)
            by_number = {connection.fileno(): connection for connection in opened}
            poll = select.epoll()
            for number in by_number:
                poll.register(number, select.EPOLLIN)
            started = last = clock()
            while answered < total:
                now = clock()
                while sent < total and free and (moment := started + sent / rate) <= now:
                    connection = free.popleft()
                    due[connection.fileno()] = moment
                    connection.sendall(request)
                    late.add(clock() - moment)
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
            poll.close()
    except OSError as error:
        raise failed(error) from None
    return Timed(latencies, late, answered, elapsed, idle.seconds)
