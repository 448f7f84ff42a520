"""Ranges for tasks: requested offsets, checked against the limits of the logs, and split by the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from rollway.client import OffsetOutOfRangeError, PartitionOffsets, ProblemError, RollwayClient, Splits
from rollway.spark.errors import NotCommittedError, OptionError, StartNotFoundError, report_loss
from rollway.spark.options.options import RANGES_MAX, ReadOptions
from rollway.spark.read.fetch_rows import OffsetRange
from rollway.spark.read.positions import Limits, end_of, ids_of

Bounds = dict[str, dict[int, dict[str, int | str]]]
"""The start and the end of each range, as members of the splits route, by topic and partition."""


def split_ranges(client: RollwayClient, options: ReadOptions, bounds: Bounds, limits: Limits) -> list[OffsetRange]:
    """Return ranges that cover every offset within ``bounds`` once, by topic and partition and in order.

    There is one for each partition that has records there, or more with ``minPartitions`` and
    ``maxRecordsPerPartition``. Offsets outside of ``limits`` are lost records.

    Raises:
        DataLossError: records are gone, and ``failOnDataLoss`` is true.
        NotCommittedError: a range ends behind the last stable offset.
        OptionError: ``maxRecordsPerPartition`` would make too many ranges.
        StartNotFoundError: no record is as late as the start time, and the strategy is ``error``.
        TopicReplacedError: a topic was deleted and created again after its limits were looked up.
    """
    topic_ids = ids_of(limits)

    def split(topic: str, own: Mapping[int, Mapping[str, int | str]], count: int) -> Splits:
        return _split(client, options, topic, topic_ids[topic], own, count)

    there = {topic: _within(options, topic, bounds[topic], limits[topic]) for topic in sorted(bounds)}
    if options.min_partitions is None or len(there) == 1:
        count = options.min_partitions or 1
        answers = {topic: split(topic, own, count) for topic, own in there.items()}
    else:
        whole = {topic: split(topic, own, 1) for topic, own in there.items()}
        counts = _shares({topic: one.size_bytes for topic, one in whole.items()}, options.min_partitions)
        answers = {topic: split(topic, _frozen(whole[topic]), counts[topic]) for topic in there}
    return [
        piece
        for topic, answer in answers.items()
        for one in sorted(answer.splits, key=lambda split: (split.partition, split.start_offset))
        for piece in _cut(
            OffsetRange(topic, one.partition, one.start_offset, one.end_offset, topic_ids[topic]),
            options.max_records_per_partition,
        )
    ]


def _within(
    options: ReadOptions,
    topic: str,
    bounds: Mapping[int, Mapping[str, int | str]],
    limits: Mapping[int, PartitionOffsets],
) -> dict[int, dict[str, int | str]]:
    """Return the bounds with every offset moved into the log: to its start or to its end, whichever is nearer.

    An empty range has lost nothing, wherever it is. Records that are not committed yet are not lost: a range that
    begins there is empty.

    Raises:
        DataLossError: records of a range are gone, and ``failOnDataLoss`` is true.
        NotCommittedError: a range ends behind the last stable offset.
    """
    found: dict[int, dict[str, int | str]] = {}
    for partition, asked in bounds.items():
        limit = limits[partition]
        first, last = limit.log_start_offset, end_of(limit, options)
        start, end = asked.get("start_offset"), asked.get("end_offset")
        there = dict(asked)
        if isinstance(start, int) and isinstance(end, int) and start >= end:
            there["start_offset"] = there["end_offset"] = max(first, min(end, last))
            found[partition] = there
            continue
        name = f"{topic}-{partition}"
        if isinstance(start, int):
            if not first <= start <= limit.high_watermark:
                _report_outside(options, f"{name} was to be read from offset {start}", limit)
            there["start_offset"] = max(first, min(start, last))
        if isinstance(end, int):
            if end > limit.high_watermark:
                _report_outside(options, f"{name} was to be read up to offset {end}", limit)
            elif end > last:
                raise NotCommittedError(topic, partition, end, last)
            # Below the log start the whole range is gone, which the start has reported.
            there["end_offset"] = max(first, min(end, last))
        found[partition] = there
    return found


def _report_outside(options: ReadOptions, what: str, limit: PartitionOffsets) -> None:
    there = f"{limit.log_start_offset} to {limit.high_watermark}"
    report_loss(f"{what} and has {there}: the other records", fail=options.fail_on_data_loss)


def _split(
    client: RollwayClient,
    options: ReadOptions,
    topic: str,
    topic_id: str,
    bounds: Mapping[int, Mapping[str, int | str]],
    split_count: int,
) -> Splits:
    request: dict[str, object] = {
        "topic_id": topic_id,
        "split_count": split_count,
        "isolation": options.isolation,
        "on_truncated": "error" if options.fail_on_data_loss else "earliest",
        "partitions": [{"partition": partition, **own} for partition, own in sorted(bounds.items())],
    }
    if options.max_records_per_partition is not None:
        request["max_records_per_split"] = options.max_records_per_partition
    try:
        answer = client.split(topic, request)
    except OffsetOutOfRangeError as error:
        # The records were deleted after the limits were looked up. With failOnDataLoss=false this is no error.
        report_loss(f"records of {topic} that were to be read ({error})", fail=options.fail_on_data_loss)
        raise
    except ProblemError as error:
        if any(fault.get("pointer") == "/max_records_per_split" for fault in error.problem.get("errors", ())):
            raise OptionError(
                f"maxRecordsPerPartition is {options.max_records_per_partition}, which would cut {topic} into more "
                f"than {RANGES_MAX:,} Spark partitions: a larger one makes fewer"
            ) from None
        raise
    if options.starting_offsets_by_timestamp_strategy == "error":
        for one in answer.partitions:
            asked = bounds[one.partition].get("start_timestamp")
            if one.start_is_late and isinstance(asked, int):
                raise StartNotFoundError(topic, one.partition, asked)
    return answer


def _frozen(splits: Splits) -> dict[int, dict[str, int | str]]:
    """Return the bounds that the service has resolved."""
    return {
        one.partition: {"start_offset": one.start_offset, "end_offset": one.end_offset} for one in splits.partitions
    }


def _shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Divide about ``count`` in proportion to ``sizes``, at least one for each."""
    total = max(1, sum(sizes.values()))
    return {name: max(1, -(-count * size // total)) for name, size in sizes.items()}


def _cut(wanted: OffsetRange, records_max: int | None) -> Sequence[OffsetRange]:
    """Cut a range that is longer than ``records_max`` into equal parts: a single batch may be that long."""
    count = wanted.end_offset - wanted.start_offset
    if records_max is None or count <= records_max:
        return [wanted]
    parts = -(-count // records_max)
    edges = [wanted.start_offset + count * part // parts for part in range(parts + 1)]
    return [replace(wanted, start_offset=start, end_offset=end) for start, end in pairwise(edges)]
