"""The flushes of all partitions in one turn of the loop: one fsync of the journal for all of them (ADR 23).

The loop writes the entry of a turn, and a thread waits for its fsync. Meanwhile the flushes of the next turns gather.
Thread: the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from time import perf_counter
from typing import Any, Protocol, cast

from app.engine_local.partitions.flush_pace import FlushPace
from log_model.errors import PartitionFailedError
from rollway.records.compiled import load
from storage.journal.journal import Journal, JournalFlush
from storage.journal.pieces import PIECE_BYTES_MAX, Answer
from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_STALL_SECONDS = 0.01
"""Seconds above which the disk has held up the write of an entry on the loop. The next entries go to threads."""
_STALL_PAUSE_SECONDS = 1.0


class TurnMember(Protocol):
    """The flushes of one partition, of which one joins the turn's.

    ``is_open_to_c``: ``turn_members_c`` may read and change its attributes instead of calling it.
    """

    log: PartitionLog
    is_open_to_c: bool

    def take_covered(self) -> list[Any]:
        """Return the appends that a flush covers which begins now."""

    def end_turn(self, covered: list[Any], answer: Answer) -> None:
        """Receive what became of the flush."""


Flushes = tuple[list[TurnMember], list[list[Any]]]
"""The members of a turn, and the appends that the flush of each covers."""


class CompiledMembers(Protocol):
    """The functions of ``turn_members_c.pyx`` that this module calls."""

    def take(self, members: list[TurnMember]) -> tuple[list[list[Any]], list[PartitionLog], int]:
        """Do the same as ``take``."""

    def end(self, members: list[TurnMember], covered: list[list[Any]], answers: list[Answer]) -> None:
        """Do the same as ``end_turns``."""


compiled = cast("CompiledMembers | None", load("app.engine_local.turn_members_c"))
"""The compiled module, or ``None``; looked up here with every call. Tests set it to ``None``."""


def take(members: list[TurnMember]) -> tuple[list[list[Any]], list[PartitionLog], int]:
    """Return the appends that a flush of each member covers, the logs, and the sum of the logs' unflushed bytes."""
    if compiled is not None:
        return compiled.take(members)
    covered = [member.take_covered() for member in members]
    logs = [member.log for member in members]
    return covered, logs, sum([log.unflushed_bytes for log in logs])


def end_turns(members: list[TurnMember], covered: list[list[Any]], answers: list[Answer]) -> None:
    """Call ``end_turn`` of each member."""
    if compiled is not None:
        compiled.end(members, covered, answers)
        return
    for member, of_member, answer in zip(members, covered, answers, strict=True):
        member.end_turn(of_member, answer)


SyncEnd = Callable[[OSError | None, float], None]
"""Receives what became of an fsync, on the loop, and the seconds that it took."""

compiled_thread = load("storage.journal.sync_thread_c")
"""The module with a thread that needs no interpreter, or ``None``; looked up here with every call."""


class JournalSyncs:
    """The fsyncs of a journal beside the loop, one at a time: in a thread of C, or in one of ``pool``."""

    def __init__(self, journal: Journal, pool: Executor) -> None:
        self._journal = journal
        self._pool = pool
        self._thread: Any = None
        self._end: SyncEnd | None = None

    def begin(self, end: SyncEnd) -> None:
        """Make the entry durable that the journal has begun, and then call ``end``."""
        descriptor = -1 if compiled_thread is None else self._journal.descriptor_to_sync()
        if descriptor >= 0 and self._has_thread():
            self._end = end
            self._thread.begin(descriptor)
            return

        def taken(done: asyncio.Future[float]) -> None:
            error = done.exception()
            if error is None:
                end(None, done.result())
            else:
                # Any error may lose bytes (disk rule 3).
                end(error if isinstance(error, OSError) else OSError(errno.EIO, str(error)), 0.0)

        asyncio.get_running_loop().run_in_executor(self._pool, _timed, self._journal.sync).add_done_callback(taken)

    def close(self) -> None:
        """End the thread. No fsync may be under way."""
        if self._thread is not None:
            asyncio.get_running_loop().remove_reader(self._thread.done_descriptor)
            self._thread.close()
            self._thread = None

    def _has_thread(self) -> bool:
        """Begin the thread when it is first needed. Return false if the system has no room for it."""
        if self._thread is None:
            assert compiled_thread is not None
            try:
                thread = compiled_thread.SyncThread()
            except OSError:
                return False
            asyncio.get_running_loop().add_reader(thread.done_descriptor, self._done)
            self._thread = thread
        return True

    def _done(self) -> None:
        outcome = self._thread.take()
        if outcome is not None:
            end, self._end = self._end, None
            assert end is not None
            end(*outcome)


