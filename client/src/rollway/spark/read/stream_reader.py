"""The streaming read: the start and the end of each micro-batch, found by one long poll while nothing is new."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rollway.client import PartitionOffsets, RollwayClient, TopicNotFoundError, TopicReplacedError
from rollway.spark.actionable import actionable
from rollway.spark.errors import report_loss, report_made_again
from rollway.spark.options.option_values import LATEST
from rollway.spark.options.options import ReadOptions
from rollway.spark.read.admission import DelayedTrigger, limited, new_offsets
from rollway.spark.read.fetch_rows import OffsetRange, read_range
from rollway.spark.read.positions import (
    Limits,
    Positions,
    TopicIds,
    beyond,
    ends_from,
    ends_of,
    from_document,
    ids_in,
    ids_of,
    limits_of,
    lost_before,
    made_again,
    pinned_start,
    stream_start,
    subscribed,
    to_document,
    without_topics,
)
from rollway.spark.read.splitting import Bounds, split_ranges

IDLE_WAIT_MS = 600
"""Longest wait for new records in one request. A stop of the query may take as long."""

# Least time between two searches for new topics and partitions while no record arrives. One takes a request per topic.
_LOOK_SECONDS = 10.0
_LOOK_SECONDS_PER_TOPIC = 5.0


@actionable
class RollwayStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query. Its offsets are Kafka's documents, with the ids of the topics.

    **Topics.** A topic of the same name that is created later is a different topic. Positions in a topic are never used
    for a different one. Its deletion counts as loss of data, and without ``failOnDataLoss`` the new topic is read from
    its first record. Checkpoints of earlier versions have no ids. The first micro-batch after them stores the present
    ids.

    **The first position.** Spark stores the end of a micro-batch before it runs, but never the start of the first one.
    After a restart ``latest`` would be later, and the records between would be lost. Therefore, without a group, a
    start at ``latest`` stays -1, and the first micro-batch is empty. It ends at the end of that moment, which Spark
    stores. With ``kafka.group.id`` the service pins the position instead, for every query of the group. Other starts do
    not move.

    Thread: one at a time. Picklable until it is asked for offsets: tasks get such a copy.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._client: RollwayClient | None = None
        self._initial: tuple[Positions, TopicIds] | None = None
        self._beyond: Positions = {}
        self._target: Limits | None = None
        self._seen: Limits | None = None
        self._looked_at = 0.0
        self._is_waiting = False
        self._delayed: DelayedTrigger | None = None
        if options.min_offsets_per_trigger is not None:
            self._delayed = DelayedTrigger(options.min_offsets_per_trigger, options.max_trigger_delay_ms, _now_ms)

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of the query. Every call returns the same.

        Raises:
            TopicNotFoundError, OptionError, StartNotFoundError: as ``subscribed`` and ``stream_start``.
            RollwayError: the service cannot be reached, or refuses.
        """
        if self._initial is None:
            limits, start = self._start()
            topic_ids = ids_of(limits)
            if self._options.group_id is not None:
                ends = ends_of(limits, self._options)
                start = pinned_start(self._connected(), self._options.group_id, start, ends, topic_ids)
            self._beyond = beyond(start, limits)
            self._initial = start, topic_ids
        return to_document(*self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark passes to ``latestOffset``, unless its trigger reads everything."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: the present ends of the present partitions."""
        self._target = self._look()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch; ``start`` itself if there is none to run.

        If the last call found nothing new, wait up to ``IDLE_WAIT_MS``.

        Raises:
            DataLossError: a partition is gone, its log has become shorter, or its topic was replaced, and
                ``failOnDataLoss`` is true.
            RollwayError: the service cannot be reached, or refuses.
        """
        known = ids_in(start)
        limits = self._limits_for(from_document(start), known)
        topic_ids = ids_of(limits)
        others = made_again(known, topic_ids)
        for topic in others:
            report_made_again(topic, known[topic], fail=self._options.fail_on_data_loss)
        begin = without_topics(from_document(start), others)
        for what in lost_before(begin, limits, self._beyond):
            self._report_loss(what)
        ends = ends_from(begin, limits, self._options)
        complete = self._complete(begin, ends, topic_ids)
        if not isinstance(limit, ReadAllAvailable):
            count = sum(new_offsets(complete, ends).values())
            if self._target is None and self._delayed is not None and count and self._delayed.must_wait(count):
                self._is_waiting = True
                return start
            if self._options.max_offsets_per_trigger is not None:
                ends = limited(complete, ends, self._options.max_offsets_per_trigger)
        document = to_document(ends, topic_ids)
        self._is_waiting = document == start
        return document

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends that were seen last, for the progress of the query. Sends no request."""
        return None if self._seen is None else to_document(ends_of(self._seen, self._options), ids_of(self._seen))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of a micro-batch: one for each partition of a topic that has records, or more with
        ``minPartitions`` and ``maxRecordsPerPartition``. Spark may call this again after a restart.

        Raises:
            DataLossError: records of the micro-batch are gone, and ``failOnDataLoss`` is true.
        """
        ends, topic_ids = from_document(end), ids_in(end)
        if missing := ends.keys() - topic_ids.keys():
            topic_ids.update(ids_of(limits_of(self._connected(), missing, may_miss=True)))
        begin = without_topics(from_document(start), made_again(ids_in(start), topic_ids))
        begin = self._complete(begin, ends, topic_ids)
        ranges = [
            OffsetRange(topic, partition, begin[topic][partition], until, topic_ids.get(topic))
            for topic, partitions in ends.items()
            for partition, until in partitions.items()
            if begin[topic][partition] < until
        ]
        if ranges and (self._options.min_partitions or self._options.max_records_per_partition):
            ranges = self._split(ranges)
        return [InputPartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range. Raises: as ``read_range``."""
        wanted = partition.value
        assert isinstance(wanted, OffsetRange)
        return read_range(self._options, self._schema, wanted)

    def stop(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def _connected(self) -> RollwayClient:
        if self._client is None:
            self._client = RollwayClient(self._options.client)
        return self._client

    def _start(self) -> tuple[Limits, Positions]:
        """Return the limits of the topics, and the start of the query in them."""
        while True:
            limits = subscribed(self._connected(), self._options)
            start = stream_start(self._connected(), self._options, limits)
            # Offsets were looked up by time and by the topic's name: the topic may have been replaced in between.
            if not self._begins_at_times() or not made_again(ids_of(limits), ids_of(self._look())):
                return limits, start

    def _begins_at_times(self) -> bool:
        options = self._options
        return options.starting_timestamp is not None or options.starting_offsets_by_timestamp is not None

    def _look(self) -> Limits:
        """Return the present partitions and their limits."""
        self._seen = subscribed(self._connected(), self._options, may_miss=not self._options.fail_on_data_loss)
        self._looked_at = time.monotonic()
        return self._seen

    def _limits_for(self, begin: Positions, known: TopicIds) -> Limits:
        """Return the limits for a micro-batch that starts at ``begin``: the present ones, or the fixed ones."""
        if self._target is None:
            return self._news()
        if lost_before(begin, self._target) or made_again(known, ids_of(self._target)):
            # The query may begin after its end was fixed: records that were appended in between are not lost.
            self._target = self._look()
        return self._target

    def _news(self) -> Limits:
        """Return the present partitions and their limits. If the last call found nothing new, wait for a change."""
        if self._is_waiting and self._seen is not None:
            seen = ends_of(self._seen, self._options)
            has_come = self._connected().wait_for(
                seen, topic_ids=ids_of(self._seen), isolation=self._options.isolation, wait_ms=IDLE_WAIT_MS
            )
            seconds = max(_LOOK_SECONDS, _LOOK_SECONDS_PER_TOPIC * len(seen))
            if not has_come and time.monotonic() < self._looked_at + seconds:
                return self._seen
        return self._look()

    def _complete(self, begin: Positions, ends: Positions, topic_ids: TopicIds) -> Positions:
        """Return the start of each partition of ``ends``, never behind its end.

        A new partition, or one of a replaced topic, starts at its first record. ``topic_ids`` are the ids of the topics
        of ``ends``. ``begin`` has positions in the same topics.

        Raises:
            DataLossError: a new partition has lost records already, and ``failOnDataLoss`` is true.
        """
        complete: Positions = {}
        for topic, partitions in ends.items():
            known = begin.get(topic, {})
            own = {
                partition: end if known[partition] == LATEST else known[partition]
                for partition, end in partitions.items()
                if partition in known and known[partition] <= end
            }
            if len(own) < len(partitions):
                limits = self._limits_of_topic(topic, topic_ids)
                for partition in partitions.keys() - own.keys():
                    at_end = partition in known and self._is_of_this_log(topic, partition, known[partition], limits)
                    # If the partition is gone, its task reports that.
                    first = limits[partition].log_start_offset if partition in limits else 0
                    own[partition] = partitions[partition] if at_end else first
                    if own[partition] > 0 and partition not in known:
                        self._report_loss(
                            f"{topic}-{partition} is new to this query, and its records before offset {own[partition]}"
                        )
            complete[topic] = own
        return complete

    def _limits_of_topic(self, topic: str, topic_ids: TopicIds) -> dict[int, PartitionOffsets]:
        """Return the limits of the topic's partitions; nothing if the topic with its id is gone."""
        limits = limits_of(self._connected(), [topic], may_miss=True)
        return {} if made_again(topic_ids, ids_of(limits)) else limits.get(topic, {})

    def _report_loss(self, what: str) -> None:
        report_loss(what, fail=self._options.fail_on_data_loss)

    def _is_of_this_log(self, topic: str, partition: int, offset: int, limits: dict[int, PartitionOffsets]) -> bool:
        """Return whether a position behind the end of a batch belongs to the present log, and not to an earlier one.

        A start by time that is looked up again after a failure may have moved behind the end that Spark stored. A start
        that the user gave may never have existed. In both cases the log is the same, and nothing before the end is new.
        """
        if partition not in limits:
            return False
        return offset <= limits[partition].high_watermark or self._beyond.get(topic, {}).get(partition) == offset

    def _split(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Split the ranges by the options. A range whose topic is gone stays whole; its task reports the loss."""
        try:
            limits = limits_of(self._connected(), {wanted.topic for wanted in ranges}, may_miss=False)
            topic_ids = ids_of(limits)
            gone = [
                wanted
                for wanted in ranges
                if wanted.partition not in limits[wanted.topic] or topic_ids[wanted.topic] != wanted.topic_id
            ]
            bounds: Bounds = {}
            for wanted in ranges:
                if wanted not in gone:
                    own = bounds.setdefault(wanted.topic, {})
                    own[wanted.partition] = {"start_offset": wanted.start_offset, "end_offset": wanted.end_offset}
            return gone + split_ranges(self._connected(), self._options, bounds, limits)
        except (TopicNotFoundError, TopicReplacedError):
            return ranges


def _now_ms() -> float:
    return time.monotonic() * 1000
