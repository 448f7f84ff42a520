"""The purgatory of fetches: long polls that wait until their partition has something for them.

A fetch that finds too little looks at the snapshot and registers here with no ``await`` between, so no publication
can fall between the two (invariant 7). Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum

from app.http.problems import Problem
from storage.file_names import PartitionName
from storage.log_snapshot import LogSnapshot
from storage.offsets import Offset

WAITERS_RETRY_AFTER_MS = 1_000


class Wake(Enum):
    """Why a waiter was completed."""

    AVAILABLE = "available"
    TIMEOUT = "timeout"
    GONE = "gone"
    SHUTDOWN = "shutdown"


class FetchWaiter:
    """One fetch that waits. Whoever registered it awaits ``done``, then takes the partition's snapshot anew."""

    __slots__ = ("done", "min_bytes", "offset", "partition", "timer")

    def __init__(
        self,
        partition: PartitionName,
        offset: Offset,
        min_bytes: int,
        done: asyncio.Future[Wake],
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.min_bytes = min_bytes
        self.done = done
        self.timer: asyncio.TimerHandle | None = None


def is_served(snapshot: LogSnapshot, offset: Offset, min_bytes: int) -> bool:
    """Whether a read of ``snapshot`` has an answer now: enough bytes, or an error to tell (spec D6)."""
    if not snapshot.log_start_offset <= offset <= snapshot.log_end_offset:
        return True
    if offset >= snapshot.high_watermark:
        return False
    if min_bytes <= 1:
        return True
    try:
        return snapshot.available_bytes(offset) >= min_bytes
    except Exception:  # noqa: BLE001 - the woken fetch meets it again and tells its client; the writer must go on
        return True


class FetchWaiters:
    """All fetches that wait, by partition, at most ``count_max`` of them.

    Each completes exactly once: by a publication that serves it, by its time, by the end of its topic, or by the
    stop of the service, after which nothing waits any more.
    """

    def __init__(self, *, count_max: int) -> None:
        self._count_max = count_max
        self._waiting: dict[PartitionName, set[FetchWaiter]] = {}
        self._count = 0
        self._closed = False

    def __len__(self) -> int:
        return self._count

    def register(
        self,
        partition: PartitionName,
        offset: Offset,
        *,
        min_bytes: int,
        wait_ms: int,
    ) -> FetchWaiter:
        """Wait for ``partition`` from ``offset`` on, at most ``wait_ms``.

        Raises:
            Problem: overloaded; too many wait already.
        """
        loop = asyncio.get_running_loop()
        waiter = FetchWaiter(partition, offset, min_bytes, loop.create_future())
        if self._closed:
            waiter.done.set_result(Wake.SHUTDOWN)
            return waiter
        if self._count >= self._count_max:
            raise Problem(
                503,
                "overloaded",
                f"{self._count_max} fetches wait already",
                retryable=True,
                retry_after_ms=WAITERS_RETRY_AFTER_MS,
            )
        self._waiting.setdefault(partition, set()).add(waiter)
        self._count += 1
        waiter.timer = loop.call_later(wait_ms / 1000, self._complete, waiter, Wake.TIMEOUT)
        return waiter

    def forget(self, waiter: FetchWaiter) -> None:
        """Take back a waiter whose client went away; one that is complete already stays as it is."""
        self._remove(waiter)
        waiter.done.cancel()

    def wake(self, partition: PartitionName, snapshot: LogSnapshot) -> None:
        """Complete every waiter that ``snapshot`` serves. A bare roll serves nobody."""
        waiting = self._waiting.get(partition)
        if not waiting:
            return
        for waiter in [waiter for waiter in waiting if is_served(snapshot, waiter.offset, waiter.min_bytes)]:
            self._complete(waiter, Wake.AVAILABLE)

    def wake_gone(self, partitions: Iterable[PartitionName]) -> None:
        """Complete every waiter of partitions that do not exist any more."""
        for partition in partitions:
            for waiter in tuple(self._waiting.get(partition, ())):
                self._complete(waiter, Wake.GONE)

    def close(self) -> None:
        """Complete all: each answers with what there is. Later ones do not wait. Calling it again is fine."""
        self._closed = True
        for waiting in tuple(self._waiting.values()):
            for waiter in tuple(waiting):
                self._complete(waiter, Wake.SHUTDOWN)

    def _complete(self, waiter: FetchWaiter, wake: Wake) -> None:
        if not waiter.done.done():
            waiter.done.set_result(wake)
        self._remove(waiter)

    def _remove(self, waiter: FetchWaiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
        waiting = self._waiting.get(waiter.partition)
        if waiting is None or waiter not in waiting:
            return
        waiting.discard(waiter)
        self._count -= 1
        if not waiting:
            del self._waiting[waiter.partition]
