"""The local engine's background work: flush and roll by time, retention, checkpoints, deletion of files.

Each job looks at the logs and does the work that is due. A change of a log goes through the writer of that partition,
so no job ever runs beside an append.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from weakref import WeakKeyDictionary

from app.engine_local.partitions.directory import Partitions
from app.engine_local.topics import LocalTopics
from app.event_loop.pools import Pools, call_in
from app.problems.problem import Problem
from log_model.errors import StorageError
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 256


class BackgroundWork:
    """The jobs on the logs of one data directory. Thread: the event loop."""

    def __init__(
        self, manager: LogManager, partitions: Partitions, topics: LocalTopics, pools: Pools, hurry: Callable[[], None]
    ) -> None:
        """``hurry`` is called once files were deleted: work that waits for space can go on."""
        self._manager = manager
        self._partitions = partitions
        self._topics = topics
        self._pools = pools
        self._hurry = hurry
        self._checked_ends: WeakKeyDictionary[PartitionLog, int] = WeakKeyDictionary()

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
            await call_in(self._pools.control, self._manager.check_lock)
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
            for log in await call_in(self._pools.read, functools.partial(self._topics.find_old, some)):
                await self._tolerating(log, functools.partial(self._topics.delete_old_segments, log))

    async def checkpoint(self) -> None:
        """Write down recovery points and log starts."""
        await call_in(self._pools.control, self._manager.checkpoint)

    async def checkpoint_high_watermarks(self) -> None:
        """Write down high watermarks (spec E24)."""
        await call_in(self._pools.control, self._manager.checkpoint_high_watermarks)

    async def expire_producers(self) -> None:
        """Forget idempotent producers that were idle for too long (spec E19)."""
        async for log in self._each():
            if len(log.producers):
                await self._tolerating(log, functools.partial(self._partitions.run_in_log, log, log.expire_producers))

    async def delete_files(self) -> None:
        """Unlink files of deleted segments whose time has come (spec E7)."""
        if await call_in(self._pools.control, self._manager.delete_due_files):
            # Space has come back: markers that wait for it are written now.
            self._hurry()

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
