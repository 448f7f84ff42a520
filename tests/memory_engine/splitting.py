"""Ranges of several partitions, cut between batches into splits of about equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from app.engine.reading import PartitionSplits, Place, RangeBounds, SplitOptions
from log_model.offsets import Offset
from log_model.reads import Isolation
from log_model.splits import Split, TooManySplitsError, split_counts
from tests.memory_engine.checks import check_offset
from tests.memory_engine.epochs import refuse_behind_epoch
from tests.memory_engine.log import MemoryLog
from tests.memory_engine.view import StoredBatch, View


class _Cut(NamedTuple):
    """A position between two batches: the bytes of the range before it, and the first offset behind it."""

    bytes_before: int
    offset: Offset


class _Range(NamedTuple):
    """The offsets ``[start, end)`` and the batches that hold them."""

    view: View
    start: Offset
    end: Offset
    batches: Sequence[StoredBatch]
    skipped_count: int
    start_is_late: bool

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)


def split_ranges(ranges: Sequence[tuple[MemoryLog, RangeBounds]], options: SplitOptions) -> list[PartitionSplits]:
    """Cut the ranges as ``Reads.split`` does."""
    for log, bounds in ranges:
        if bounds.end_offset in (None, "latest") and bounds.end_timestamp is None:
            refuse_behind_epoch(log)
    found = [_find(log, bounds, options) for log, bounds in ranges]
    parts: list[PartitionSplits] = []
    for one, count in zip(found, split_counts([one.size_bytes for one in found], options.split_count), strict=True):
        splits = _cut(one, max(1, count), options.record_count_max)
        parts.append(
            PartitionSplits(
                one.view.limits, one.start, one.end, one.size_bytes, splits, one.skipped_count, one.start_is_late
            )
        )
        if sum(len(part.splits) for part in parts) > options.count_max:
            raise TooManySplitsError(f"there would be more than {options.count_max} splits")
    return parts


def _find(log: MemoryLog, bounds: RangeBounds, options: SplitOptions) -> _Range:
    view, isolation = log.view(), options.isolation
    last = view.limits.bound(isolation)
    start, is_late = _offset_of(view, bounds.start_offset or "earliest", bounds.start_timestamp, isolation, 0)
    # As ``until`` of a read: a record before the start that is ahead of its time ends nothing.
    is_reversed = (bounds.end_timestamp or 0) < (bounds.start_timestamp or 0)
    end_place = "latest" if bounds.end_offset is None else bounds.end_offset
    end, _ = _offset_of(view, end_place, bounds.end_timestamp, isolation, 0 if is_reversed else start)
    skipped_count = 0
    if start < view.log_start_offset and options.restart_at_earliest:
        skipped_count = min(view.log_start_offset, max(start, end)) - start
        start = view.log_start_offset
        end = max(start, end)
    check_offset(log, view, start, last)
    check_offset(log, view, end, last)
    start = min(start, end)
    return _Range(view, start, end, tuple(view.walk(start, end)) if start < end else (), skipped_count, is_late)


def _offset_of(
    view: View, place: Place, timestamp: int | None, isolation: Isolation, start: int
) -> tuple[Offset, bool]:
    """Return the offset of a place or a time, and whether no record is as late as that time."""
    last = view.limits.bound(isolation)
    if timestamp is not None:
        found = view.find_time(timestamp, isolation, start=start)
        return (last, True) if found is None else (found.offset, False)
    if place == "earliest":
        return view.log_start_offset, False
    return (last if place == "latest" else Offset(place)), False


def _cut(wanted: _Range, count: int, record_count_max: int | None) -> list[Split]:
    if wanted.start == wanted.end:
        return []
    ends = accumulate(batch.size_bytes for batch in wanted.batches)
    between = [_Cut(size, Offset(batch.header.next_offset)) for size, batch in zip(ends, wanted.batches, strict=True)]
    # The last one is the end of the range: as near as a cut may be, it is none.
    last = _Cut(wanted.size_bytes, wanted.end)
    cuts = [_Cut(0, wanted.start)]
    for number in range(1, count):
        target = number * wanted.size_bytes // count
        nearest = min((cuts[0], *between), key=lambda cut: abs(cut.bytes_before - target))
        if nearest.bytes_before > cuts[-1].bytes_before and nearest.offset < wanted.end:
            cuts.append(nearest)
    cuts.append(last)
    if record_count_max is not None:
        cuts = _finer(cuts, between, record_count_max)
    return [Split(a.offset, b.offset, b.bytes_before - a.bytes_before) for a, b in pairwise(cuts)]


def _finer(cuts: Sequence[_Cut], between: Sequence[_Cut], record_count_max: int) -> list[_Cut]:
    """Cut again where there are more offsets than ``record_count_max``, unless one batch has more."""
    finer = [cuts[0]]
    for following in cuts[1:]:
        while following.offset - finer[-1].offset > record_count_max:
            before = finer[-1].offset
            inside = [cut for cut in between if before < cut.offset < following.offset]
            if not inside:
                break
            fitting = [cut for cut in inside if cut.offset <= before + record_count_max]
            finer.append(fitting[-1] if fitting else inside[0])
        finer.append(following)
    return finer
