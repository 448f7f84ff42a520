"""``python -m bench.spark``: reading and writing through Spark, in turns with a source and a sink that do nothing.

One session with two tasks at a time and one service, both on all cores. Rates differ from machine to machine; ratios of
one run are what to go by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from bench import bench_spark_read, bench_spark_revisions, bench_spark_takeover, bench_spark_write, report
from bench.__main__ import show
from bench.machine import description
from bench.processes import BenchError
from bench.rows import Row
from bench.runs import failures_told, revision, run_program, say, work_directory
from bench.spark_session import PARTITION_COUNT, SparkPlan, spark_plan

BENCHES: dict[str, Callable[[SparkPlan], Iterator[Row]]] = {
    "write": bench_spark_write.measure_loads,
    "row-api": bench_spark_write.measure_row_api,
    "memory": bench_spark_write.measure_memory,
    "read": bench_spark_read.measure_reads,
    "read-memory": bench_spark_read.measure_memory,
    "takeover": bench_spark_takeover.measure_takeovers,
    "revisions": bench_spark_revisions.measure_revisions,
}
SMOKE_ROWS = 20_000


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Run this one only; repeatable. One of {', '.join(BENCHES)}.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows of 100 bytes in each measurement.", min=1)] = 5_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds; the median counts.", min=1)] = 5,
    partitions: Annotated[int, typer.Option(help="Partitions of each topic that is written.", min=1)] = PARTITION_COUNT,
    against: Annotated[str | None, typer.Option(help="Another revision of Rollway, for --only revisions.")] = None,
    smoke: Annotated[bool, typer.Option(help="One round with few rows: whether all of it runs.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write everything measured to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
    data_dir: Annotated[Path, typer.Option(help="Where data lie meanwhile: the disk that is measured.")] = Path(),
) -> None:
    """Measure Spark on Rollway beside Spark alone."""
    names = only or [name for name in BENCHES if name != "revisions" or against]
    if smoke:
        rows, rounds = SMOKE_ROWS, 1
    started = time.monotonic()
    measured: list[Row] = []
    with failures_told("bench.spark"):
        unknown = [name for name in names if name not in BENCHES]
        if unknown:
            raise BenchError(f"There is no bench {unknown[0]}; there are {', '.join(BENCHES)}.")
        with (
            work_directory(data_dir.resolve()) as directory,
            spark_plan(directory, rows, rounds, smoke=smoke, say=say) as plan,
        ):
            plan = plan._replace(partition_count=partitions, against=against)  # noqa: PLW2901
            for name in names:
                measured += BENCHES[name](plan)
    show(measured)
    about = {"revision": revision(), "rounds": rounds, "took_s": round(time.monotonic() - started)}
    if json is not None:
        report.write_json(json, measured, description(), about)
    if markdown is not None:
        markdown.write_text(report.markdown(measured, {**description(), **about}), "utf-8")


if __name__ == "__main__":
    run_program(main)
