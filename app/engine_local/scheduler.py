"""Background work: flush and roll by time, retention, checkpoints, deletion of files, transactions that time out.

Each job may run at any time and again: it looks at what is there and does what is due. What writes to a log goes
through that partition's writer, so no job ever runs beside an append. One run of a job at a time; runs that were
missed are made up for by one.

Jobs run by the event loop's elapsed time. A step of the wall clock, either way and of any length, neither holds up a
job nor makes it run more often.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from weakref import WeakKeyDictionary

from app.engine_local.engine import LocalEngine
from app.event_loop.pools import Pools, call_in
from app.metrics.metrics import Metrics
from app.problems.problem import Problem
from app.settings import Settings
from log_model.errors import StorageError
from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None]]
PARTITIONS_PER_TURN = 256
FILE_CHECK_INTERVAL_MS = 1_000


class Scheduler:
    """Runs the jobs of one engine, and ``more_jobs`` beside them, until closed."""

    def __init__(
        self,
        engine: LocalEngine,
        settings: Settings,
        metrics: Metrics,
        pools: Pools,
        more_jobs: Mapping[str, tuple[Job, int]],
    ) -> None:
        self._engine = engine
        self._partitions = engine.partitions
        self._metrics = metrics
        self._pools = pools
        self._closed = False
        self._running: set[asyncio.Task[None]] = set()
        self._checked_ends: WeakKeyDictionary[PartitionLog, int] = WeakKeyDictionary()
        self._repeating: list[asyncio.Task[None]] = []
        self._jobs: dict[str, tuple[Job, int]] = {
            "flush": (self.flush, settings.flush_check_interval_ms),
            "check_files": (self.check_files, FILE_CHECK_INTERVAL_MS),
            "roll": (self.roll, settings.roll_check_interval_ms),
            "retention": (self.retention, settings.retention_check_interval_ms),
            "checkpoint": (self.checkpoint, settings.checkpoint_interval_ms),
            "checkpoint_high_watermarks": (
                self.checkpoint_high_watermarks,
                settings.high_watermark_checkpoint_interval_ms,
            ),
            "expire_producers": (self.expire_producers, settings.producer_id_expiration_check_interval_ms),
            "delete_files": (self.delete_files, settings.file_delete_check_interval_ms),
            "transactions": (self.transactions, settings.transaction_check_interval_ms),
            **more_jobs,
        }

    @property
    def intervals_ms(self) -> Mapping[str, int]:
        """The jobs, and how often each runs."""
        return {name: interval_ms for name, (_, interval_ms) in self._jobs.items()}

    def start(self) -> None:
        """Begin: each job runs for the first time once its interval has passed. Call it on the event loop."""
        loop = asyncio.get_running_loop()
        for name, (_, interval_ms) in self._jobs.items():
            repeating = loop.create_task(self._repeat(name, interval_ms / 1000), name=f"schedule of job {name}")
            self._repeating.append(repeating)

    async def _repeat(self, name: str, interval_seconds: float) -> None:
        """Run a job at each multiple of its interval; a multiple that has passed while the job ran is left out."""
        loop = asyncio.get_running_loop()
        due = loop.time() + interval_seconds
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            # A task of its own: the stop cancels the schedule, and waits for the job.
            await asyncio.shield(loop.create_task(self.run(name), name=f"job {name}"))
            due += interval_seconds * (1 + math.floor(max(0.0, loop.time() - due) / interval_seconds))

    async def run(self, name: str) -> None:
        """Run a job now, whatever its interval; a failure is logged and counted, and the next run tries again."""
        task = asyncio.current_task()
        if self._closed or task is None:
            return
        self._running.add(task)
        metrics = self._metrics
        began = time.perf_counter()
        try:
            await self._jobs[name][0]()
        except (OSError, StorageError) as error:
            # The disk's trouble and not ours: it may last, and a traceback for every run would hide everything else.
            metrics.job_failures.labels(name).inc()
            logger.warning("background job %s failed: %s", name, error)
        except Exception:  # a failed run must not end the schedule
            metrics.job_failures.labels(name).inc()
            logger.exception("background job %s failed", name)
        finally:
            self._running.discard(task)
            metrics.job_runs.labels(name).inc()
            metrics.job_seconds.labels(name).set(time.perf_counter() - began)
            metrics.job_last_run.labels(name).set_to_current_time()

    async def close(self) -> None:
        """Start nothing more, and wait for what runs."""
        self._closed = True
        for repeating in self._repeating:
            repeating.cancel()
        current = asyncio.current_task()
        running = [task for task in self._running if task is not current]
        ending = [*running, *self._repeating]
        if ending:
            await asyncio.wait(ending)
        self._repeating.clear()

    async def flush(self) -> None:
        """Flush partitions whose ``flush.ms`` has passed (spec B4); those nobody wrote to have nothing to flush."""
        for count, writer in enumerate(self._partitions.writers(), start=1):
            if writer.log.flush_due():
                writer.ask_flush()
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def check_files(self) -> None:
        """Look whether another process cut, moved or removed the files of partitions that were appended to since the
        last run, or the lock of the directory.

        Raises:
            OSError: the lock cannot be looked after; partitions are looked at all the same. Where the whole directory
                was moved or removed both are gone, and what is appended would be acknowledged on and on.
        """
        try:
            await call_in(self._pools.control, self._engine.manager.check_lock)
        finally:
            await self._check_written_files()

    async def _check_written_files(self) -> None:
        for count, writer in enumerate(self._partitions.writers(), start=1):
            log, end = writer.log, writer.log.written_end_offset
            if log.offline_reason is None and self._checked_ends.get(log) != end:
                self._checked_ends[log] = end
                await self._tolerating(log, functools.partial(self._partitions.run_in_log, log, log.check_files))
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def roll(self) -> None:
        """Roll active segments that are older than ``segment.ms``."""
        async for log in self._each():
            if log.offline_reason is None and log.roll_due():
                await self._tolerating(log, functools.partial(self._partitions.run_in_log, log, _roll_if_due(log)))

    async def retention(self) -> None:
        """Delete segments by the rules of their topics (spec E4, E5).

        A thread looks where there are any, many partitions at a time; only those are worked at in their writer's turn.
        """
        logs = [log for log in self._partitions.all() if log.offline_reason is None]
        for start in range(0, len(logs), PARTITIONS_PER_TURN):
            some = logs[start : start + PARTITIONS_PER_TURN]
            for log in await self._engine.read(functools.partial(self._engine.topics.find_old, some)):
                await self._tolerating(log, functools.partial(self._engine.topics.run_retention, [log]))

    async def checkpoint(self) -> None:
        """Write down recovery points and log starts."""
        await call_in(self._pools.control, self._engine.manager.checkpoint)

    async def checkpoint_high_watermarks(self) -> None:
        """Write down high watermarks (spec E24)."""
        await call_in(self._pools.control, self._engine.manager.checkpoint_high_watermarks)

    async def expire_producers(self) -> None:
        """Forget idempotent producers that were idle for too long (spec E19)."""
        async for log in self._each():
            if len(log.producers):
                await self._tolerating(log, functools.partial(self._partitions.run_in_log, log, log.expire_producers))

    async def delete_files(self) -> None:
        """Unlink files of deleted segments whose time has come (spec E7)."""
        if await call_in(self._pools.control, self._engine.manager.delete_due_files):
            # Space has come back: markers that wait for it are written now.
            self._engine.transactions.hurry()

    async def transactions(self) -> None:
        """Abort transactions that are older than their timeout, forget idle transactional ids (spec E22)."""
        await self._engine.transactions.run_jobs()

    async def _each(self) -> AsyncIterator[PartitionLog]:
        for count, log in enumerate(tuple(self._partitions.all()), start=1):
            yield log
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _tolerating(self, log: PartitionLog, call: Callable[[], Awaitable[object]]) -> None:
        """One partition that cannot must not hold up the others; it is tried again in the next run."""
        try:
            await call()
        except (StorageError, Problem) as error:
            logger.warning("background work on %s: %s", log.name, error)


def _roll_if_due(log: PartitionLog) -> Callable[[], None]:
    def roll() -> None:
        if log.roll_due():
            log.roll()

    return roll
