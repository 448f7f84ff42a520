"""The fsyncs of one partition's groups, and the appends that wait for them. Thread: the event loop.

The fsync of a group runs in a thread beside the writing of the next group (group commit). The loop itself waits for the
fsync of a small group if the disk is quicker than the hop to a thread (``flush_pace``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from time import perf_counter
from typing import Protocol

from app.engine_local.partitions.flush_pace import FlushPace
from app.engine_local.partitions.pending_append import PendingAppend
from log_model.errors import PartitionFailedError
from storage.log.partition_log import PartitionLog


class WriterObserver(Protocol):
    """The receiver of a writer's events. Thread: the event loop."""

    def published(self, log: PartitionLog) -> None:
        """Receive that a new snapshot of ``log`` is visible."""

    def group_appended(self, request_count: int, seconds: float) -> None: ...

    def flushed(self, seconds: float) -> None: ...

    def partition_failed(self, log: PartitionLog, error: BaseException) -> None: ...


class GroupFlushes:
    """Flushes one log, one flush at a time, and completes the appends that a flush covers.

    Attributes:
        unflushed: written appends that the next flush covers.
        task: the task that flushes; ``None`` if no flush runs.
        writer_is_busy: whether the writer's task runs. It may then call the log in a thread, and the loop must not wait
            for a flush.
        pace: the decision whether the loop waits for a flush.
        writeback: the last writeback that was begun in a thread.
    """

    def __init__(
        self,
        log: PartitionLog,
        pool: Executor,
        observer: WriterObserver,
        pace: FlushPace,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.unflushed: list[PendingAppend] = []
        self.task: asyncio.Task[None] | None = None
        self.writer_is_busy = False
        self.pace = pace
        self.writeback: asyncio.Future[None] | None = None
        self._log = log
        self._pool = pool
        self._observer = observer
        self._loop = loop
        self._is_asked = False
        self._is_paused = False

    def ask(self) -> None:
        """Flush soon, unless a flush that begins after this call covers the same records."""
        self._is_asked = True
        self.start()

    def start(self) -> None:
        """Begin to flush, unless a flush or a pause is under way."""
        if self.task is None and not self._is_paused:
            self.task = self._loop.create_task(self._flush(), name=f"flush of {self._log.name}")

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Wait for the flush under way, and begin none in the context. A flush that was asked for begins afterwards."""
        while self.task is not None:
            await asyncio.wait([self.task])
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
        if self._is_asked:
            self.start()

    def flush_here(self) -> bool:
        """Flush and publish all written records on the loop. Return false if a thread is better.

        The writer must be idle.

        Raises:
            PartitionFailedError: the fsync failed.
        """
        began = perf_counter()
        if not self.pace.allows(self._log.unflushed_bytes):
            return False
        try:
            self._log.flush()
        except Exception as error:
            raise self._failure(error) from error
        self.pace.note_here(perf_counter() - began)
        self._observer.flushed(perf_counter() - began)
        self._publish()
        return True

    def begin_writeback(self) -> None:
        """Let the disk write the gathered records. A busy disk makes this call wait also, so it runs in a thread."""
        is_busy = self.writeback is not None and not self.writeback.done()
        begin = self._log.due_writeback(is_busy=is_busy)
        if begin is not None:
            self.writeback = self._loop.run_in_executor(self._pool, begin)

    async def _flush(self) -> None:
        try:
            while (self.unflushed or self._is_asked) and not self._is_paused:
                self._is_asked = False
                covered, self.unflushed = self.unflushed, []
                await self._flush_once(covered)
        finally:
            self.task = None

    async def _flush_once(self, covered: list[PendingAppend]) -> None:
        began = perf_counter()
        # A group that is being written in a thread may also flush, and the loop would wait for it.
        is_here = not self.writer_is_busy and self.pace.allows(self._log.unflushed_bytes)
        try:
            if is_here:
                self._log.flush()
                self.pace.note_here(perf_counter() - began)
            else:
                self.pace.note_in_thread(await self._loop.run_in_executor(self._pool, _timed, self._log.flush))
        except Exception as error:  # noqa: BLE001 - the waiting callers receive it
            failure = self._failure(error)
            for pending in covered:
                pending.fail(failure)
            return
        self._observer.flushed(perf_counter() - began)
        self._publish()
        for pending in covered:
            pending.note_fsynced()

    def _failure(self, error: Exception) -> PartitionFailedError:
        """Report the failure of a flush to the observer, and return it. Any error may lose bytes (disk rule 3)."""
        failure = error if isinstance(error, PartitionFailedError) else failed(self._log, error)
        self._observer.partition_failed(self._log, failure)
        return failure

    def _publish(self) -> None:
        self._log.publish()
        self._observer.published(self._log)


def failed(log: PartitionLog, error: BaseException) -> PartitionFailedError:
    """Return the failure of a partition by an unexpected error, which becomes its cause."""
    failure = PartitionFailedError(f"{log.name}: {error}")
    failure.__cause__ = error
    return failure


def _timed(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began
