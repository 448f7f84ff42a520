"""The local engine's background work: flush and roll by time, retention, checkpoints, deletion of files.

Each job looks at the logs and does the work that is due. The writer of a partition makes the changes of its log, so no
job ever runs beside an append.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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
        """Take the parts that the jobs work on.

        The jobs call ``hurry`` once files were deleted: work that waits for space can go on.
        """
        self._manager = manager
        self._partitions = partitions
        self._topics = topics
        self._pools = pools
        self._hurry = hurry
        self._checked_ends: WeakKeyDictionary[PartitionLog, int] = WeakKeyDictionary()

    async def flush(self) -> None:
        """Flush partitions whose ``flush.ms`` has passed (spec B4). Without a writer there is nothing to flush."""
        for count, writer in enumerate(self._partitions.writers(), start=1):
            if writer.log.flush_due():
                writer.ask_flush()
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def check_files(self) -> None:
        """Check the lock of the directory, and the files of partitions that were appended to since the last run.

        A partition whose files another process has cut, moved or removed goes offline.

        Raises:
            OSError: the lock cannot be checked. The partitions are checked all the same: if the whole directory was
                moved or removed, both are gone, and appends would be acknowledged on and on.
        """
        try:
            await call_in(self._pools.control, self._manager.check_lock)
        finally:
            await self._check_written_files()

    async def _check_written_files(self) -> None:
        """Let a thread look at the files of many partitions. Only writers of files that may be wrong run a job."""
        written = []
        for count, writer in enumerate(self._partitions.writers(), start=1):
            log, end = writer.log, writer.log.written_end_offset
            if log.offline_reason is None and self._checked_ends.get(log) != end:
                self._checked_ends[log] = end
                written.append(log)
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        for start in range(0, len(written), PARTITIONS_PER_TURN):
            some = written[start : start + PARTITIONS_PER_TURN]
            for log in await call_in(self._pools.read, functools.partial(_find_touched, some)):
                await self._tolerating(log, functools.partial(self._partitions.run_in_log, log, log.check_files))

    async def roll(self) -> None:
        """Roll active segments that are older than ``segment.ms``."""
        async for log in self._each():
            if log.offline_reason is None and log.roll_due():
                await self._tolerating(log, functools.partial(self._partitions.run_in_log, log, _roll_if_due(log)))

    async def retention(self) -> None:
        """Delete segments by the rules of their topics (spec E4, E5).

        A thread finds the partitions with such segments, many partitions at a time. Only their writers run a job. Those
        that rest are opened for it.
        """
        await call_in(self._pools.read, self._topics.wake_old)
        logs = [log for log in self._partitions.opened() if log.offline_reason is None]
        for start in range(0, len(logs), PARTITIONS_PER_TURN):
            some = logs[start : start + PARTITIONS_PER_TURN]
            for log in await call_in(self._pools.read, functools.partial(self._topics.find_old, some)):
                await self._tolerating(log, functools.partial(self._topics.delete_old_segments, log))

    async def checkpoint(self) -> None:
        """Write down recovery points and log starts.

        Free a journal that has ended, which no flush does any more. Begin another if there is room again.
        """
        self._partitions.turns.free_if_needed()
        await call_in(self._pools.control, self._manager.checkpoint)
        await call_in(self._pools.control, self._manager.journal.begin_again)

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
            # There is space again: markers that wait for it are written now.
            self._hurry()

    async def _each(self) -> AsyncIterator[PartitionLog]:
        for count, log in enumerate(tuple(self._partitions.opened()), start=1):
            yield log
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _tolerating(self, log: PartitionLog, call: Callable[[], Awaitable[object]]) -> None:
        """Await ``call`` and log its failure: one partition must not hold up others. The next run tries again."""
        try:
            await call()
        except (StorageError, Problem) as error:
            logger.warning("background work on %s: %s", log.name, error)


def _roll_if_due(log: PartitionLog) -> Callable[[], None]:
    def roll() -> None:
        if log.roll_due():
            log.roll()

    return roll


def _find_touched(logs: Sequence[PartitionLog]) -> list[PartitionLog]:
    """Return the logs whose files another process may have changed. Thread: any."""
    return [log for log in logs if log.offline_reason is None and _may_be_touched(log)]


def _may_be_touched(log: PartitionLog) -> bool:
    # In this order: a truncation drops the watch before it changes the end, and an old end must meet no new watch.
    watch = log.writer.watch
    written = log.writer.written
    return watch is None or not watch.finds_all(written.active, written.log_end.position)
