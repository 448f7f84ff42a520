"""The reads of the local engine. Thread: the event loop; calls that may touch the disk run in the pool of readers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from app.engine.partitions import Partition
from app.engine.reading import (
    FoundOffset,
    ManyRead,
    ManyReadOptions,
    PartitionRead,
    PartitionSplits,
    RangeBounds,
    Read,
    Reads,
    SplitOptions,
    StoredBatches,
)
from app.engine.waiting import Waiting
from app.engine_local.partitions.directory import Partitions
from app.engine_local.partitions.fetch_waiters import FetchWaiter, Wake, known_place
from app.engine_local.reading.limit_checks import LimitChecks
from app.engine_local.reading.many_partitions import DelayedRead, is_enough, places, read_partitions
from app.engine_local.reading.offset_lookup import find_offset, refuse_behind_epoch
from app.engine_local.reading.pending_read import LocalPendingRead
from app.engine_local.reading.ranges import range_of, start_of
from app.engine_local.reading.splitting import WantedRange, split_ranges
from app.event_loop.pools import Pools, call_in
from log_model.errors import UnknownTopicOrPartitionError
from log_model.offsets import Offset
from log_model.reads import Isolation
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog

Result = TypeVar("Result")


class LocalReads:
    """All reads of the logs of one data directory. ``checks`` refuses offsets outside a log."""

    def __init__(self, partitions: Partitions, pools: Pools) -> None:
        self.checks = LimitChecks(partitions.moves)
        self._partitions = partitions
        self._readers = pools.read

    async def begin(self, partition: Partition, read: Read) -> LocalPendingRead:
        """Begin as ``Reads.begin`` does.

        Raises:
            Problem: overloaded.
            OffsetOutOfRangeError, UnknownTopicOrPartitionError, StorageError
        """
        assert isinstance(partition, PartitionLog)
        snapshot = partition.snapshot
        if read.timestamp is not None or read.tail:
            start = await call_in(self._readers, functools.partial(start_of, snapshot, read))
        else:
            start = start_of(snapshot, read)
        start = self.checks.start_inside(partition, snapshot, start, read)
        held: LogSnapshot | FetchWaiter = snapshot
        if read.wait_ms > 0 and not await self._ends_before(snapshot, read, start):
            held = await self._wait(partition, start, read)
        return LocalPendingRead(partition, read, start, held, self.checks, self._readers)

    def go_on(self, partition: PartitionLog, read: Read, start: Offset, waited: Waiting) -> LocalPendingRead:
        """Return the pending read that ``begin`` would have returned, whose wait is over by now."""
        return LocalPendingRead(partition, read, start, waited, self.checks, self._readers)

    async def _ends_before(self, snapshot: LogSnapshot, read: Read, start: Offset) -> bool:
        """Return whether the range is complete already, so that a wait brings no more records."""
        if read.until is None and read.end_offset is None:
            return False
        call = functools.partial(range_of, snapshot, read, start)
        wanted = call() if read.until is None else await call_in(self._readers, call)
        return wanted.end is not None

    async def _wait(self, log: PartitionLog, start: Offset, read: Read) -> FetchWaiter:
        # A wait for more bytes than one response holds would be useless (spec D4).
        min_bytes = min(read.min_bytes, read.max_bytes)
        snapshot = log.snapshot
        place = known_place(snapshot, start)
        if place is None and min_bytes > 1:
            place = await call_in(self._readers, functools.partial(snapshot.place_of, start))
        if not self._partitions.is_there(log):
            raise UnknownTopicOrPartitionError(f"{log.name} was deleted")
        # The call looks at the current snapshot and registers, with no await between (invariant 7).
        return self._partitions.waiters.register(
            log, place or start, min_bytes=min_bytes, wait_ms=read.wait_ms, isolation=read.isolation
        )

    async def many(self, reads: Sequence[PartitionRead], options: ManyReadOptions) -> ManyRead:
        """Read several partitions as ``Reads.many`` does.

        Raises:
            Problem: overloaded.
        """
        outcomes = await call_in(self._readers, functools.partial(read_partitions, reads, options))
        if options.wait_ms <= 0 or is_enough(outcomes, options.min_bytes):
            return ManyRead(outcomes)
        watched = await places(self._readers, reads, outcomes)
        delayed = DelayedRead(watched, options.min_bytes, options.isolation)
        if not all(self._partitions.is_there(one.log) for one in watched):
            # The partition was deleted since it was read: no publication would end the wait.
            delayed.done.set_result(Wake.GONE)
        else:
            names = (one.log.name for one in watched)
            self._partitions.waiters.purgatory.watch(delayed, names, wait_ms=options.wait_ms)
        # The outcomes are dropped: they would keep files open that retention deletes meanwhile.
        return ManyRead((), delayed)

    async def find_offset(
        self,
        partition: Partition,
        timestamp: int | Literal["earliest", "latest", "max_timestamp"],
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        current_leader_epoch: int | None = None,
    ) -> FoundOffset | None:
        """Find an offset as ``Reads.find_offset`` does.

        Raises:
            FencedLeaderEpochError, UnknownLeaderEpochError, OffsetNotAvailableError, StorageError
        """
        assert isinstance(partition, PartitionLog)
        return await find_offset(self._readers, partition, timestamp, isolation, current_leader_epoch)

    async def split(self, ranges: Sequence[RangeBounds], options: SplitOptions) -> Sequence[PartitionSplits]:
        """Cut ranges as ``Reads.split`` does.

        Raises:
            TooManySplitsError, OffsetOutOfRangeError, OffsetNotAvailableError, StorageError
        """
        wanted = []
        for bounds in ranges:
            assert isinstance(bounds.partition, PartitionLog)
            wanted.append(WantedRange(bounds.partition, bounds.partition.snapshot, bounds))
        for each in wanted:
            if each.has_open_end:
                refuse_behind_epoch(each.log, each.snapshot)
        return await call_in(self._readers, functools.partial(split_ranges, self.checks, wanted, options))

    async def stored(self, partition: Partition, call: Callable[[StoredBatches], Result]) -> Result:
        """Run ``call`` in a thread as ``Reads.stored`` does."""
        assert isinstance(partition, PartitionLog)
        return await call_in(self._readers, functools.partial(call, partition.snapshot))


_: type[Reads] = LocalReads
"""Held by the type checker: these are the reads of an engine."""
