"""The flushes of all partitions in one turn of the loop: one fsync of the journal for all of them (ADR 23).

While a thread waits for the fsync of one turn, those of the next turns gather. Thread: the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from time import perf_counter
from typing import Any, Protocol

from app.engine_local.partitions.flush_pace import FlushPace
from log_model.errors import PartitionFailedError
from storage.journal.journal import PIECE_BYTES_MAX, Journal
from storage.log.partition_log import PartitionLog

Answer = bool | PartitionFailedError
"""The answer of ``Journal.flush`` for one log."""


class TurnMember(Protocol):
    """The flushes of one partition, of which one joins the turn's."""

    log: PartitionLog

    def take_covered(self) -> list[Any]:
        """Return the appends that a flush covers which begins now."""

    def end_turn(self, covered: list[Any], answer: Answer) -> None:
        """Receive what became of the flush."""


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
        flushing = asyncio.get_running_loop().run_in_executor(self._pool, self._flush, logs)

        def end(done: asyncio.Future[tuple[float, list[Answer]]]) -> None:
            seconds, answers = done.result()
            self._pace.note_in_thread(seconds)
            self._end(flushes, seconds, answers)

        flushing.add_done_callback(end)

    def _flush(self, logs: Sequence[PartitionLog]) -> tuple[float, list[Answer]]:
        began = perf_counter()
        answers: list[Answer]
        try:
            answers = self._journal.flush(logs)
        except Exception as error:  # noqa: BLE001 - the waiting callers receive it
            answers = [PartitionFailedError(f"{log.name}: {error}") for log in logs]
        return perf_counter() - began, answers

    def _end(self, flushes: Sequence[tuple[TurnMember, list[Any]]], seconds: float, answers: Sequence[Answer]) -> None:
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
