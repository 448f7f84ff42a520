"""How an export is divided into files: by date and hour, and within those by size.

A task that reads has records of any hour, so that as many tasks times hours would be as many files. So the rows are
brought together by date and hour first. Spark divides hours that are large among tasks, and gives one task several that
are small (``REBALANCE``); a task begins another file after so many records as have the size of a file in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody who writes Spark calls it

from rollway.spark.jobs.topics import TopicRange

FILE_BYTES_DEFAULT = 128 << 20
PARTITIONED_BY = ("date", "hour")
_IN_ORDER = (*PARTITIONED_BY, "partition", "offset")
_ADAPTIVE = "spark.sql.adaptive.enabled"
_ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


def brought_together(rows: DataFrame, file_bytes: int) -> DataFrame:
    """The rows by date and hour, in their partitions' order; with ``file_bytes`` of 0 as they are."""
    if file_bytes == 0:
        return rows
    keys: list[Column] = [F.col(name) for name in PARTITIONED_BY]
    return rows.hint("rebalance", *keys).sortWithinPartitions(*_IN_ORDER)


def records_per_file(wanted: TopicRange, file_bytes: int) -> int:
    """How many records have the size of a file in the log, on an average of the range; 0 is any number."""
    if file_bytes == 0 or wanted.offset_count == 0 or wanted.size_bytes == 0:
        return 0
    return max(1, file_bytes * wanted.offset_count // wanted.size_bytes)


@contextmanager
def sized_tasks(spark: SparkSession, file_bytes: int) -> Iterator[None]:
    """Within, tasks that write get about the rows of a file each. Other queries of the session are divided likewise.

    Thread: the session's settings are changed for the time of it.
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
