"""The requests that wait for one partition's writer, in order and within limits. Thread: the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from app.engine_local.partitions.pending_append import PendingAppend
from app.problems import kinds
from app.problems.problem import Problem
from app.settings import Settings
from log_model.errors import StorageError
from log_model.names import PartitionName

OVERLOAD_RETRY_AFTER_MS = 100


@dataclass(frozen=True, slots=True)
class MailboxLimits:
    """Limits on the requests that wait for one partition, and on a group of them."""

    bytes_max: int = 64 * 1024 * 1024
    count_max: int = 10_000
    group_bytes_max: int = 8 * 1024 * 1024
    group_count_max: int = 1_000
    inline_bytes_max: int = 0
    """Size of the largest append that is written on the loop, if the writer is idle."""

    @classmethod
    def of(cls, settings: Settings) -> MailboxLimits:
        """Return the limits among the settings."""
        return cls(
            bytes_max=settings.mailbox_bytes_max,
            count_max=settings.mailbox_count_max,
            group_bytes_max=settings.group_bytes_max,
            group_count_max=settings.group_count_max,
            inline_bytes_max=settings.inline_append_bytes_max,
        )


class Job:
    """Work that runs alone between two groups: a call in a thread, or without a call a pause of the writer."""

    __slots__ = ("call", "done", "released")

    def __init__(self, call: Callable[[], object] | None, loop: asyncio.AbstractEventLoop) -> None:
        self.call = call
        self.done: asyncio.Future[object] = loop.create_future()
        self.released: asyncio.Future[None] = loop.create_future()

    def release(self) -> None:
        """End a pause, or the wait for one."""
        if not self.released.done():
            self.released.set_result(None)


class Mailbox:
    """Appends and jobs in the order in which they came.

    Example: with ``group_count_max`` 2, the appends A, B, C and then a job leave as the group A, B, as the group C, and
    as the job.
    """

    def __init__(self, name: PartitionName, limits: MailboxLimits) -> None:
        self.size_bytes = 0
        self._name = name
        self._limits = limits
        self._items: deque[PendingAppend | Job] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def check_room(self, size_bytes: int) -> None:
        """Return if a request of this size may come in. An empty mailbox takes a request of any size.

        Raises:
            Problem: overloaded.
        """
        full = len(self._items) >= self._limits.count_max
        if full or (self._items and self.size_bytes + size_bytes > self._limits.bytes_max):
            raise Problem(
                kinds.OVERLOADED,
                f"too much waits to be written to {self._name}",
                retry_after_ms=OVERLOAD_RETRY_AFTER_MS,
            )

    def put_append(self, pending: PendingAppend) -> None:
        """Put an append at the end."""
        self.size_bytes += pending.size_bytes
        self._items.append(pending)

    def put_job(self, job: Job) -> None:
        """Put a job at the end."""
        self._items.append(job)

    def first_job(self) -> Job | None:
        """Return the job at the front, which stays there; ``None`` if an append is at the front."""
        item = self._items[0]
        return item if isinstance(item, Job) else None

    def take_job(self) -> None:
        """Remove the job at the front."""
        self._items.popleft()

    def take_group(self) -> list[PendingAppend]:
        """Remove and return the appends at the front, up to the first job and within the limits of a group."""
        group: list[PendingAppend] = []
        size_bytes = 0
        while self._items and len(group) < self._limits.group_count_max:
            pending = self._items[0]
            if isinstance(pending, Job):
                break
            if group and size_bytes + pending.size_bytes > self._limits.group_bytes_max:
                break
            self._items.popleft()
            group.append(pending)
            size_bytes += pending.size_bytes
        self.size_bytes -= size_bytes
        return group

    def refuse_appends(self, refusal: Callable[[], StorageError]) -> None:
        """Refuse the waiting appends. The jobs stay, because a paused writer must go on in order."""
        kept: deque[PendingAppend | Job] = deque()
        while self._items:
            item = self._items.popleft()
            if isinstance(item, Job):
                kept.append(item)
            else:
                item.fail(refusal())
        self._items = kept
        self.size_bytes = 0
