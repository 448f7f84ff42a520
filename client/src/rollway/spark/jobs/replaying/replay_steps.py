"""Steps of time that divide a range of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from rollway.spark.jobs.errors import JobUsageError
from rollway.spark.jobs.places import format_time
from rollway.spark.jobs.topics import TopicRange, read_range

STEPS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """Records that are written together, ``due_seconds`` after the start of the replay."""

    due_seconds: float
    from_ms: int
    ranges: Mapping[int, tuple[int, int]]
    """Offsets of each partition with records: from the first record of the step to the first record after the step, or
    to the end of the whole range."""
    rows: int
    oldest_ms: int


def plan_steps(spark: SparkSession, wanted: TopicRange, *, speed: float, interval_seconds: float) -> list[ReplayStep]:
    """Divide the range into steps of time, without empty steps. Reads all timestamps of the range.

    Records keep their order in the partition. A record that is earlier than its predecessors is in their step.

    Raises:
        JobUsageError: there would be too many steps.
    """
    if wanted.offset_count == 0:
        return []
    # Only these columns are decoded.
    times = read_range(spark, wanted).select("partition", "offset", F.unix_millis("timestamp").alias("at"))
    found = times.agg(F.min("at").alias("begin"), F.max("at").alias("end")).collect()[0]
    if found["begin"] is None:
        return []
    begin, end = int(found["begin"]) if wanted.from_ms is None else wanted.from_ms, int(found["end"])
    step_ms = max(1, int(interval_seconds * speed * 1000)) if speed else end - begin + 1
    count = (end - begin) // step_ms + 1
    if count > STEPS_MAX:
        raise JobUsageError(
            f"From {format_time(begin)} to {format_time(end)} there would be {count:,} steps of "
            f"{interval_seconds:g} s, and {STEPS_MAX:,} are the most: a higher --speed or --interval, or a "
            "shorter range helps."
        )
    until_now = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    step = F.floor((F.max("at").over(until_now) - F.lit(begin)) / F.lit(step_ms)).cast("bigint")
    cuts = (
        times.withColumn("step", step)
        .groupBy("step", "partition")
        .agg(F.min("offset").alias("start"), F.count(F.lit(1)).alias("rows"), F.min("at").alias("oldest"))
        .collect()
    )
    return [
        ReplayStep(number * step_ms / speed / 1000 if speed else 0.0, begin + number * step_ms, ranges, rows, oldest)
        for number, ranges, rows, oldest in reversed(list(_from_the_last(cuts, wanted.ends)))
    ]


def _from_the_last(
    cuts: Iterable[Row], ends: Mapping[int, int]
) -> Iterator[tuple[int, dict[int, tuple[int, int]], int, int]]:
    """Yield number, ranges, rows and oldest timestamp of each step. A partition's part of a step ends at its part of
    the next step."""
    by_step: dict[int, list[Row]] = {}
    for cut in cuts:
        by_step.setdefault(int(cut["step"]), []).append(cut)
    ends = dict(ends)
    for number, own in sorted(by_step.items(), reverse=True):
        ranges = {int(cut["partition"]): (int(cut["start"]), ends[int(cut["partition"])]) for cut in own}
        ends.update({partition: start for partition, (start, _) in ranges.items()})
        yield number, ranges, sum(int(cut["rows"]) for cut in own), min(int(cut["oldest"]) for cut in own)
