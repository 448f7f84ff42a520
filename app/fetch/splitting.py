"""Splitting a topic for readers that share the work: its ranges resolved, weighed and cut, all in one thread."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple

from app.engine.topic_ids import check_topic_id
from app.fetch.fetching import Fetching
from app.fetch.offset_lookup import refuse_behind_epoch
from app.problems.problem import invalid_value
from log_model.offsets import Offset
from log_model.reads import Isolation
from log_model.splits import TooManySplitsError, split_counts
from schemas.splits import SPLIT_COUNT_MAX, SplitBounds, SplitPartition, SplitRange, SplitRequest, TopicSplits
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog
from storage.log.splits import SplittableRange

Place = int | Literal["earliest", "latest"]


class _Wanted(NamedTuple):
    """One partition, what of it is wanted, and what its readers see now."""

    log: PartitionLog
    snapshot: LogSnapshot
    bounds: SplitBounds


class _Resolved(NamedTuple):
    found: SplittableRange
    skipped_count: int
    start_is_late: bool


async def split_topic(fetching: Fetching, topic: str, request: SplitRequest) -> TopicSplits:
    """Cut what is in the topic into ranges with ends that do not move, by indexes and headers alone.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic, or no such partition of it.
        InconsistentTopicIdError: the request names the id of another topic.
        OffsetNotAvailableError: nobody can tell yet where a partition ends.
        CorruptionError: stored bytes are not what they should be.
        Problem: an offset outside the log; limits that ask for too many splits.
    """
    isolation = Isolation.LAST_STABLE if request.isolation == "read_committed" else Isolation.HIGH_WATERMARK
    check_topic_id(topic, fetching.engine.topic(topic).topic_id, request.topic_id)
    wanted = _wanted(fetching, topic, request)
    for each in wanted:
        if each.bounds.end_offset in (None, "latest") and each.bounds.end_timestamp is None:
            refuse_behind_epoch(each.log, each.snapshot)
    return await fetching.engine.read(functools.partial(_split, fetching, wanted, request, isolation))


def _wanted(fetching: Fetching, topic: str, request: SplitRequest) -> list[_Wanted]:
    if request.partitions is None:
        return [_Wanted(log, log.snapshot, request) for log in fetching.engine.topic(topic).partitions]
    wanted = []
    for given in request.partitions:
        log = fetching.engine.partition(topic, given.partition)
        start: SplitBounds = given
        if given.start_offset is None and given.start_timestamp is None:
            start = request
        end: SplitBounds = given
        if given.end_offset is None and given.end_timestamp is None:
            end = request
        bounds = SplitBounds.model_construct(
            start_offset=start.start_offset,
            start_timestamp=start.start_timestamp,
            end_offset=end.end_offset,
            end_timestamp=end.end_timestamp,
        )
        wanted.append(_Wanted(log, log.snapshot, bounds))
    return wanted


def _split(fetching: Fetching, wanted: Sequence[_Wanted], request: SplitRequest, isolation: Isolation) -> TopicSplits:
    resolved = [_resolve(fetching, each, request, isolation) for each in wanted]
    counts = split_counts([each.found.size_bytes for each in resolved], request.split_count)
    count_max = max(SPLIT_COUNT_MAX, len(wanted))
    splits: list[SplitRange] = []
    partitions: list[SplitPartition] = []
    for (log, snapshot, _), each, count in zip(wanted, resolved, counts, strict=True):
        number = log.name.partition
        try:
            cut = each.found.split(max(1, count), request.max_records_per_split, count_max=count_max - len(splits))
        except TooManySplitsError:
            detail = f"max_records_per_split: there would be more than {count_max} splits"
            raise invalid_value("/max_records_per_split", detail) from None
        splits += [
            SplitRange.model_construct(
                partition=number, start_offset=split.start, end_offset=split.end, size_bytes=split.size_bytes
            )
            for split in cut
        ]
        partitions.append(
            SplitPartition.model_construct(
                partition=number,
                start_offset=each.found.start,
                end_offset=each.found.end,
                size_bytes=each.found.size_bytes,
                log_start_offset=snapshot.log_start_offset,
                high_watermark=snapshot.high_watermark,
                last_stable_offset=snapshot.last_stable_offset,
                skipped_count=each.skipped_count,
                start_is_late=each.start_is_late,
            )
        )
    return TopicSplits.model_construct(
        splits=splits, partitions=partitions, size_bytes=sum(each.found.size_bytes for each in resolved)
    )


def _resolve(fetching: Fetching, wanted: _Wanted, request: SplitRequest, isolation: Isolation) -> _Resolved:
    log, snapshot, bounds = wanted
    last = snapshot.bound(isolation).offset
    start, is_late = _offset_of(
        snapshot,
        "earliest" if bounds.start_offset is None else bounds.start_offset,
        bounds.start_timestamp,
        isolation,
    )
    # As ``until`` of a fetch: a record before the start that is ahead of its time ends nothing.
    is_reversed = (bounds.end_timestamp or 0) < (bounds.start_timestamp or 0)
    end, _ = _offset_of(
        snapshot,
        "latest" if bounds.end_offset is None else bounds.end_offset,
        bounds.end_timestamp,
        isolation,
        None if is_reversed else start,
    )
    skipped_count = 0
    if start < snapshot.log_start_offset and request.on_truncated == "earliest":
        skipped_count = min(snapshot.log_start_offset, max(start, end)) - start
        start = snapshot.log_start_offset
        end = max(start, end)
    fetching.check_offset(log, snapshot, start, last)
    fetching.check_offset(log, snapshot, end, last)
    # An end may lie before the start; then there is nothing.
    return _Resolved(SplittableRange(snapshot, min(start, end), end, isolation), skipped_count, is_late)


def _offset_of(
    snapshot: LogSnapshot, place: Place, timestamp: int | None, isolation: Isolation, from_offset: Offset | None = None
) -> tuple[Offset, bool]:
    """The offset of a place, or of a time among the records from ``from_offset`` on, and whether none is that late."""
    last = snapshot.bound(isolation).offset
    if timestamp is not None:
        found = snapshot.offset_for_timestamp(timestamp, isolation, start_offset=from_offset)
        return (last, True) if found is None else (found.offset, False)
    if place == "earliest":
        return snapshot.log_start_offset, False
    return (last if place == "latest" else Offset(place)), False
