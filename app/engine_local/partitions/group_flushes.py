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
from app.engine_local.partitions.turn_flushes import TurnFlushes
from log_model.errors import PartitionFailedError
from rollway.records.compiled import load
from storage.journal.pieces import Answer
from storage.log.partition_log import PartitionLog

plain_append = load("storage.log.append_c")


class WriterObserver(Protocol):
    """The receiver of a writer's events. Thread: the event loop."""

    def published(self, log: PartitionLog) -> None:
        """Receive that a new snapshot of ``log`` is visible."""

    def group_appended(self, request_count: int, seconds: float) -> None: ...

    def flushed(self, seconds: float) -> None: ...

    def partition_failed(self, log: PartitionLog, error: BaseException) -> None: ...


class WaitingAppend(Protocol):
    """A written append, or several, that a flush completes."""

    def note_fsynced(self) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class GroupFlushes:
    """Flushes one log, one flush at a time, and completes the appends that a flush covers.

    A small flush shares an fsync with those of other partitions in the same turn of the loop (``turn_flushes``). A
    large one, and every one without a journal, is an fsync of the log's own.

    ``turn_members_c`` reads and changes these attributes as this class does:

    Attributes:
        turns: the flushes of all partitions in this turn; ``None`` without a journal.
        observer: the receiver of this writer's events.
        unflushed: written appends that the next flush covers.
        is_busy: whether a flush runs, or waits for the end of the turn.
        is_asked: whether a flush must begin after the one under way.
        is_paused: whether no flush may begin.
        idle_future: completes at the end of the flushes, if anything waits for that.
        is_open_to_c: true, as these are the attributes that ``turn_members_c`` knows.
        writer_is_busy: whether the writer's task runs. It may then call the log in a thread, and the loop must not wait
            for a flush of its own.
        pace: the decision whether the loop waits for a flush.
        writeback: the last writeback that was begun in a thread.
    """

    is_open_to_c = True

    def __init__(
        self,
        log: PartitionLog,
        pool: Executor,
        observer: WriterObserver,
        pace: FlushPace,
        loop: asyncio.AbstractEventLoop,
        turns: TurnFlushes | None = None,
    ) -> None:
        self.log = log
        self.unflushed: list[WaitingAppend] = []
        self.is_busy = False
        self.writer_is_busy = False
        self.pace = pace
        self.writeback: asyncio.Future[None] | None = None
        self.turns = turns
        self._pool = pool
        self.observer = observer
        self._loop = loop
        self.is_asked = False
        self.is_paused = False
        self._task: asyncio.Task[None] | None = None
        self.idle_future: asyncio.Future[None] | None = None

    def ask(self) -> None:
        """Flush soon, unless a flush that begins after this call covers the same records."""
        self.is_asked = True
        self.start()

    def start(self) -> None:
        """Begin to flush, unless a flush or a pause is under way."""
        if self.is_busy or self.is_paused:
            return
        self.is_busy = True
        if self.turns is not None and self.turns.takes(self.log.unflushed_bytes):
            self.turns.add(self)
        else:
            self._flush_alone()

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Wait for the flush under way, and begin none in the context. A flush that was asked for begins afterwards."""
        self.is_paused = True
        try:
            await self.idle()
            yield
        finally:
            self.is_paused = False
        if self.is_asked or self.unflushed:
            self.start()

    async def idle(self) -> None:
        """Wait for the flush under way, and for those that follow it at once."""
        while self.is_busy:
            if self.idle_future is None:
                self.idle_future = self._loop.create_future()
            await asyncio.shield(self.idle_future)

    def flush_here(self) -> bool:
        """Flush and publish all written records on the loop. Return false if a thread, or the turn's flush, is better.

        The writer must be idle.

        Raises:
            PartitionFailedError: the fsync failed.
        """
        size_bytes = self.log.unflushed_bytes
        if self.turns is not None and self.turns.takes(size_bytes):
            return False
        began = perf_counter()
        if not self.pace.allows(size_bytes):
            return False
        try:
            self.log.flush()
        except Exception as error:
            raise self._failure(error) from error
        self.pace.note_here(perf_counter() - began)
        self.observer.flushed(perf_counter() - began)
        self._publish()
        return True

    def begin_writeback(self) -> None:
        """Let the disk write the gathered records. A busy disk makes this call wait also, so it runs in a thread."""
        is_busy = self.writeback is not None and not self.writeback.done()
        begin = self.log.due_writeback(is_busy=is_busy)
        if begin is not None:
            self.writeback = self._loop.run_in_executor(self._pool, begin)

    # The flush of a turn

    def take_covered(self) -> list[WaitingAppend]:
        """Return the appends that a flush covers which begins now."""
        self.is_asked = False
        covered, self.unflushed = self.unflushed, []
        return covered

    def end_turn(self, covered: list[WaitingAppend], answer: Answer) -> None:
        """Complete the appends that the turn's flush covered, or flush the log by itself if the answer is false."""
        if answer is False:
            self.unflushed = covered + self.unflushed
            self._flush_alone()
            return
        self._complete(covered, None if answer is True else self._failure(answer))
        self.go_on()

    # The log's own flush

    def _flush_alone(self) -> None:
        self._task = self._loop.create_task(self._flush(), name=f"flush of {self.log.name}")

    async def _flush(self) -> None:
        began = perf_counter()
        covered = self.take_covered()
        # A group that is being written in a thread may also flush, and the loop would wait for it.
        is_here = not self.writer_is_busy and self.pace.allows(self.log.unflushed_bytes)
        failure = None
        try:
            if is_here:
                self.log.flush()
                self.pace.note_here(perf_counter() - began)
            else:
                self.pace.note_in_thread(await self._loop.run_in_executor(self._pool, _timed, self.log.flush))
            self.observer.flushed(perf_counter() - began)
        except Exception as error:  # noqa: BLE001 - the waiting callers receive it
            failure = self._failure(error)
        self._task = None
        self._complete(covered, failure)
        self.go_on()

    # The end of a flush

    def _complete(self, covered: list[WaitingAppend], failure: PartitionFailedError | None) -> None:
        if failure is not None:
            for pending in covered:
                pending.fail(failure)
            return
        self._publish()
        for pending in covered:
            pending.note_fsynced()

    def go_on(self) -> None:
        """Begin the next flush, or tell those that wait for the end of the flushes."""
        self.is_busy = False
        if (self.unflushed or self.is_asked) and not self.is_paused:
            self.start()
        elif self.idle_future is not None:
            idle, self.idle_future = self.idle_future, None
            idle.set_result(None)

    def _failure(self, error: Exception) -> PartitionFailedError:
        """Report the failure of a flush to the observer, and return it. Any error may lose bytes (disk rule 3)."""
        failure = error if isinstance(error, PartitionFailedError) else failed(self.log, error)
        self.observer.partition_failed(self.log, failure)
        return failure

    def _publish(self) -> None:
        if plain_append is None:
            self.log.publish()
        else:
            plain_append.publish(self.log)
        self.observer.published(self.log)


def failed(log: PartitionLog, error: BaseException) -> PartitionFailedError:
    """Return the failure of a partition by an unexpected error, which becomes its cause."""
    failure = PartitionFailedError(f"{log.name}: {error}")
    failure.__cause__ = error
    return failure


def _timed(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began
