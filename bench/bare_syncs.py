"""A bare program that makes bytes durable: plain writes and fdatasyncs into a file that was written before.

It says what the disk can do in the same minute. Each fdatasync covers what was due when it began, as in group commit.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from bench.histogram import Histogram
from bench.machine import running_on
from bench.open_loop import Schedule, without_collections
from bench.processes import BenchError
from bench.rows import Sample
from bench.scenes import Measure

FILE_BYTES = 64 * 1024 * 1024
START_SECONDS_MAX = 120
PROBE = Schedule(1_000, 0.3)
"""What the disk is asked beside the rows of other benches: a write each millisecond."""


class Synced(NamedTuple):
    """What the bare program did."""

    latencies: Histogram
    """From when a write was due until its fdatasync returned."""
    fsyncs: Histogram
    """The fdatasyncs alone."""

    def table(self) -> dict[str, float]:
        """The fsync histogram by the names of percentiles, such as ``fsync_p99_ms``."""
        return {f"fsync_{name}": value for name, value in self.fsyncs.table().items()}


class BareSyncs:
    """The program, which waits in a process of its own."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def run(self, schedule: Schedule = PROBE, size_bytes: int = 1024) -> Synced:
        """Write ``size_bytes`` whenever they are due, each time durably.

        Raises:
            BenchError: the program ended, or the disk hangs.
        """
        self._pipe.send((schedule, size_bytes))
        return Synced(*_received(self._pipe, schedule.seconds + START_SECONDS_MAX))

    def beside(self, measure: Measure) -> Measure:
        """``measure``, with the fsyncs of the moment after it in each sample."""

        def once(seconds: float) -> Sample:
            sample = measure(seconds)
            return sample._replace(extra={**sample.extra, **self.run().table()})

        return once


@contextlib.contextmanager
def bare_syncs(path: Path, cores: frozenset[int], file_bytes: int = FILE_BYTES) -> Iterator[BareSyncs]:
    """The program on ``cores``, with the file ``path`` of zeros, which goes afterwards.

    Raises:
        BenchError: it does not start.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(str(path), file_bytes, cores, theirs), daemon=True)
    process.start()
    try:
        _received(ours, START_SECONDS_MAX)
        yield BareSyncs(ours)
    finally:
        process.kill()
        process.join()
        path.unlink(missing_ok=True)


def _received(pipe: Connection, seconds: float) -> tuple[Histogram, Histogram]:
    try:
        if not pipe.poll(seconds):
            raise EOFError
        received: tuple[Histogram, Histogram] = pipe.recv()
    except (EOFError, OSError):
        raise BenchError("The bare program that writes and syncs does not answer.") from None
    return received


def _serve(path: str, file_bytes: int, cores: frozenset[int], pipe: Connection) -> None:
    with running_on(cores), contextlib.suppress(EOFError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        for position in range(0, file_bytes, 1024 * 1024):
            os.pwrite(descriptor, bytes(min(1024 * 1024, file_bytes - position)), position)
        os.fsync(descriptor)
        pipe.send((Histogram(), Histogram()))
        while True:
            schedule, size_bytes = pipe.recv()
            pipe.send(_write(descriptor, file_bytes, schedule, size_bytes))


def _write(descriptor: int, file_bytes: int, schedule: Schedule, size_bytes: int) -> tuple[Histogram, Histogram]:
    latencies, fsyncs = Histogram(), Histogram()
    clock, total, rate = time.perf_counter, schedule.total, schedule.rate
    position = done = 0
    one = os.urandom(size_bytes)
    with without_collections():
        started = clock()
        while done < total:
            wanted = schedule.due_by(clock() - started)
            # A file that begins again was written before; no write goes beyond its end.
            count = min(wanted - done, file_bytes // size_bytes)
            if count <= 0:
                continue
            if position + count * size_bytes > file_bytes:
                position = 0
            os.pwrite(descriptor, one * count, position)
            position += count * size_bytes
            began = clock()
            os.fdatasync(descriptor)
            now = clock()
            fsyncs.add(now - began)
            for number in range(done, done + count):
                latencies.add(now - started - number / rate)
            done += count
    return latencies, fsyncs
