"""Ranges of several logs, resolved, weighed and cut into splits. Thread: a reader; the disk is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.engine.reading import PartitionSplits, Place, RangeBounds, SplitOptions
from app.engine_local.reading.limit_checks import LimitChecks
from log_model.offsets import Offset
from log_model.reads import Isolation
from log_model.splits import Split, split_counts
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog
from storage.log.splits import SplittableRange


class WantedRange(NamedTuple):
    """The bounds of one range, and the log that its readers see."""

    log: PartitionLog
    snapshot: LogSnapshot
    bounds: RangeBounds

    @property
    def has_open_end(self) -> bool:
        """Whether the range ends where the readable records end."""
        return self.bounds.end_offset in (None, "latest") and self.bounds.end_timestamp is None


class _Resolved(NamedTuple):
    found: SplittableRange
    skipped_count: int
    start_is_late: bool


def split_ranges(checks: LimitChecks, wanted: Sequence[WantedRange], options: SplitOptions) -> list[PartitionSplits]:
    """Cut the ranges as ``Reads.split`` does.

    Raises:
        TooManySplitsError, OffsetOutOfRangeError, CorruptionError
    """
    resolved = [_resolve(checks, each, options) for each in wanted]
    counts = split_counts([each.found.size_bytes for each in resolved], options.split_count)
    cut_count = 0
    parts = []
    for one, each, count in zip(wanted, resolved, counts, strict=True):
        found = each.found
        cut: list[Split] = found.split(max(1, count), options.record_count_max, count_max=options.count_max - cut_count)
        cut_count += len(cut)
        parts.append(
            PartitionSplits(
                one.snapshot, found.start, found.end, found.size_bytes, cut, each.skipped_count, each.start_is_late
            )
        )
    return parts


def _resolve(checks: LimitChecks, wanted: WantedRange, options: SplitOptions) -> _Resolved:
    log, snapshot, bounds = wanted
    isolation = options.isolation
    last = snapshot.bound(isolation).offset
    start, is_late = _offset_of(
        snapshot,
        "earliest" if bounds.start_offset is None else bounds.start_offset,
        bounds.start_timestamp,
        isolation,
    )
    # As with ``until`` of a read, a record before the start that is ahead of its time does not end the range.
    is_reversed = (bounds.end_timestamp or 0) < (bounds.start_timestamp or 0)
    end, _ = _offset_of(
        snapshot,
        "latest" if bounds.end_offset is None else bounds.end_offset,
        bounds.end_timestamp,
        isolation,
        None if is_reversed else start,
    )
    skipped_count = 0
    if start < snapshot.log_start_offset and options.restart_at_earliest:
        skipped_count = min(snapshot.log_start_offset, max(start, end)) - start
        start = snapshot.log_start_offset
        end = max(start, end)
    checks.check_offset(log, snapshot, start, last)
    checks.check_offset(log, snapshot, end, last)
    # An end may lie before the start. The range is then empty.
    return _Resolved(SplittableRange(snapshot, min(start, end), end, isolation), skipped_count, is_late)


def _offset_of(
    snapshot: LogSnapshot, place: Place, timestamp: int | None, isolation: Isolation, from_offset: Offset | None = None
) -> tuple[Offset, bool]:
    """Return the offset of a place, or of a time among the records from ``from_offset`` on.

    The second value says whether no record is as late as that time.
    """
    last = snapshot.bound(isolation).offset
    if timestamp is not None:
        found = snapshot.offset_for_timestamp(timestamp, isolation, start_offset=from_offset)
        return (last, True) if found is None else (found.offset, False)
    if place == "earliest":
        return snapshot.log_start_offset, False
    return (last if place == "latest" else Offset(place)), False
