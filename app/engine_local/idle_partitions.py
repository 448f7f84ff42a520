"""Partitions that are used no more: their files are closed, so that others may open theirs."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple
from weakref import WeakKeyDictionary

from app.engine_local.partitions.directory import Partitions
from app.engine_local.partitions.partition_room import FileRoom
from app.problems.problem import Problem
from log_model.clock import Clock
from log_model.errors import StorageError
from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

SHORT_IDLE_MS = 10_000
"""The time that a partition must be idle while open files are short."""
_PARTITIONS_PER_TURN = 256


class _Seen(NamedTuple):
    end_offset: int
    since_ms: int


class IdlePartitions:
    """Closes the files of partitions that had no append for some time. Thread: the event loop."""

    def __init__(self, partitions: Partitions, room: FileRoom, clock: Clock, idle_ms: int) -> None:
        self._partitions = partitions
        self._room = room
        self._clock = clock
        self._idle_ms = idle_ms
        self._seen: WeakKeyDictionary[PartitionLog, _Seen] = WeakKeyDictionary()

    async def close_files(self) -> None:
        """Look at all partitions, and close the files of those that are idle. Each writer closes those of its log."""
        now_ms = self._clock.elapsed_ms()
        idle_ms = min(self._idle_ms, SHORT_IDLE_MS) if self._room.is_short else self._idle_ms
        for count, log in enumerate(tuple(self._partitions.opened()), start=1):
            end_offset = log.written_end_offset
            seen = self._seen.get(log)
            if seen is None or seen.end_offset != end_offset:
                self._seen[log] = _Seen(end_offset, now_ms)
            elif now_ms - seen.since_ms >= idle_ms and log.offline_reason is None and _has_open_files(log):
                try:
                    await self._partitions.run_in_log(log, log.close_files)
                except (StorageError, Problem) as error:
                    logger.warning("the files of %s stay open: %s", log.name, error)
            if count % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)


def _has_open_files(log: PartitionLog) -> bool:
    return any(segment.log.is_open for segment in log.snapshot.segments)
