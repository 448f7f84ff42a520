"""The division of an export into files: by date and hour, and within an hour by size.

A task reads records of any hour, so that the number of files would be tasks times hours. Therefore the rows are first
grouped by date and hour. Spark divides large hours among tasks, and gives several small ones to one task
(``REBALANCE``). A task begins another file after the number of records that take the size of a file in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from rollway.spark.jobs.topics import TopicRange

FILE_BYTES_DEFAULT = 128 << 20
PARTITIONED_BY = ("date", "hour")
_IN_ORDER = (*PARTITIONED_BY, "partition", "offset")
_ADAPTIVE = "spark.sql.adaptive.enabled"
_ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


def brought_together(rows: DataFrame, file_bytes: int) -> DataFrame:
    """Return the rows grouped by date and hour, in their partitions' order; with ``file_bytes`` of 0 unchanged."""
    if file_bytes == 0:
        return rows
    keys: list[Column] = [F.col(name) for name in PARTITIONED_BY]
    return rows.hint("rebalance", *keys).sortWithinPartitions(*_IN_ORDER)


def records_per_file(wanted: TopicRange, file_bytes: int) -> int:
    """Return the number of records that take the size of a file in the log, by the range's average; 0: no limit."""
    if file_bytes == 0 or wanted.offset_count == 0 or wanted.size_bytes == 0:
        return 0
    return max(1, file_bytes * wanted.offset_count // wanted.size_bytes)


@contextmanager
def sized_tasks(spark: SparkSession, file_bytes: int) -> Iterator[None]:
    """Give each writing task about the rows of one file, in the block. Other queries of the session are affected as
    well.

    Thread: the session's settings change within the block.
    """
    wanted = {_ADAPTIVE: "true", _ADVISORY: f"{file_bytes}b"} if file_bytes else {}
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, own)
