"""Reads that wait for records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from app.problems import kinds
from app.problems.problem import Problem
from log_model.names import PartitionName

IsReady = Callable[[PartitionName | None], bool]
"""Looks whether a wait is over: at all its partitions, or at the one that has changed since the last look."""

_RETRY_AFTER_MS = 1_000


class MemoryWaiting:
    """A wait for some partitions, which ends when ``is_ready`` says so, or for another reason.

    ``done`` has the reason: whether the partition is gone does not matter here, the reader looks for itself.
    """

    def __init__(self, is_ready: IsReady, names: Sequence[PartitionName]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_ready = is_ready
        self.names = frozenset(names)

    def cancel(self) -> None:
        """Cancel ``done`` unless it is complete: the client has gone."""
        self.done.cancel()

    def expire(self) -> None:
        """Complete ``done`` unless it is complete."""
        if not self.done.done():
            self.done.set_result(None)


class Waits:
    """All reads that wait, at most ``count_max`` of them. Thread: the event loop."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._waiting: dict[MemoryWaiting, None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, is_ready: IsReady, names: Sequence[PartitionName], wait_ms: int) -> MemoryWaiting:
        """Begin a wait for ``is_ready``. It is complete on return if there is nothing to wait for.

        Raises:
            Problem: overloaded, too many wait already.
        """
        waiting = MemoryWaiting(is_ready, names)
        if self._is_closed or is_ready(None):
            waiting.expire()
            return waiting
        if len(self._waiting) >= self._count_max:
            detail = f"{len(self._waiting)} fetches wait already"
            raise Problem(kinds.OVERLOADED, detail, retry_after_ms=_RETRY_AFTER_MS)
        self._waiting[waiting] = None
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, waiting.expire)

        def leave(_: object) -> None:
            timer.cancel()
            del self._waiting[waiting]

        waiting.done.add_done_callback(leave)
        return waiting

    def changed(self, name: PartitionName) -> None:
        """Look at the reads that wait for this partition, once the caller has done its own work."""
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._look, name)

    def _look(self, name: PartitionName) -> None:
        for waiting in tuple(self._waiting):
            if name in waiting.names and waiting.is_ready(name):
                waiting.expire()

    def gone(self, name: PartitionName) -> None:
        """End the waits for a partition that was deleted."""
        for waiting in tuple(self._waiting):
            if name in waiting.names:
                waiting.expire()

    def close(self) -> None:
        """End all waits; from now on none begins."""
        self._is_closed = True
        for waiting in tuple(self._waiting):
            waiting.expire()
