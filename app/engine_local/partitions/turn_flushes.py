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
from typing import Any, Protocol

from app.engine_local.partitions.flush_pace import FlushPace
from log_model.errors import PartitionFailedError
from storage.journal.journal import Journal, JournalFlush
from storage.journal.pieces import PIECE_BYTES_MAX, Answer
from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_STALL_SECONDS = 0.01
"""Seconds above which the disk has held up the write of an entry on the loop. The next entries go to threads."""
_STALL_PAUSE_SECONDS = 1.0


class TurnMember(Protocol):
    """The flushes of one partition, of which one joins the turn's."""

    log: PartitionLog

    def take_covered(self) -> list[Any]:
        """Return the appends that a flush covers which begins now."""

    def end_turn(self, covered: list[Any], answer: Answer) -> None:
        """Receive what became of the flush."""


Flushes = Sequence[tuple[TurnMember, list[Any]]]
"""The members of a turn, each with the appends that its flush covers."""


class TurnFlushes:
    """Gathers the flushes of a turn and runs them as one; ``observe`` receives the seconds that each took."""

    def __init__(self, journal: Journal, pool: Executor, pace: FlushPace, observe: Callable[[float], None]) -> None:
        self._journal = journal
        self._pool = pool
        self._pace = pace
        self._observe = observe
        self._waiting: list[TurnMember] = []
        self._is_running = False
        self._freeing: asyncio.Future[None] | None = None
        self._stalled_until = 0.0

    def takes(self, size_bytes: int) -> bool:
        """Return whether the flush of a log with this many unflushed bytes may join."""
        return size_bytes <= PIECE_BYTES_MAX and self._journal.is_usable

    def add(self, member: TurnMember) -> None:
        """Flush a log once this turn is over; then call ``end_turn`` of ``member``."""
        self._waiting.append(member)
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._begin)

    async def close(self) -> None:
        """Wait for work of the journal in a thread. No flush may be under way."""
        while self._freeing is not None:
            await asyncio.wait([self._freeing])

    def _begin(self) -> None:
        members, self._waiting = self._waiting, []
        flushes = [(member, member.take_covered()) for member in members]
        logs = [member.log for member in members]
        if self._pace.allows(sum([log.unflushed_bytes for log in logs])):
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
            self._sync_in_thread(flushes, begun, began)

    def _begun_here(self, logs: Sequence[PartitionLog]) -> JournalFlush | None:
        """Write the entry of a turn on the loop. ``None`` leaves the flush to a thread: the loop might have to wait."""
        began = perf_counter()
        if began < self._stalled_until:
            return None
        try:
            return self._journal.begin(logs, may_wait=False)
        except Exception:  # a thread meets the error again, and reports it
            logger.exception("an entry of the journal could not be written on the loop")
            return None
        finally:
            if perf_counter() - began > _STALL_SECONDS:
                self._stalled_until = began + _STALL_PAUSE_SECONDS

    def _sync_in_thread(self, flushes: Flushes, begun: JournalFlush, began: float) -> None:
        def end(done: asyncio.Future[float]) -> None:
            error = done.exception()
            failure = None
            if isinstance(error, OSError):
                failure = error
            elif error is not None:
                failure = OSError(errno.EIO, str(error))
            else:
                self._pace.note_in_thread(done.result())
            answers = self._journal.finish(begun, failure)
            self._end(flushes, perf_counter() - began, answers)

        syncing = asyncio.get_running_loop().run_in_executor(self._pool, _timed, self._journal.sync)
        syncing.add_done_callback(end)

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
            answers = self._journal.flush(logs)
        except Exception as error:  # noqa: BLE001 - the waiting callers receive it
            answers = [PartitionFailedError(f"{log.name}: {error}") for log in logs]
        return perf_counter() - began, answers

    def _end(self, flushes: Flushes, seconds: float, answers: Sequence[Answer]) -> None:
        self._observe(seconds)
        loop = asyncio.get_running_loop()
        self.free_if_needed()
        for (member, covered), answer in zip(flushes, answers, strict=True):
            member.end_turn(covered, answer)
        self._is_running = bool(self._waiting)
        if self._is_running:
            loop.call_soon(self._begin)

    def free_if_needed(self) -> None:
        """Begin to free full files of the journal in a thread, or those of a journal that has ended."""
        if self._journal.needs_freeing and self._freeing is None:
            self._freeing = asyncio.get_running_loop().run_in_executor(self._pool, self._journal.free)
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
