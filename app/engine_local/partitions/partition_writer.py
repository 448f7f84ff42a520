"""One partition's writer: a bounded mailbox, and the one task that does the work in it.

Requests come in as appends and jobs. The task takes the waiting appends as one *group*, gives it to the log in a
thread, publishes, completes the appends in order, and goes on. The fsync of a group runs in another thread beside the
writing of the next group (group commit). Jobs (retention, roll, truncation, configuration) run alone, in their turn, so
they never race an append or a flush (invariants 1, 8, 9, 10).

A small append to an idle writer is written at once, on the loop, if it needs no roll and no fsync and the disk has not
held up such a write lately: the hop to a thread would cost more than the write. The loop also waits for the fsync of a
small group if the disk is quicker than the hop (``flush_pace``).

Thread: everything here runs on the event loop; the log's other calls go to threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol, TypeVar, cast

from app.engine_local.partitions.flush_pace import FlushPace
from app.engine_local.partitions.pending_append import PendingAppend, set_exception, set_result
from app.problems import kinds
from app.problems.problem import Problem
from app.settings import Settings
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

OVERLOAD_RETRY_AFTER_MS = 100
# The request of an append that was in the log before its ``PendingAppend`` was made.
_WRITTEN_BEFORE = AppendRequest(())
STALL_SECONDS = 0.01
"""Seconds above which the disk has held up a write on the loop. The next writes go to threads."""
STALL_PAUSE_SECONDS = 1.0


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


class WriterObserver(Protocol):
    """The receiver of a writer's events. Thread: the event loop."""

    def published(self, log: PartitionLog) -> None:
        """Receive that a new snapshot of ``log`` is visible."""
        ...

    def group_appended(self, request_count: int, seconds: float) -> None: ...

    def flushed(self, seconds: float) -> None: ...

    def partition_failed(self, log: PartitionLog, error: BaseException) -> None: ...


class _Job:
    """Work that runs alone between two groups: a call in a thread, or without a call a pause of the writer."""

    __slots__ = ("call", "done", "released")

    def __init__(self, call: Callable[[], object] | None, loop: asyncio.AbstractEventLoop) -> None:
        self.call = call
        self.done: asyncio.Future[object] = loop.create_future()
        self.released: asyncio.Future[None] = loop.create_future()


