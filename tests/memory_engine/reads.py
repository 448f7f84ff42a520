"""The reads of the engine: of one partition, of several, by time and place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from app.engine.partitions import Partition
from app.engine.reading import (
    Diverging,
    FoundOffset,
    ManyRead,
    ManyReadOptions,
    PartitionOutcome,
    PartitionRead,
    PartitionSplits,
    RangeBounds,
    Read,
    ReadOutcome,
    SplitOptions,
    StoredBatches,
)
from app.event_loop.pools import Pools, call_in
from log_model.errors import StorageError
from log_model.names import PartitionName
from log_model.offsets import Offset
from log_model.reads import FetchData, Isolation
from tests.memory_engine.checks import check_offset, log_of, out_of_range, refuse_deleted
from tests.memory_engine.epochs import check_current, find_divergence, refuse_behind_epoch
from tests.memory_engine.log import MemoryLog
from tests.memory_engine.splitting import split_ranges
from tests.memory_engine.view import View
from tests.memory_engine.waits import MemoryWaiting, Waits

Result = TypeVar("Result")


class MemoryPendingRead:
    """A read that has its start, and may have to wait."""

    def __init__(
        self, log: MemoryLog, read: Read, start: Offset, view: View, waiting: MemoryWaiting | None, pools: Pools
    ) -> None:
        self.waiting = waiting
        self._log, self._read, self._start, self._view, self._pools = log, read, start, view, pools

    async def outcome(self, then: Callable[[ReadOutcome], Result], *, max_bytes: int | None = None) -> Result:
        """Read, and return the result of ``then``; see ``PendingRead``."""
        view, start = self._view, self._start
        if self.waiting is not None:
            refuse_deleted(self._log)
            view = self._log.view()
            start = start_inside(self._log, view, start, self._read)
        outcome = read_range(view, self._read, start, max_bytes)
        if not outcome.data.slices:
            return then(outcome)
        # Decoding may take long, and the loop must go on meanwhile.
        return await call_in(self._pools.read, functools.partial(then, outcome))


class MemoryReads:
    """All reads. Thread: the event loop."""

    def __init__(self, waits: Waits, pools: Pools) -> None:
        self._waits = waits
        self._pools = pools

    async def begin(self, partition: Partition, read: Read) -> MemoryPendingRead:
        """Find the start, and begin to wait if too little is there; see ``Reads.begin``."""
        log = log_of(partition)
        refuse_deleted(log)
        view = log.view()
        start = start_inside(log, view, start_of(view, read), read)
        waiting = None
        if read.wait_ms > 0 and range_end(view, read, start) is None:
            is_ready = functools.partial(_is_served, log, read, start)
            waiting = self._waits.begin(is_ready, (log.name,), read.wait_ms)
        return MemoryPendingRead(log, read, start, view, waiting, self._pools)

    async def many(self, reads: Sequence[PartitionRead], options: ManyReadOptions) -> ManyRead:
        """Read several partitions under one limit, or begin to wait; see ``Reads.many``."""
        outcomes = _read_all(reads, options)
        if options.wait_ms <= 0 or _is_enough(outcomes, options):
            return ManyRead(outcomes)

        sizes: dict[PartitionName, int] = {}

        def is_ready(changed: PartitionName | None) -> bool:
            for one in reads:
                if changed in (None, one.partition.name):
                    try:
                        outcome = _read_one(one, one.max_bytes, options, min_one=True)
                    except StorageError:
                        return True
                    if outcome.diverging is not None:
                        return True
                    sizes[one.partition.name] = min(outcome.size_bytes, one.max_bytes)
            return sum(sizes.values()) >= options.min_bytes

        names = [one.partition.name for one in reads]
        return ManyRead((), self._waits.begin(is_ready, names, options.wait_ms))

    async def find_offset(
        self,
        partition: Partition,
        timestamp: int | Literal["earliest", "latest", "max_timestamp"],
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        current_leader_epoch: int | None = None,
    ) -> FoundOffset | None:
        """Find an offset by time or place; see ``Reads.find_offset``."""
        log = log_of(partition)
        check_current(log, current_leader_epoch)
        view = log.view()
        if timestamp == "earliest":
            start = view.log_start_offset
            return FoundOffset(start, None, [each.epoch for each in log.epochs if each.start_offset <= start][-1])
        if timestamp == "latest":
            refuse_behind_epoch(log)
            return FoundOffset(view.limits.bound(isolation), None, log.leader_epoch)
        if timestamp == "max_timestamp":
            found = view.find_largest_time(isolation)
        else:
            found = view.find_time(timestamp, isolation)
        return None if found is None else FoundOffset(*found)

    async def split(self, ranges: Sequence[RangeBounds], options: SplitOptions) -> Sequence[PartitionSplits]:
        """Cut ranges between batches; see ``Reads.split``."""
        return split_ranges([(log_of(bounds.partition), bounds) for bounds in ranges], options)

    async def stored(self, partition: Partition, call: Callable[[StoredBatches], Result]) -> Result:
        """Run ``call`` in a thread with the stored batches; see ``Reads.stored``."""
        return await call_in(self._pools.read, functools.partial(call, log_of(partition).view()))


# Where a read begins and ends


def start_of(view: View, read: Read) -> Offset:
    """Return the first offset that the read means, which may be outside the log."""
    if read.tail is not None:
        return view.start_of_last(read.tail, read.isolation)
    if read.timestamp is not None:
        found = view.find_time(read.timestamp, read.isolation, latest=read.latest_ms)
        return view.limits.bound(read.isolation) if found is None else found.offset
    if read.offset == "earliest":
        return view.log_start_offset
    if read.offset == "latest":
        return view.limits.bound(read.isolation)
    assert isinstance(read.offset, int)
    return Offset(read.offset)


def start_inside(log: MemoryLog, view: View, start: Offset, read: Read) -> Offset:
    """Return the start of a read, or the log start if the read asks for that.

    Raises:
        OffsetOutOfRangeError: the read may not begin there.
    """
    if start < view.log_start_offset and read.restart_at_earliest:
        return view.log_start_offset
    bound = view.limits.bound(read.isolation)
    if read.below_bound and start >= bound:
        name = "last stable offset" if read.isolation is Isolation.LAST_STABLE else "high watermark"
        raise out_of_range(log, start, f"offset {start} is not below the {name}, {bound}")
    check_offset(log, view, start, view.log_end_offset)
    return start


def range_end(view: View, read: Read, start: Offset) -> Offset | None:
    """Return the nearest end of the range that is known and visible; ``None`` while the log may grow into it."""
    ends = [] if read.end_offset is None else [read.end_offset]
    if read.until is not None:
        found = view.find_time(read.until, read.isolation, start=start, latest=read.latest_ms, bytes_max=read.max_bytes)
        if found is not None:
            ends.append(found.offset)
    bound = view.limits.bound(read.isolation)
    end = min(ends, default=bound + 1)
    return Offset(max(start, end)) if end <= bound else None


def read_range(view: View, read: Read, start: Offset, max_bytes: int | None) -> ReadOutcome:
    """Read the range of ``read`` from ``start``."""
    end = range_end(view, read, start)
    ends = [end] if end is not None else []
    if read.max_records is not None:
        ends.append(Offset(start + read.max_records))
    read_end = min(ends, default=None)
    if read_end is not None and read_end <= start:
        return ReadOutcome(start, end, read_end, view.limits, FetchData((), start))
    data = view.read(
        start,
        read.max_bytes if max_bytes is None else min(read.max_bytes, max_bytes),
        isolation=read.isolation,
        end=read_end,
        aborted_count_max=read.aborted_count_max,
    )
    return ReadOutcome(start, end, read_end, view.limits, data)


def _is_served(log: MemoryLog, read: Read, start: Offset, _: PartitionName | None) -> bool:
    view = log.view()
    is_inside = view.log_start_offset <= start <= view.log_end_offset
    return not is_inside or view.available_bytes(start, read.isolation) >= min(read.min_bytes, read.max_bytes)


# Several partitions


def _read_all(reads: Sequence[PartitionRead], options: ManyReadOptions) -> list[PartitionOutcome]:
    left_bytes, min_one = options.max_bytes, True
    outcomes = []
    for one in reads:
        try:
            outcome = _read_one(one, min(one.max_bytes, left_bytes), options, min_one=min_one)
        except StorageError as error:
            outcome = PartitionOutcome(None, None, error=error)
        outcomes.append(outcome)
        if outcome.size_bytes:
            min_one = False
            left_bytes = max(0, left_bytes - outcome.size_bytes)
    return outcomes


def _read_one(one: PartitionRead, max_bytes: int, options: ManyReadOptions, *, min_one: bool) -> PartitionOutcome:
    log = log_of(one.partition)
    refuse_deleted(log)
    if one.current_leader_epoch is not None and one.current_leader_epoch >= 0:
        check_current(log, one.current_leader_epoch)
    view = log.view()
    if one.last_fetched_epoch is not None and one.last_fetched_epoch >= 0:
        found = find_divergence(log, one.last_fetched_epoch, one.offset)
        if found is not None:
            return PartitionOutcome(view.limits, None, Diverging(*found))
    data = view.read(
        one.offset,
        max_bytes,
        isolation=options.isolation,
        min_one=min_one,
        aborted_count_max=options.aborted_count_max,
    )
    return PartitionOutcome(view.limits, data)


def _is_enough(outcomes: Sequence[PartitionOutcome], options: ManyReadOptions) -> bool:
    is_decided = any(each.error is not None or each.diverging is not None for each in outcomes)
    return is_decided or not outcomes or sum(each.size_bytes for each in outcomes) >= options.min_bytes
