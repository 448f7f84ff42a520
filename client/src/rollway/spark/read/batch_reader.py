"""The batch read: the driver resolves offsets once, and the tasks get ranges of about equal bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rollway.client import RollwayClient
from rollway.spark.actionable import actionable
from rollway.spark.errors import report_made_again
from rollway.spark.options.option_values import EARLIEST, LATEST
from rollway.spark.options.options import ReadOptions
from rollway.spark.read.fetch_rows import OffsetRange, read_range
from rollway.spark.read.positions import Limits, check_all_named, ids_of, made_again, subscribed
from rollway.spark.read.splitting import Bounds, split_ranges

_PLACES = {EARLIEST: "earliest", LATEST: "latest"}


@actionable
class RollwayReader(DataSourceReader):
    """The reader of a fixed range of offsets of every subscribed partition.

    Spark plans a source once for each DataFrame. Its offsets are those of its first action, also in self-joins, unions
    and views of it. No filter is pushed down: Spark keeps a pushed filter for all uses of a DataFrame.

    Thread: one at a time. Picklable: tasks get a copy.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return one range for each partition of a topic that has records, or more with ``minPartitions`` and
        ``maxRecordsPerPartition``.

        Raises:
            TopicNotFoundError: a topic does not exist.
            OptionError: positions do not fit the existing partitions.
            StartNotFoundError: no record is as late as the start time.
            DataLossError: requested records are gone, and ``failOnDataLoss`` is true.
        """
        with RollwayClient(self._options.client) as client:
            limits = subscribed(client, self._options)
            bounds = batch_bounds(self._options, limits)
            for topic in made_again(self._options.topic_ids, ids_of(limits)):
                report_made_again(topic, self._options.topic_ids[topic], fail=self._options.fail_on_data_loss)
                del bounds[topic]
            ranges = split_ranges(client, self._options, bounds, limits)
        # Spark would read an empty list as one partition without a value.
        return [InputPartition(wanted) for wanted in ranges] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range. Raises: as ``read_range``."""
        wanted = partition.value
        if wanted is None:
            return iter(())
        assert isinstance(wanted, OffsetRange)
        return read_range(self._options, self._schema, wanted)


def batch_bounds(options: ReadOptions, limits: Limits) -> Bounds:
    """Return the start and the end of each partition's range, as members of the splits route.

    A time wins over times by partition, and these win over offsets.

    Raises:
        OptionError: positions are given, but not for every partition.
    """
    starts = _side(
        limits, "starting", options.starting_timestamp, options.starting_offsets_by_timestamp, options.starting_offsets
    )
    ends = _side(
        limits, "ending", options.ending_timestamp, options.ending_offsets_by_timestamp, options.ending_offsets
    )
    return {
        topic: {partition: {**starts[topic][partition], **ends[topic][partition]} for partition in partitions}
        for topic, partitions in limits.items()
    }


def _side(
    limits: Limits,
    side: Literal["starting", "ending"],
    timestamp: int | None,
    timestamps: Mapping[str, Mapping[int, int]] | None,
    offsets: str | Mapping[str, Mapping[int, int]],
) -> Bounds:
    """Return one end of the range of each partition."""
    word = "start" if side == "starting" else "end"
    if timestamp is not None:
        return _for_all(limits, f"{word}_timestamp", timestamp)
    if timestamps is not None:
        check_all_named(f"{side}OffsetsByTimestamp", timestamps, limits)
        return _each(f"{word}_timestamp", timestamps)
    if isinstance(offsets, str):
        return _for_all(limits, f"{word}_offset", offsets)
    check_all_named(f"{side}Offsets", offsets, limits)
    return _each(
        f"{word}_offset",
        {
            topic: {partition: _PLACES.get(offset, offset) for partition, offset in partitions.items()}
            for topic, partitions in offsets.items()
        },
    )


def _for_all(limits: Limits, name: str, place: int | str) -> Bounds:
    return _each(name, {topic: dict.fromkeys(partitions, place) for topic, partitions in limits.items()})


def _each(name: str, places: Mapping[str, Mapping[int, int | str]]) -> Bounds:
    return {
        topic: {partition: {name: place} for partition, place in partitions.items()}
        for topic, partitions in places.items()
    }
