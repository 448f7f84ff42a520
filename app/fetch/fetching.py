"""Fetching from one partition: finds the range, waits for it if asked to, and reads it from one snapshot.

Thread: the event loop; whatever may touch the disk goes to the pool of readers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from app.engine_local.engine import LocalEngine
from app.engine_local.partitions.fetch_waiters import FetchWaiter, Wake, known_place
from app.event_loop.pools import Pools, call_in
from app.fetch.fetch_range import FetchRange, FetchRequest, range_of, start_of
from app.fetch.fetch_sessions import FetchSessions
from app.http.bodies.byte_budget import ByteBudget
from app.metrics.metrics import Metrics
from app.problems import kinds
from app.problems.kind import Kind
from app.problems.problem import Problem
from app.quotas.throttling import Quotas
from app.record_json.work_rooms import WorkRooms
from app.settings import Settings
from log_model.errors import UnknownTopicOrPartitionError
from log_model.offsets import Offset
from log_model.reads import Isolation
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FetchAnswer(Generic[Result]):
    """What a fetch read, and the snapshot it is true of."""

    snapshot: LogSnapshot
    wanted: FetchRange
    read: Result


@dataclass(frozen=True, slots=True)
class BegunFetch:
    """A fetch before it reads: from which offset, of which snapshot, or of the one that is there when it has waited."""

    log: PartitionLog
    request: FetchRequest
    start: Offset
    snapshot: LogSnapshot | None = None
    waiter: FetchWaiter | None = None


class Fetching:
    """Reads of one partition for HTTP: what they mean, how long they wait, and what an offset outside is told."""

    def __init__(
        self,
        engine: LocalEngine,
        sessions: FetchSessions,
        settings: Settings,
        metrics: Metrics,
        pools: Pools,
        quotas: Quotas,
        body_budget: ByteBudget,
        rooms: WorkRooms,
    ) -> None:
        self.engine = engine
        self.sessions = sessions
        self.settings = settings
        self.pools = pools
        self.quotas = quotas
        self.body_budget = body_budget
        self.rooms = rooms
        self._waiters = engine.partitions.waiters
        self._moves = engine.partitions.moves
        self._metrics = metrics

    async def begin(self, log: PartitionLog, request: FetchRequest) -> BegunFetch:
        """Find where the fetch begins, and wait for more if it asks to and there is too little.

        Raises:
            Problem: offset_out_of_range, overloaded.
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
            StorageError: stored bytes are not what they should be.
        """
        snapshot = log.snapshot
        if request.timestamp is not None or request.tail:
            start = await call_in(self.pools.read, functools.partial(start_of, snapshot, request))
        else:
            start = start_of(snapshot, request)
        start = self._inside(log, snapshot, start, request)
        if request.wait_ms > 0 and not await self._ends_before(snapshot, request, start):
            # The snapshot is not kept: it would keep files open that retention has deleted meanwhile.
            return BegunFetch(log, request, start, waiter=await self._wait(log, start, request))
        return BegunFetch(log, request, start, snapshot=snapshot)

    async def finish(self, begun: BegunFetch, read: Callable[[LogSnapshot, FetchRange], Result]) -> FetchAnswer[Result]:
        """``read`` the range from one snapshot in a thread, once ``begun.waiter`` is complete, if there is one.

        Raises:
            Problem: offset_out_of_range.
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
            StorageError: what ``read`` raises.
        """
        snapshot, start = begun.snapshot, begun.start
        if snapshot is None:
            if begun.waiter is not None and begun.waiter.done.result() is Wake.GONE:
                raise UnknownTopicOrPartitionError(f"{begun.log.name} was deleted")
            snapshot = begun.log.snapshot
            start = self._inside(begun.log, snapshot, start, begun.request)
        if start >= snapshot.bound(begun.request.isolation).offset and begun.request.until is None:
            # Nothing there, no disk, no thread: the answer of thousands of long polls when the service stops.
            return _read(snapshot, begun.request, start, read)
        return await call_in(self.pools.read, functools.partial(_read, snapshot, begun.request, start, read))

    async def _ends_before(self, snapshot: LogSnapshot, request: FetchRequest, start: Offset) -> bool:
        """Whether the range is complete already, so that waiting brings nothing."""
        if request.until is None and request.end_offset is None:
            return False
        call = functools.partial(range_of, snapshot, request, start)
        wanted = call() if request.until is None else await call_in(self.pools.read, call)
        return wanted.end is not None

    async def _wait(self, log: PartitionLog, start: Offset, request: FetchRequest) -> FetchWaiter:
        # More than can be answered is not waited for (spec D4).
        min_bytes = min(request.min_bytes, request.max_bytes)
        snapshot = log.snapshot
        place = known_place(snapshot, start)
        if place is None and min_bytes > 1:
            place = await call_in(self.pools.read, functools.partial(snapshot.place_of, start))
        if not self.engine.partitions.is_there(log):
            raise UnknownTopicOrPartitionError(f"{log.name} was deleted")
        # Looks at the snapshot of now and registers, with no await between (invariant 7).
        return self._waiters.register(
            log, place or start, min_bytes=min_bytes, wait_ms=request.wait_ms, isolation=request.isolation
        )

    def _inside(self, log: PartitionLog, snapshot: LogSnapshot, start: Offset, request: FetchRequest) -> Offset:
        if start < snapshot.log_start_offset and request.restart_at_earliest:
            return snapshot.log_start_offset
        self.check_offset(log, snapshot, start, snapshot.log_end_offset)
        return start

    def check_offset(self, log: PartitionLog, snapshot: LogSnapshot, offset: int, end: int) -> None:
        """Refuse an offset outside ``[log start, end]``, with both in the answer (spec B8).

        Raises:
            Problem: 410 below the log start, 416 above ``end``.
        """
        if offset > end:
            raise self._out_of_range(log, snapshot, kinds.OFFSET_OUT_OF_RANGE_ABOVE, _beyond(offset, end, snapshot))
        if offset < snapshot.log_start_offset:
            detail = f"offset {offset} is below the log start, {snapshot.log_start_offset}"
            raise self._out_of_range(log, snapshot, kinds.OFFSET_OUT_OF_RANGE_BELOW, detail)

    def check_readable(
        self,
        log: PartitionLog,
        snapshot: LogSnapshot,
        offset: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
    ) -> None:
        """Refuse an offset whose record no consumer of this isolation may read.

        Raises:
            Problem: 410 below the log start, 416 at or above the end of what may be read.
        """
        end = snapshot.bound(isolation).offset
        if offset >= end:
            name = "last stable offset" if isolation is Isolation.LAST_STABLE else "high watermark"
            detail = f"offset {offset} is not below the {name}, {end}"
            raise self._out_of_range(log, snapshot, kinds.OFFSET_OUT_OF_RANGE_ABOVE, detail)
        self.check_offset(log, snapshot, offset, offset)

    def _out_of_range(self, log: PartitionLog, snapshot: LogSnapshot, kind: Kind, detail: str) -> Problem:
        known: dict[str, Any] = {
            "log_start_offset": snapshot.log_start_offset,
            "log_end_offset": snapshot.log_end_offset,
        }
        if kind is kinds.OFFSET_OUT_OF_RANGE_BELOW:
            move = self._moves.last_of(log.name)
            known |= {
                "log_start_moved_ms": move.at_ms if move else None,
                "log_start_moved_by": move.by if move else None,
            }
        return Problem(kind, detail, headers=offset_headers(snapshot), **known)

    def count_fetched(self, form: str, size_bytes: int) -> None:
        """Count an answer with records."""
        self._metrics.fetched_bytes.inc(form, size_bytes)


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


def _beyond(offset: int, end: int, snapshot: LogSnapshot) -> str:
    name = "log end offset" if end == snapshot.log_end_offset else "high watermark"
    return f"offset {offset} is beyond the {name} {end}"
