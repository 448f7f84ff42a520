"""One partition's writer: a bounded mailbox, and the one task that does the work in it.

Requests come in as appends and jobs. The task takes the waiting appends as one *group*, gives it to the log in a
thread, publishes, completes the appends in order, and goes on. ``group_flushes`` runs the fsyncs of groups beside it.
Jobs (retention, roll, truncation, configuration) run alone, in their turn, so they never race an append or a flush
(invariants 1, 8, 9, 10).

A small append to an idle writer is written at once, on the loop, if it needs no roll and no fsync and the disk has not
held up such a write lately: the hop to a thread would cost more than the write.

Thread: everything here runs on the event loop; the log's other calls go to threads.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from time import perf_counter
from typing import Any, TypeVar, cast

from app.engine_local.partitions.flush_pace import FlushPace
from app.engine_local.partitions.group_flushes import GroupFlushes, WaitingAppend, WriterObserver, failed
from app.engine_local.partitions.mailbox import Job, Mailbox, MailboxLimits
from app.engine_local.partitions.pending_append import PendingAppend, set_exception, set_result
from app.engine_local.partitions.turn_flushes import TurnFlushes
from log_model.errors import (
    PartitionFailedError,
    PartitionOfflineError,
    ShuttingDownError,
    StorageError,
    let_go_of_frames,
)
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# The request of an append that was in the log before its ``PendingAppend`` was made.
_WRITTEN_BEFORE = AppendRequest(())
STALL_SECONDS = 0.01
"""Seconds above which the disk has held up a write on the loop. The next writes go to threads."""
STALL_PAUSE_SECONDS = 1.0
INLINE_COUNT_MAX = 256
"""At most this many requests that waited are written on the loop in one turn, some 20 us each."""


class PartitionWriter:
    """The only caller of one log's writing methods.

    Compiled appends (``app.fast_path.produce_c``) write to an idle writer's log as ``append`` does. They read these
    attributes, which only this class changes, and report with ``failed_here`` and ``look_for_stall``:

    Attributes:
        log: the log that it writes to.
        loop: the event loop that everything here runs on.
        task: the task that does the work in the mailbox; ``None`` if the mailbox is empty and no job runs.
        refusal: makes the error that every append gets; ``None`` while the writer takes appends.
        inline_bytes_max: the largest append that is written on the loop.
        stalled_until: the time of the loop until which the disk is too slow for writes on the loop.
        was_slow: whether the last write on the loop was slow.

    ``mailbox`` has the waiting requests, and ``flushes`` the fsyncs of written groups.
    """

    def __init__(
        self,
        log: PartitionLog,
        *,
        write_pool: Executor,
        flush_pool: Executor,
        observer: WriterObserver,
        limits: MailboxLimits | None = None,
        pace: FlushPace | None = None,
        turns: TurnFlushes | None = None,
    ) -> None:
        self.log = log
        self.loop = asyncio.get_running_loop()
        limits = limits or MailboxLimits()
        self.mailbox = Mailbox(log.name, limits)
        self.flushes = GroupFlushes(log, flush_pool, observer, pace or FlushPace(0), self.loop, turns)
        self.inline_bytes_max = limits.inline_bytes_max
        self._write_pool = write_pool
        self._observer = observer
        self.task: asyncio.Task[None] | None = None
        self.refusal: Callable[[], StorageError] | None = None
        self.stalled_until = 0.0
        self.was_slow = False
        self.batcher: Any = None
        """The ``AppendBatcher`` of this partition, if compiled handlers append to it; see ``app.fast_path.produce``."""

    @property
    def is_idle(self) -> bool:
        """Whether no request waits and no work runs: the writer then costs only its memory."""
        return self.task is None and not self.flushes.is_busy

    def append(self, request: AppendRequest, *, size_bytes: int, wants_fsync: bool = False) -> PendingAppend:
        """Put ``request`` into the mailbox. The cancellation of a waiting caller does not cancel the append.

        Raises:
            Problem: overloaded, the mailbox is full; the append was not taken.
            StorageError: the partition is gone or the service is stopping.
        """
        if self.refusal is not None:
            raise self.refusal()
        self.mailbox.check_room(size_bytes)
        pending = PendingAppend(self.log, request, size_bytes, wants_fsync, self.loop)
        if self.task is None and self._is_quick(request, size_bytes):
            self._append_now(pending)
            return pending
        self.mailbox.put_append(pending)
        self._start()
        return pending

    def flush_for(self, waiting: WaitingAppend) -> None:
        """Begin an fsync soon for appends that are written already; it completes ``waiting``."""
        self.flushes.unflushed.append(waiting)
        self.flushes.start()

    def written_append(self, size_bytes: int, result: AppendResult) -> PendingAppend:
        """Return a ``PendingAppend`` for an append that is written already; the caller completes its ``fsynced``."""
        pending = PendingAppend(self.log, _WRITTEN_BEFORE, size_bytes, True, self.loop)
        pending.result = result
        return pending

    def flush_here(self) -> bool:
        """Flush and publish all written records at once, on the loop. Return false if that is not possible.

        The writer must be idle, and the disk quick enough.

        Raises:
            PartitionFailedError: the fsync failed.
        """
        return self.is_idle and self.flushes.flush_here()

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run ``call`` in a thread when its turn comes, with no append and no flush beside it. Publish afterwards.

        Raises:
            Problem: overloaded.
            StorageError: the errors of ``call`` and of ``append``.
        """
        job = self.put_job(call)
        # The job is shielded: a caller that goes away does not cancel it (invariant 8).
        result: Any = await asyncio.shield(job.done)
        return cast("Result", result)

    def ask_flush(self) -> None:
        """Flush soon, unless a flush that begins after this call covers the same records."""
        self.flushes.ask()

    def retire(self, refusal: Callable[[], StorageError]) -> None:
        """Refuse all waiting appends and all later requests with the errors that ``refusal`` makes."""
        self.refusal = refusal
        self.mailbox.refuse_appends(refusal)

    async def close(self) -> None:
        """Take no more requests, and finish the earlier ones, including their flush."""
        if self.refusal is None:
            self.refusal = lambda: ShuttingDownError("the service is stopping")
        while not self.is_idle:
            if self.task is not None:
                await asyncio.wait([self.task])
            await self.flushes.idle()

    def put_job(self, call: Callable[[], object] | None, *, even_if_full: bool = False) -> Job:
        """Put a job behind the waiting requests; without a call it is a pause, from ``done`` until ``release``.

        Raises:
            Problem: overloaded.
            StorageError: the partition is gone or the service is stopping.
        """
        if self.refusal is not None:
            raise self.refusal()
        if not even_if_full:
            self.mailbox.check_room(0)
        job = Job(call, self.loop)
        self.mailbox.put_job(job)
        self._start()
        return job

    def _start(self) -> None:
        if self.task is None:
            self.flushes.writer_is_busy = True
            self.task = self.loop.create_task(self._work(), name=f"writer of {self.log.name}")

    async def _work(self) -> None:
        try:
            while self.mailbox:
                job = self.mailbox.first_job()
                if job is not None:
                    await self._do_job(job)
                else:
                    await self._append_group(self.mailbox.take_group())
        finally:
            self.task = None
            self.flushes.writer_is_busy = False

    def _is_quick(self, request: AppendRequest, size_bytes: int) -> bool:
        """Return whether an append is quicker on the loop than the hop to a thread. The caller has checked ``task``."""
        return (
            size_bytes <= self.inline_bytes_max
            and self.loop.time() >= self.stalled_until
            and self.log.appends_without_waiting(request)
        )

    def _append_now(self, pending: PendingAppend) -> None:
        """Append on the loop. The log has no other caller: there is no task, or it is this one, and no await here."""
        waits_before = waits_of_thread() if self.was_slow else 0
        began = perf_counter()
        try:
            outcomes = self.log.append((pending.request,))
        except Exception as error:  # noqa: BLE001 - the waiting caller receives it
            pending.fail(self.failed_here(error))
            return
        seconds = perf_counter() - began
        self.look_for_stall(seconds, waits_before)
        self._observer.group_appended(1, seconds)
        self.publish()
        self.flushes.begin_writeback()
        self._answer_written([pending], outcomes)

    def failed_here(self, error: Exception) -> StorageError:
        """Record that an append on the loop has failed, and return the error for its client."""
        if not isinstance(error, StorageError):  # a defect must not leave callers waiting for ever
            logger.error("append to %s failed in an unexpected way", self.log.name, exc_info=error)
            error = failed(self.log, error)
        self._fail_group([], error)
        return error

    def look_for_stall(self, seconds: float, waits_before: int) -> None:
        """Decide whether the disk held up a write on the loop of this many ``seconds``.

        If the write before was slow, ``waits_before`` is the value of ``waits_of_thread`` before this write.
        """
        if seconds <= STALL_SECONDS:
            self.was_slow = False
        elif self.was_slow and waits_of_thread() > waits_before:
            self.stalled_until = self.loop.time() + STALL_PAUSE_SECONDS
        else:
            # The scheduler may have caused one slow write. The next write is looked at closely.
            self.was_slow = True

    def _append_quick(self, group: list[PendingAppend]) -> list[PendingAppend]:
        """Append the first requests of a small group on the loop, as far as they are quick; return the rest.

        In a thread they would keep the writer busy. Requests that come meanwhile would wait in the mailbox and be the
        next group, and so on for as long as the clients ask.
        """
        size_bytes = sum(pending.size_bytes for pending in group)
        if len(group) > INLINE_COUNT_MAX or size_bytes > self.inline_bytes_max:
            return group
        for place, pending in enumerate(group):
            if not self._is_quick(pending.request, pending.size_bytes):
                return group[place:]
            self._append_now(pending)
        return []

    async def _append_group(self, group: list[PendingAppend]) -> None:
        group = self._append_quick(group)
        if not group:
            return
        began = perf_counter()
        try:
            outcomes = await self.loop.run_in_executor(
                self._write_pool, self.log.append, [pending.request for pending in group]
            )
        except StorageError as error:
            self._fail_group(group, error)
            return
        except Exception as error:  # a defect must not leave callers waiting for ever
            logger.exception("append to %s failed in an unexpected way", self.log.name)
            self._fail_group(group, failed(self.log, error))
            return
        self._observer.group_appended(len(group), perf_counter() - began)
        self.publish()
        self.flushes.begin_writeback()
        self._answer_written(group, outcomes)

    def _answer_written(self, group: list[PendingAppend], outcomes: Sequence[AppendResult | StorageError]) -> None:
        every_group = self.log.config.flush_policy == "group"
        for pending, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, StorageError):
                pending.fail(outcome)
                continue
            pending.note_written(outcome)
            if every_group or pending.wants_fsync:
                self.flushes.unflushed.append(pending)
        if self.flushes.unflushed:
            self.flushes.start()

    def _fail_group(self, group: list[PendingAppend], error: StorageError) -> None:
        for pending in group:
            pending.fail(error)
        if isinstance(error, PartitionFailedError):
            self._observer.partition_failed(self.log, error)
            reason = str(error)
            self.mailbox.refuse_appends(lambda: PartitionOfflineError(f"{self.log.name} is offline: {reason}"))
        self.publish()

    async def _do_job(self, job: Job) -> None:
        async with self.flushes.paused():
            self.mailbox.take_job()
            try:
                if job.call is None:
                    set_result(job.done, None)
                    await job.released
                    self.publish()
                else:
                    set_result(job.done, await self._call(job.call))
            except Exception as error:  # noqa: BLE001 - the waiting caller receives it
                if isinstance(error, StorageError):
                    # The job holds its future, the future holds the error, and this frame holds the job and the log.
                    let_go_of_frames(error)
                set_exception(job.done, error)
                if isinstance(error, PartitionFailedError):
                    self._observer.partition_failed(self.log, error)

    async def _call(self, call: Callable[[], object]) -> object:
        try:
            return await self.loop.run_in_executor(self._write_pool, call)
        finally:
            self.publish()

    def publish(self) -> None:
        """Make the written records visible to readers."""
        self.log.publish()
        self._observer.published(self.log)


def waits_of_thread() -> int:
    """Return how often this thread has waited, such as for a disk, since it began. Forced yields do not count."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
