"""Writing through Spark: beside a sink that does nothing, beside at least once, beside the Row API; and its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from pyspark.sql import DataFrame

from bench.rows import Goal, Row, Sample, row_of
from bench.spark_rivals import NoopArrowSink, RowSink
from bench.spark_session import SparkPlan, in_turns
from rollway.spark.bulk_load import bulk_load

BENCH = "spark-write"
_MIB = 1024 * 1024
# Memory is measured with so many rows, and with ten times as many.
_MEMORY_ROWS = 5_000_000


def _save(plan: SparkPlan, rows: DataFrame, format_: str, **options: str) -> None:
    with plan.topic() as topic:
        writer = rows.write.format(format_).option("url", plan.url).option("topic", topic)
        writer.options(**options).mode("append").save()


def _drop(rows: DataFrame) -> None:
    rows.write.format("noop_arrow").mode("append").save()


def _sources(plan: SparkPlan) -> dict[str, DataFrame]:
    """The same rows, stored and made: making them takes Spark longer than reading them, whoever writes them then."""
    return {"from Parquet": plan.stored_rows(), "computed by Spark": plan.rows()}


def measure_loads(plan: SparkPlan) -> Iterator[Row]:
    """A transactional load, in seconds, beside nothing at all and beside at least once."""
    plan.spark.dataSource.register(NoopArrowSink)
    for source, rows in _sources(plan).items():
        save = partial(_save, plan, rows, "rollway")
        contestants: dict[str, Callable[[], None]] = {
            "no-op Arrow sink": partial(_drop, rows),
            "transactional": save,
            "at least once": partial(save, deliveryMode="atleastonce"),
        }
        samples = in_turns(plan, contestants)
        ours = samples["transactional"]
        for limit, bound in (("no-op Arrow sink", 2.5), ("at least once", 1.15)):
            yield row_of(
                BENCH,
                f"transactional load, {plan.row_count:,} rows of 100 bytes {source}",
                "s",
                ours,
                limit=limit,
                limits=samples[limit],
                goal=Goal("ratio", "<=", bound),
            )


def measure_row_api(plan: SparkPlan) -> Iterator[Row]:
    """What the Row API takes, in seconds, beside Arrow; the goal is about writing, so of rows that are there."""
    plan.spark.dataSource.register(RowSink)
    for source, rows in _sources(plan).items():
        contestants: dict[str, Callable[[], None]] = {
            "Arrow": partial(_save, plan, rows, "rollway", deliveryMode="atleastonce"),
            "Row API": partial(_save, plan, rows, "rollway_rows"),
        }
        samples = in_turns(plan, contestants)
        yield row_of(
            BENCH,
            f"Row API, {plan.row_count:,} rows of 100 bytes {source}, at least once",
            "s",
            samples["Row API"],
            limit="Arrow writer",
            limits=samples["Arrow"],
            goal=Goal("ratio", ">=", 4.0) if source == "from Parquet" else None,
        )


def measure_memory(plan: SparkPlan) -> Iterator[Row]:
    """The most memory of a task's Python process, for some rows and for ten times as many."""
    few = 1_000 if plan.smoke else _MEMORY_ROWS
    peaks = []
    for row_count in (few, few * 10):
        plan.say(f"memory, {row_count:,} rows")
        with plan.topic() as topic:
            peaks.append(bulk_load(plan.rows(row_count), plan.url, topic).peak_bytes / _MIB)
    yield row_of(
        BENCH,
        f"peak memory of a task's Python process, {few * 10:,} rows",
        "MiB",
        [Sample(peaks[1])],
        limit=f"{few:,} rows",
        limits=[Sample(peaks[0])],
        goal=Goal("value", "<=", 250_000_000 / _MIB),
    )
