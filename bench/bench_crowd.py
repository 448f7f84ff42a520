"""What an honest client notices of a crowd: 1,000 slow readers of 16 MiB each, then 500 half-sent requests."""

from __future__ import annotations

import http.client
import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from bench.closed_loop import connect, take_answer
from bench.machine import choose_cores, running_on
from bench.processes import Address, BenchError
from bench.requests import get, post, post_head, record_batch, records_path
from bench.rollway_server import MIB, RollwayServer
from bench.rows import Goal, Plan, Row
from bench.slow_readers import HalfSentRequests, SlowReaders, WrongAnswerError

BENCH = "crowd"
READERS, ANSWER_BYTES, HALF_SENT = 1_000, 16 * MIB, 500
SIP_BYTES, SIPS_PER_SECOND = 2048, 10
HONEST_PER_SECOND = 200
_START_SECONDS_MAX = 120
_SETTINGS = {"connections_per_address_max": "4000"}


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: the slowest percent of honest requests alone and beside each crowd, and memory at its peak.

    Raises:
        BenchError: an answer was wrong, or did not come.
    """
    readers, size = (READERS, ANSWER_BYTES) if not plan.smoke else (20, MIB)
    half_sent = HALF_SENT if not plan.smoke else 20
    seconds = plan.rounds * plan.seconds
    cores = choose_cores()
    with RollwayServer(plan.data_dir / BENCH, cores.server, settings=_SETTINGS) as server:
        server.create_topic("large", flush_policy="interval")
        server.create_topic("small", flush_policy="interval")
        server.fill("large", MIB // 2, size)
        _honest(server.address, min(0.5, seconds))  # the first request of each kind takes longest
        yield _latency("honest request p99, alone", _honest(server.address, seconds), None)
        goal = Goal("value", "<=", 50)
        _reset_peak(server)
        with _slow_readers(server.address, readers, size, cores.generator):
            plan.say(f"{BENCH}: {readers} slow readers")
            seconds_taken = _honest(server.address, seconds)
        name = f"{readers:,} slow readers of {size // MIB} MiB"
        yield _latency(f"honest request p99 beside {name}", seconds_taken, goal)
        yield Row(BENCH, f"memory at the peak, {name}", _peak_mib(server), "MiB", goal=Goal("value", "<=", 200))
        _reset_peak(server)
        body = post_head(records_path("small"), MIB) + bytes(MIB // 2)
        with HalfSentRequests(server.address) as crowd:
            crowd.send(get(records_path("small"))[:30], half_sent // 2)
            crowd.send(body, half_sent - half_sent // 2)
            plan.say(f"{BENCH}: {half_sent} half-sent requests")
            seconds_taken = _honest(server.address, seconds)
        name = f"{half_sent} half-sent requests"
        yield _latency(f"honest request p99 beside {name}", seconds_taken, goal)
        yield Row(BENCH, f"memory at the peak, {name}", _peak_mib(server), "MiB")


def _honest(address: Address, seconds: float) -> list[float]:
    """How long small fetches and produces take, in turns, each counted from when it was due."""
    requests = [post(records_path("small"), record_batch(1)), get(f"{records_path('small')}?offset=latest")]
    buffer = memoryview(bytearray(65536))
    took: list[float] = []
    with connect(address) as connection:
        due = time.perf_counter()
        deadline = due + seconds
        while due < deadline:
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.sendall(requests[len(took) % 2])
            take_answer(connection, buffer)
            took.append(time.perf_counter() - due)
            due += 1 / HONEST_PER_SECOND
    return sorted(took)


def _latency(name: str, took: list[float], goal: Goal | None) -> Row:
    share = {"p50_ms": 0.5, "p999_ms": 0.999, "max_ms": 1.0}
    extra = {each: took[min(len(took) - 1, int(len(took) * at))] * 1000 for each, at in share.items()}
    note = f"p50 {extra['p50_ms']:.2f} ms, worst {extra['max_ms']:.1f} ms of {len(took)}"
    return Row(BENCH, name, took[int(len(took) * 0.99)] * 1000, "ms", goal=goal, note=note, extra=extra)


@contextmanager
def _slow_readers(address: Address, count: int, size: int, cores: frozenset[int]) -> Iterator[None]:
    """A process whose readers all have the beginning of their answers and take a little now and then."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_read_slowly, args=(address, count, size, cores, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(_START_SECONDS_MAX):
            raise BenchError("The slow readers did not get the beginning of their answers.")
        said = ours.recv()
        if said is not None:
            raise BenchError(f"A slow reader: {said}.")
        yield
        ours.send("stop")
        said = ours.recv() if ours.poll(_START_SECONDS_MAX) else "no answer"
        if said is not None:
            raise BenchError(f"A slow reader: {said}.")
    finally:
        process.kill()
        process.join()


def _read_slowly(address: Address, count: int, size: int, cores: frozenset[int], pipe: Connection) -> None:
    """Says ``None`` when all have begun and again when it was told to stop and nothing was wrong; else what was."""
    request = get(f"{records_path('large')}?offset=0&max_bytes={size}")
    try:
        with running_on(cores), connect(address) as connection:
            connection.sendall(request)
            expected = _whole_body(connection)
            with SlowReaders(address, request, expected) as readers:
                readers.connect(count)
                readers.wait_for_first_bytes()
                pipe.send(None)
                while not pipe.poll(1 / SIPS_PER_SECOND):
                    readers.sip(SIP_BYTES)
                pipe.recv()
        pipe.send(None)
    except (OSError, WrongAnswerError) as error:
        pipe.send(str(error))


def _whole_body(connection: socket.socket) -> bytes:
    """The body of an answer of any size, for comparison."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.read()


def _reset_peak(server: RollwayServer) -> None:
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")


def _peak_mib(server: RollwayServer) -> float:
    for line in Path(f"/proc/{server.pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise BenchError("This system does not tell how much memory a process had at its peak.")
