"""Splitting a topic for readers that share the work."""

from __future__ import annotations

from app.engine.partitions import Partition
from app.engine.reading import PartitionSplits, RangeBounds, SplitOptions
from app.engine.topic_ids import check_topic_id
from app.fetch.fetched_records import ISOLATIONS
from app.fetch.fetching import Fetching
from app.problems.problem import invalid_value
from log_model.splits import TooManySplitsError
from schemas.splits import SPLIT_COUNT_MAX, SplitBounds, SplitPartition, SplitRange, SplitRequest, TopicSplits


async def split_topic(fetching: Fetching, topic: str, request: SplitRequest) -> TopicSplits:
    """Cut the records of the topic into ranges with fixed ends, by indexes and headers alone.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic, or no such partition of it.
        InconsistentTopicIdError: the request names the id of another topic.
        OffsetOutOfRangeError: an offset is outside the log.
        OffsetNotAvailableError: the end of a partition is not known yet.
        CorruptionError: stored bytes are damaged.
        Problem: the limits would make too many splits.
    """
    check_topic_id(topic, fetching.engine.topic(topic).topic_id, request.topic_id)
    wanted = await _wanted(fetching, topic, request)
    options = SplitOptions(
        split_count=request.split_count,
        record_count_max=request.max_records_per_split,
        count_max=max(SPLIT_COUNT_MAX, len(wanted)),
        isolation=ISOLATIONS[request.isolation],
        restart_at_earliest=request.on_truncated == "earliest",
    )
    try:
        parts = await fetching.engine.reads.split(wanted, options)
    except TooManySplitsError:
        detail = f"max_records_per_split: there would be more than {options.count_max} splits"
        raise invalid_value("/max_records_per_split", detail) from None
    numbers = [bounds.partition.name.partition for bounds in wanted]
    return TopicSplits.model_construct(
        splits=[
            SplitRange.model_construct(
                partition=number, start_offset=split.start, end_offset=split.end, size_bytes=split.size_bytes
            )
            for number, part in zip(numbers, parts, strict=True)
            for split in part.splits
        ],
        partitions=[_partition(number, part) for number, part in zip(numbers, parts, strict=True)],
        size_bytes=sum(part.size_bytes for part in parts),
    )


async def _wanted(fetching: Fetching, topic: str, request: SplitRequest) -> list[RangeBounds]:
    if request.partitions is None:
        numbers = range(fetching.engine.topic(topic).partition_count)
        return [_bounds(await fetching.engine.partition(topic, number), request, request) for number in numbers]
    wanted = []
    for given in request.partitions:
        start: SplitBounds = given
        if given.start_offset is None and given.start_timestamp is None:
            start = request
        end: SplitBounds = given
        if given.end_offset is None and given.end_timestamp is None:
            end = request
        wanted.append(_bounds(await fetching.engine.partition(topic, given.partition), start, end))
    return wanted


def _bounds(partition: Partition, start: SplitBounds, end: SplitBounds) -> RangeBounds:
    return RangeBounds(partition, start.start_offset, start.start_timestamp, end.end_offset, end.end_timestamp)


def _partition(number: int, part: PartitionSplits) -> SplitPartition:
    return SplitPartition.model_construct(
        partition=number,
        start_offset=part.start,
        end_offset=part.end,
        size_bytes=part.size_bytes,
        log_start_offset=part.limits.log_start_offset,
        high_watermark=part.limits.high_watermark,
        last_stable_offset=part.limits.last_stable_offset,
        skipped_count=part.skipped_count,
        start_is_late=part.start_is_late,
    )
