"""Fetching from one partition: finds the range, waits for it if asked to, and reads it from one snapshot.

Thread: the event loop; whatever may touch the disk goes to the pool of readers.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from app.fetch_range import FetchRange, FetchRequest, range_of, start_of
from app.fetch_waiters import FetchWaiters, Wake, known_place
from app.http.problems import Problem
from app.metrics import Metrics
from app.pools import Pools, call_in
from storage.errors import UnknownTopicOrPartitionError
from storage.file_names import PartitionName
from storage.log_snapshot import LogSnapshot
from storage.offsets import Offset
from storage.partition_log import PartitionLog

Result = TypeVar("Result")


class LogStartMove(NamedTuple):
    """When and by what the log start of a partition last moved while this process ran."""

    at_ms: int
    by: str


class LogStartMoves:
    """The last move of each partition's log start, so that a reader that came too late is told of it."""

    def __init__(self) -> None:
        self._moves: dict[PartitionName, LogStartMove] = {}

    def note(self, partition: PartitionName, at_ms: int, by: str) -> None:
        """Remember that the log start moved now."""
        self._moves[partition] = LogStartMove(at_ms, by)

    def forget(self, partition: PartitionName) -> None:
        """The partition does not exist any more."""
        self._moves.pop(partition, None)

    def last_of(self, partition: PartitionName) -> LogStartMove | None:
        """The last move, if there was one while this process ran."""
        return self._moves.get(partition)


@dataclass(frozen=True, slots=True)
class FetchAnswer(Generic[Result]):
    """What a fetch read, and the snapshot it is true of."""

    snapshot: LogSnapshot
    wanted: FetchRange
    read: Result


class ClientGoneError(Exception):
    """The client closed its connection while its request waited."""


class Fetching:
    """Reads of one partition for HTTP: what they mean, how long they wait, and what an offset outside is told."""

    def __init__(self, waiters: FetchWaiters, moves: LogStartMoves, pools: Pools, metrics: Metrics) -> None:
        self._waiters = waiters
        self._moves = moves
        self._pools = pools
        self._metrics = metrics

    async def fetch(
        self,
        log: PartitionLog,
        request: FetchRequest,
        read: Callable[[LogSnapshot, FetchRange], Result],
        gone: Callable[[], Awaitable[None]],
    ) -> FetchAnswer[Result]:
        """Find the range, wait for it if asked to, and ``read`` it from one snapshot in a thread.

        ``gone`` returns when the client has closed its connection; it is only asked while waiting.

        Raises:
            Problem: offset_out_of_range, overloaded.
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
            ClientGoneError: the client went away.
            StorageError: what ``read`` raises.
        """
        snapshot = log.snapshot
        if request.timestamp is not None:
            start = await call_in(self._pools.read, functools.partial(start_of, snapshot, request))
        else:
            start = start_of(snapshot, request)
        start = self._inside(log, snapshot, start, request)
        if request.wait_ms > 0 and not await self._ends_before(snapshot, request, start):
            await self._wait(log, start, request, gone)
            snapshot = log.snapshot
            start = self._inside(log, snapshot, start, request)
        return await call_in(self._pools.read, functools.partial(_read, snapshot, request, start, read))

    async def _ends_before(self, snapshot: LogSnapshot, request: FetchRequest, start: Offset) -> bool:
        """Whether the range is complete already, so that waiting brings nothing."""
        if request.until is None and request.end_offset is None:
            return False
        call = functools.partial(range_of, snapshot, request, start)
        wanted = call() if request.until is None else await call_in(self._pools.read, call)
        return wanted.end is not None

    async def _wait(
        self, log: PartitionLog, start: Offset, request: FetchRequest, gone: Callable[[], Awaitable[None]]
    ) -> None:
        # More than can be answered is not waited for (spec D4).
        min_bytes = min(request.min_bytes, request.max_bytes)
        snapshot = log.snapshot
        place = known_place(snapshot, start)
        if place is None and min_bytes > 1:
            place = await call_in(self._pools.read, functools.partial(snapshot.place_of, start))
        # Looks at the snapshot of now and registers, with no await between (invariant 7).
        waiter = self._waiters.register(log, place or start, min_bytes=min_bytes, wait_ms=request.wait_ms)
        if waiter.done.done():
            return
        watch = asyncio.ensure_future(gone())
        try:
            await asyncio.wait((waiter.done, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            self._waiters.forget(waiter)
        if waiter.done.cancelled():
            raise ClientGoneError
        if waiter.done.result() is Wake.GONE:
            raise UnknownTopicOrPartitionError(f"{log.name} was deleted")

    def _inside(self, log: PartitionLog, snapshot: LogSnapshot, start: Offset, request: FetchRequest) -> Offset:
        if start < snapshot.log_start_offset and request.restart_at_earliest:
            return snapshot.log_start_offset
        self.check_offset(log, snapshot, start, snapshot.log_end_offset)
        return start

    def check_offset(self, log: PartitionLog, snapshot: LogSnapshot, offset: int, end: int) -> None:
        """Refuse an offset outside ``[log start, end]`` with all that is known about it (spec B8).

        Raises:
            Problem: 410 below the log start, 416 above ``end``.
        """
        if offset > end:
            raise self._out_of_range(log, snapshot, 416, f"offset {offset} is above {end}, the last that can be given")
        if offset < snapshot.log_start_offset:
            detail = f"offset {offset} is below the log start, {snapshot.log_start_offset}"
            raise self._out_of_range(log, snapshot, 410, detail)

    def check_readable(self, log: PartitionLog, snapshot: LogSnapshot, offset: int) -> None:
        """Refuse an offset whose record no consumer may read.

        Raises:
            Problem: 410 below the log start, 416 at or above the high watermark.
        """
        if offset >= snapshot.high_watermark:
            detail = f"offset {offset} is not below the high watermark, {snapshot.high_watermark}"
            raise self._out_of_range(log, snapshot, 416, detail)
        self.check_offset(log, snapshot, offset, offset)

    def _out_of_range(self, log: PartitionLog, snapshot: LogSnapshot, status: int, detail: str) -> Problem:
        known: dict[str, Any] = {
            "log_start_offset": snapshot.log_start_offset,
            "log_end_offset": snapshot.log_end_offset,
        }
        if status == 410:
            move = self._moves.last_of(log.name)
            known |= {
                "log_start_moved_ms": move.at_ms if move else None,
                "log_start_moved_by": move.by if move else None,
            }
        return Problem(status, "offset_out_of_range", detail, kafka_code=1, headers=offset_headers(snapshot), **known)

    def count_fetched(self, form: str, size_bytes: int) -> None:
        """Count an answer with records."""
        self._metrics.fetched_bytes.labels(form).inc(size_bytes)


def offset_headers(snapshot: LogSnapshot) -> dict[str, str]:
    """The headers that tell a partition's limits."""
    return {
        "Log-Start-Offset": str(snapshot.log_start_offset),
        "High-Watermark": str(snapshot.high_watermark),
        "Last-Stable-Offset": str(snapshot.last_stable_offset),
    }


def _read(
    snapshot: LogSnapshot,
    request: FetchRequest,
    start: Offset,
    read: Callable[[LogSnapshot, FetchRange], Result],
) -> FetchAnswer[Result]:
    wanted = range_of(snapshot, request, start)
    return FetchAnswer(snapshot, wanted, read(snapshot, wanted))