class PartitionWriter:
    """The only caller of one log's writing methods.

    Compiled appends (``app.fast_path.handlers_c``) write to an idle writer's log as ``append`` does. They read these
    attributes, which only this class changes, and report with ``failed_here`` and ``look_for_stall``:

    Attributes:
        log: the log that it writes to.
        loop: the event loop that everything here runs on.
        task: the task that does the work in the mailbox; ``None`` if the mailbox is empty and no job runs.
        refusal: makes the error that every append gets; ``None`` while the writer takes appends.
        inline_bytes_max: the largest append that is written on the loop.
        stalled_until: the time of the loop until which the disk is too slow for writes on the loop.
        was_slow: whether the last write on the loop was slow.
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
    ) -> None:
        self.log = log
        self._write_pool = write_pool
        self._flush_pool = flush_pool
        self._observer = observer
        self._limits = limits or MailboxLimits()
        self.inline_bytes_max = self._limits.inline_bytes_max
        self._pace = pace or FlushPace(0)
        self.loop = asyncio.get_running_loop()
        self._mailbox: deque[PendingAppend | _Job] = deque()
        self._mailbox_bytes = 0
        self.task: asyncio.Task[None] | None = None
        self._in_job = False
        self._unflushed: list[PendingAppend] = []
        self._flush_asked = False
        self._flush_task: asyncio.Task[None] | None = None
        self._writeback: asyncio.Future[None] | None = None
        self.refusal: Callable[[], StorageError] | None = None
        self.stalled_until = 0.0
        self.was_slow = False
        self.turn: Any = None
        """The ``AppendTurn`` of compiled appends to this partition, if there is one; see ``app.fast_path.produce``."""

    @property
    def is_idle(self) -> bool:
        """Whether no request waits and no work runs: the writer then costs only its memory."""
        return self.task is None and self._flush_task is None

    @property
    def mailbox_count(self) -> int:
        return len(self._mailbox)

    @property
    def mailbox_bytes(self) -> int:
        return self._mailbox_bytes

    def append(self, request: AppendRequest, *, size_bytes: int, wants_fsync: bool = False) -> PendingAppend:
        """Put ``request`` into the mailbox. The cancellation of a waiting caller does not cancel the append.

        Raises:
            Problem: overloaded, the mailbox is full; the append was not taken.
            StorageError: the partition is gone or the service is stopping.
        """
        self._admit(size_bytes)
        pending = PendingAppend(self.log, request, size_bytes, wants_fsync, self.loop)
        if self.task is None and self._is_quick(request, size_bytes):
            self._append_now(pending)
            return pending
        self._mailbox_bytes += size_bytes
        self._put(pending)
        return pending

    def fsync_written(self, size_bytes: int, result: AppendResult) -> PendingAppend:
        """Begin an fsync soon for an append that is written already; the append completes with it."""
        pending = self.written_append(size_bytes, result)
        self._unflushed.append(pending)
        self._start_flush()
        return pending

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
        began = perf_counter()
        if not self.is_idle or self._in_job or not self._pace.allows(self.log.unflushed_bytes):
            return False
        try:
            self.log.flush()
        except Exception as error:
            raise self._flush_failed(error) from error
        self._pace.note_here(perf_counter() - began)
        self._observer.flushed(perf_counter() - began)
        self.publish()
        return True

    def _flush_failed(self, error: Exception) -> PartitionFailedError:
        """Report the failure of a flush to the observer, and return it. Any error may lose bytes (disk rule 3)."""
        failure = error if isinstance(error, PartitionFailedError) else _failed(self.log, error)
        self._observer.partition_failed(self.log, failure)
        return failure

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run ``call`` in a thread when its turn comes, with no append and no flush beside it. Publish afterwards.

        Raises:
            Problem: overloaded.
            StorageError: the errors of ``call`` and of ``append``.
        """
        self._admit(0)
        job = _Job(call, self.loop)
        self._put(job)
        # The job is shielded: a caller that goes away does not cancel it (invariant 8).
        result: Any = await asyncio.shield(job.done)
        return cast("Result", result)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Pause the writer, for work on several partitions at once. Later requests wait meanwhile."""
        self._admit(0)
        job = _Job(None, self.loop)
        self._put(job)
        try:
            await asyncio.shield(job.done)
            yield
        finally:
            if not job.released.done():
                job.released.set_result(None)

    def ask_flush(self) -> None:
        """Flush soon, unless a flush that begins after this call covers the same records."""
        self._flush_asked = True
        self._start_flush()

    def retire(self, refusal: Callable[[], StorageError]) -> None:
        """Refuse all waiting appends and all later requests with the errors that ``refusal`` makes."""
        self.refusal = refusal
        self._refuse_queued(refusal)

    async def close(self) -> None:
        """Take no more requests, and finish the earlier ones, including their flush."""
        if self.refusal is None:
            self.refusal = lambda: ShuttingDownError("the service is stopping")
        while self.task is not None or self._flush_task is not None:
            running = [task for task in (self.task, self._flush_task) if task is not None]
            await asyncio.wait(running)

    def _admit(self, size_bytes: int) -> None:
        if self.refusal is not None:
            raise self.refusal()
        full = len(self._mailbox) >= self._limits.count_max
        if full or (self._mailbox and self._mailbox_bytes + size_bytes > self._limits.bytes_max):
            raise Problem(
                kinds.OVERLOADED,
                f"too much waits to be written to {self.log.name}",
                retry_after_ms=OVERLOAD_RETRY_AFTER_MS,
            )

    def _put(self, item: PendingAppend | _Job) -> None:
        self._mailbox.append(item)
        if self.task is None:
            self.task = self.loop.create_task(self._work(), name=f"writer of {self.log.name}")

    async def _work(self) -> None:
        try:
            while self._mailbox:
                if isinstance(self._mailbox[0], _Job):
                    await self._do_job()
                else:
                    await self._append_group(self._take_group())
        finally:
            self.task = None

    def _take_group(self) -> list[PendingAppend]:
        group: list[PendingAppend] = []
        size_bytes = 0
        while self._mailbox and len(group) < self._limits.group_count_max:
            pending = self._mailbox[0]
            if isinstance(pending, _Job):
                break
            if group and size_bytes + pending.size_bytes > self._limits.group_bytes_max:
                break
            self._mailbox.popleft()
            group.append(pending)
            size_bytes += pending.size_bytes
        self._mailbox_bytes -= size_bytes
        return group

    def _is_quick(self, request: AppendRequest, size_bytes: int) -> bool:
        """Return whether an append is quicker on the loop than the hop to a thread. The caller has checked ``task``."""
        return (
            size_bytes <= self._limits.inline_bytes_max
            and self.loop.time() >= self.stalled_until
            and self.log.appends_without_waiting(request)
        )

    def _append_now(self, pending: PendingAppend) -> None:
        """Append as ``_append_group``, on the loop. The log has no other caller: there is no task and no await here."""
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
        self._begin_writeback()
        self._answer_written([pending], outcomes)

    def failed_here(self, error: Exception) -> StorageError:
        """Record that an append on the loop has failed, and return the error for its client."""
        if not isinstance(error, StorageError):  # a defect must not leave callers waiting for ever
            logger.error("append to %s failed in an unexpected way", self.log.name, exc_info=error)
            error = _failed(self.log, error)
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

    async def _append_group(self, group: list[PendingAppend]) -> None:
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
            self._fail_group(group, _failed(self.log, error))
            return
        self._observer.group_appended(len(group), perf_counter() - began)
        self.publish()
        self._begin_writeback()
        self._answer_written(group, outcomes)

    def _answer_written(self, group: list[PendingAppend], outcomes: Sequence[AppendResult | StorageError]) -> None:
        every_group = self.log.config.flush_policy == "group"
        for pending, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, StorageError):
                pending.fail(outcome)
                continue
            pending.note_written(outcome)
            if every_group or pending.wants_fsync:
                self._unflushed.append(pending)
        if self._unflushed:
            self._start_flush()

    def _begin_writeback(self) -> None:
        """Let the disk write the gathered records. A busy disk makes this call wait also, so it runs in a thread."""
        is_busy = self._writeback is not None and not self._writeback.done()
        begin = self.log.due_writeback(is_busy=is_busy)
        if begin is not None:
            self._writeback = self.loop.run_in_executor(self._flush_pool, begin)

    def _fail_group(self, group: list[PendingAppend], error: StorageError) -> None:
        for pending in group:
            pending.fail(error)
        if isinstance(error, PartitionFailedError):
            self._observer.partition_failed(self.log, error)
            reason = str(error)
            self._refuse_queued(lambda: PartitionOfflineError(f"{self.log.name} is offline: {reason}"))
        self.publish()

    def _refuse_queued(self, refusal: Callable[[], StorageError]) -> None:
        """Refuse the waiting appends. The waiting jobs keep their turn, because a paused writer must go on in order."""
        kept: deque[PendingAppend | _Job] = deque()
        while self._mailbox:
            item = self._mailbox.popleft()
            if isinstance(item, _Job):
                kept.append(item)
            else:
                item.fail(refusal())
        self._mailbox = kept
        self._mailbox_bytes = 0

    async def _do_job(self) -> None:
        while self._flush_task is not None:
            await asyncio.wait([self._flush_task])
        job = self._mailbox.popleft()
        assert isinstance(job, _Job)
        self._in_job = True
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
        finally:
            self._in_job = False
        if self._flush_asked:
            self._start_flush()

    async def _call(self, call: Callable[[], object]) -> object:
        try:
            return await self.loop.run_in_executor(self._write_pool, call)
        finally:
            self.publish()

    def _start_flush(self) -> None:
        if self._flush_task is None and not self._in_job:
            self._flush_task = self.loop.create_task(self._flush(), name=f"flush of {self.log.name}")

    async def _flush(self) -> None:
        try:
            while (self._unflushed or self._flush_asked) and not self._in_job:
                self._flush_asked = False
                covered, self._unflushed = self._unflushed, []
                await self._flush_once(covered)
        finally:
            self._flush_task = None

    async def _flush_once(self, covered: list[PendingAppend]) -> None:
        began = perf_counter()
        # A group that is being written in a thread may also flush, and the loop would wait for it.
        is_here = self.task is None and self._pace.allows(self.log.unflushed_bytes)
        try:
            if is_here:
                self.log.flush()
                self._pace.note_here(perf_counter() - began)
            else:
                self._pace.note_in_thread(await self.loop.run_in_executor(self._flush_pool, _timed, self.log.flush))
        except Exception as error:  # noqa: BLE001 - the waiting callers receive it
            failure = self._flush_failed(error)
            for pending in covered:
                pending.fail(failure)
            return
        self._observer.flushed(perf_counter() - began)
        self.publish()
        for pending in covered:
            pending.note_fsynced()

    def publish(self) -> None:
        """Make the written records visible to readers."""
        self.log.publish()
        self._observer.published(self.log)


def _timed(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began


def waits_of_thread() -> int:
    """Return how often this thread has waited, such as for a disk, since it began. Forced yields do not count."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _failed(log: PartitionLog, error: BaseException) -> PartitionFailedError:
    failure = PartitionFailedError(f"{log.name}: {error}")
    failure.__cause__ = error
    return failure
