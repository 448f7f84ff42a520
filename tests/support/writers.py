"""Logs with a writer on a simulated disk, for tests of what happens between the loop, the threads and the disk."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.engine_local.partitions.flush_pace import FlushPace
from app.engine_local.partitions.mailbox import MailboxLimits
from app.engine_local.partitions.partition_writer import PartitionWriter
from log_model.batches.batch_validation import ValidBatch, validate_batches
from log_model.clock import ManualClock
from rollway.records import Record, columns_from_records, encode_batch
from storage.log.files_at_rest import begin_change
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import AppendRequest, PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.disk_faults import Operation
from tests.crash.simulated_disk import SMALL_INDEXES, SimulatedDisk

DATA = Path("/data")


def record_batch(*values: bytes, timestamp: int = 1_700_000_000_000, key: bytes | None = None) -> bytes:
    """One batch as a client sends it."""
    records = [Record(place, timestamp + place, key, value) for place, value in enumerate(values)]
    return encode_batch(columns_from_records(records))


def valid_batches(log: PartitionLog, *values: bytes) -> tuple[ValidBatch, ...]:
    """One batch, validated for this log."""
    return tuple(validate_batches(bytearray(record_batch(*values)), log.config, 1_700_000_000_000))


def append_request(log: PartitionLog, *values: bytes) -> AppendRequest:
    """An append of one batch."""
    return AppendRequest(valid_batches(log, *values))


@dataclass
class Observed:
    """What a writer told."""

    snapshots: list[LogSnapshot] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    flush_count: int = 0
    failures: list[BaseException] = field(default_factory=list)

    def published(self, log: PartitionLog) -> None:
        self.snapshots.append(log.snapshot)

    def group_appended(self, request_count: int, seconds: float) -> None:
        self.groups.append(request_count)

    def flushed(self, seconds: float) -> None:
        self.flush_count += 1

    def partition_failed(self, log: PartitionLog, error: BaseException) -> None:
        self.failures.append(error)


class Gate:
    """Stops disk operations of one kind until it is opened; ``reached`` says that one waits."""

    def __init__(self, disk: SimulatedDisk, kind: str, suffixes: Sequence[str] = (".log",)) -> None:
        # A write that makes the file longer is a kind of its own to the disk.
        self._kinds = {kind, "extend"} if kind == "write" else {kind}
        self._suffixes = suffixes
        self._reached = threading.Event()
        self._open = threading.Event()
        disk.before_operation = self._before

    def _before(self, operation: Operation) -> None:
        if operation.kind in self._kinds and operation.path.suffix in self._suffixes:
            self._reached.set()
            assert self._open.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def open(self) -> None:
        self._open.set()


@dataclass
class WriterStand:
    """A partition with its writer."""

    disk: SimulatedDisk
    clock: ManualClock
    manager: LogManager
    log: PartitionLog
    writer: PartitionWriter
    observed: Observed


@contextlib.asynccontextmanager
async def writer_stand(
    limits: MailboxLimits | None = None, pace: FlushPace | None = None, **config: object
) -> AsyncIterator[WriterStand]:
    """A topic of one partition with ``config`` (dots as underscores), and its writer."""
    clock = ManualClock()
    disk = SimulatedDisk(clock)
    disk.make_directory(DATA)
    manager = LogManager.open(DATA, file_system=disk, clock=clock, topic_defaults=SMALL_INDEXES)
    topic, _ = manager.create_topic("t", 1, {name.replace("_", "."): value for name, value in config.items()})
    observed = Observed()
    # As an earlier append would: the first change of a partition that rested takes a thread.
    begin_change(topic.partitions[0].writer)
    with ThreadPoolExecutor(2) as write_pool, ThreadPoolExecutor(2) as flush_pool:
        writer = PartitionWriter(
            topic.partitions[0],
            write_pool=write_pool,
            flush_pool=flush_pool,
            observer=observed,
            limits=limits,
            pace=pace,
        )
        yield WriterStand(disk, clock, manager, topic.partitions[0], writer, observed)
        disk.before_operation = None
        await writer.close()


def on_stand(
    scenario: Callable[[WriterStand], Coroutine[Any, Any, None]],
    limits: MailboxLimits | None = None,
    pace: FlushPace | None = None,
    **config: object,
) -> None:
    """Run ``scenario`` on a stand of its own."""

    async def run() -> None:
        async with asyncio.timeout(60), writer_stand(limits, pace, **config) as stand:
            await scenario(stand)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def held(writer: PartitionWriter) -> AsyncIterator[None]:
    """Pause a writer in the context, as the deletion of its topic does."""
    pause = writer.put_job(None)
    try:
        await asyncio.shield(pause.done)
        yield
    finally:
        pause.release()


async def eventually(holds: Callable[[], bool]) -> None:
    """Let the loop run until ``holds``; fails after half a minute."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)