class TurnFlushes:
    """Gathers the flushes of a turn and runs them as one; ``observe`` receives the seconds that each took."""

    def __init__(self, journal: Journal, pool: Executor, pace: FlushPace, observe: Callable[[float], None]) -> None:
        self.journal = journal
        self._pool = pool
        self._pace = pace
        self._observe = observe
        self.waiting: list[TurnMember] = []
        self.is_running = False
        self._freeing: asyncio.Future[None] | None = None
        self._stalled_until = 0.0
        self._syncs = JournalSyncs(journal, pool)

    def takes(self, size_bytes: int) -> bool:
        """Return whether the flush of a log with this many unflushed bytes may join."""
        return size_bytes <= PIECE_BYTES_MAX and self.journal.is_usable

    def add(self, member: TurnMember) -> None:
        """Flush a log once this turn is over; then call ``end_turn`` of ``member``."""
        self.waiting.append(member)
        if not self.is_running:
            self.is_running = True
            asyncio.get_running_loop().call_soon(self._begin)

    async def close(self) -> None:
        """Wait for work of the journal in a thread. No flush may be under way."""
        while self._freeing is not None:
            await asyncio.wait([self._freeing])
        self._syncs.close()

    def _begin(self) -> None:
        members, self.waiting = self.waiting, []
        covered, logs, size_bytes = take(members)
        flushes = members, covered
        if self._pace.allows(size_bytes):
            seconds, answers = self._flush(logs)
            self._pace.note_here(seconds)
            self._end(flushes, seconds, answers)
            return
        began = perf_counter()
        begun = self._begun_here(logs)
        if begun is None:
            self._flush_in_thread(flushes, logs)
        elif begun.taken is None:
            self._end(flushes, perf_counter() - began, begun.answers)
        else:
            self._sync_beside(flushes, begun, began)

    def _begun_here(self, logs: Sequence[PartitionLog]) -> JournalFlush | None:
        """Write the entry of a turn on the loop. ``None`` leaves the flush to a thread: the loop might have to wait."""
        began = perf_counter()
        if began < self._stalled_until:
            return None
        try:
            return self.journal.begin(logs, may_wait=False)
        except Exception:  # a thread meets the error again, and reports it
            logger.exception("an entry of the journal could not be written on the loop")
            return None
        finally:
            if perf_counter() - began > _STALL_SECONDS:
                self._stalled_until = began + _STALL_PAUSE_SECONDS

    def _sync_beside(self, flushes: Flushes, begun: JournalFlush, began: float) -> None:
        def end(failure: OSError | None, seconds: float) -> None:
            if failure is None:
                self._pace.note_in_thread(seconds)
            answers = self.journal.finish(begun, failure)
            self._end(flushes, perf_counter() - began, answers)

        self._syncs.begin(end)

    def _flush_in_thread(self, flushes: Flushes, logs: Sequence[PartitionLog]) -> None:
        def end(done: asyncio.Future[tuple[float, list[Answer]]]) -> None:
            seconds, answers = done.result()
            self._pace.note_in_thread(seconds)
            self._end(flushes, seconds, answers)

        asyncio.get_running_loop().run_in_executor(self._pool, self._flush, logs).add_done_callback(end)

    def _flush(self, logs: Sequence[PartitionLog]) -> tuple[float, list[Answer]]:
        began = perf_counter()
        answers: list[Answer]
        try:
            answers = self.journal.flush(logs)
        except Exception as error:  # noqa: BLE001 - the waiting callers receive it
            answers = [PartitionFailedError(f"{log.name}: {error}") for log in logs]
        return perf_counter() - began, answers

    def _end(self, flushes: Flushes, seconds: float, answers: list[Answer]) -> None:
        self._observe(seconds)
        loop = asyncio.get_running_loop()
        self.free_if_needed()
        end_turns(*flushes, answers)
        self.is_running = bool(self.waiting)
        if self.is_running:
            loop.call_soon(self._begin)

    def free_if_needed(self) -> None:
        """Begin to free full files of the journal in a thread, or those of a journal that has ended."""
        if self.journal.needs_freeing and self._freeing is None:
            self._freeing = asyncio.get_running_loop().run_in_executor(self._pool, self.journal.free)
            self._freeing.add_done_callback(self._freed)

    def _freed(self, done: asyncio.Future[None]) -> None:
        self._freeing = None
        done.result()
        # The journal may have ended meanwhile, and no turn comes after that.
        self.free_if_needed()


def _timed(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began
