"""Reading through Spark: beside a source that does nothing; and the memory it takes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.processes import BenchError
from bench.rows import Goal, Row, Sample, row_of
from bench.spark_constant import ConstantSource
from bench.spark_session import PARTITION_COUNT, SparkPlan, in_turns

BENCH = "spark-read"
VALUE_BYTES = 100
_MIB = 1024 * 1024
_VALUE_ONLY = "value binary"


@contextmanager
def _loaded(plan: SparkPlan) -> Iterator[str]:
    """A topic with the rows of the plan."""
    with plan.topic(PARTITION_COUNT) as topic:
        plan.say(f"{plan.row_count:,} rows to read")
        writer = plan.rows(value_bytes=VALUE_BYTES).write.format("rollway").option("url", plan.url)
        writer.option("topic", topic).mode("append").save()
        yield topic


def _read(plan: SparkPlan, format_: str, schema: str | None, **options: str) -> None:
    reader = plan.spark.read.format(format_).options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    reader.load().write.format("noop").mode("overwrite").save()


def measure_reads(plan: SparkPlan) -> Iterator[Row]:
    """All columns, and the value alone, in seconds, beside a constant source of as many rows."""
    plan.spark.dataSource.register(ConstantSource)
    constant = {"rows": str(plan.row_count), "tasks": str(PARTITION_COUNT), "valueBytes": str(VALUE_BYTES)}
    with _loaded(plan) as topic:
        ours = {"url": plan.url, "subscribe": topic}
        for what, schema, bound in (("all columns", None, 1.8), ("value only", _VALUE_ONLY, 2.0)):
            contestants: dict[str, Callable[[], None]] = {
                "constant Arrow source": partial(_read, plan, "constant_arrow", schema, **constant),
                "read": partial(_read, plan, "rollway", schema, **ours),
            }
            samples = in_turns(plan, contestants)
            yield row_of(
                BENCH,
                f"read, {what}, {plan.row_count:,} rows of {VALUE_BYTES} bytes",
                "s",
                samples["read"],
                limit="constant Arrow source",
                limits=samples["constant Arrow source"],
                goal=Goal("ratio", "<=", bound),
            )


def measure_memory(plan: SparkPlan) -> Iterator[Row]:
    """The most memory of a task's Python process, for a tenth of the rows and for all."""
    tenth = plan.row_count // PARTITION_COUNT // 10
    peaks = []
    with _loaded(plan) as topic:
        ends = {str(partition): tenth for partition in range(PARTITION_COUNT)}
        for options in ({"endingOffsets": json.dumps({topic: ends})}, {}):
            plan.say("memory of a read")
            for process in _workers():
                (process / "clear_refs").write_text("5")
            _read(plan, "rollway", None, url=plan.url, subscribe=topic, **options)
            peaks.append(max(_peak_bytes(process) for process in _workers()) / _MIB)
    yield row_of(
        BENCH,
        f"peak memory of a task's Python process, read of {plan.row_count:,} rows",
        "MiB",
        [Sample(peaks[1])],
        limit=f"{tenth * PARTITION_COUNT:,} rows",
        limits=[Sample(peaks[0])],
        goal=Goal("value", "<=", 250_000_000 / _MIB),
    )


def _workers() -> list[Path]:
    """The Python processes of this session's tasks, which stay for the next task."""
    parents: dict[int, int] = {}
    commands: dict[int, bytes] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # Behind the command's name, which may hold anything: state, parent, ...
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(process.name)] = (process / "cmdline").read_bytes()
        except OSError:
            continue

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    return [Path(f"/proc/{pid}") for pid, command in commands.items() if b"pyspark.daemon" in command and is_ours(pid)]


def _peak_bytes(process: Path) -> int:
    for line in (process / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"{process} does not say what memory it has had")
