"""A transactional load through Spark into a topic of many partitions: this revision of the service beside another."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame

from bench.compare import checked_out
from bench.processes import BenchError
from bench.rollway_server import RollwayServer
from bench.rows import Goal, Row, Sample, row_of
from bench.spark_session import SparkPlan, in_turns
from rollway.client import ClientSettings, RollwayClient

BENCH = "spark-revisions"
SECONDS_BOUND = 1.03


def measure_revisions(plan: SparkPlan) -> Iterator[Row]:
    """Seconds of a load, and CPU seconds of the service, without making and deleting its topic.

    The library in Spark is this revision's each time.

    Raises:
        BenchError: there is no other revision, or it cannot be installed.
    """
    if not plan.against:
        raise BenchError("There is nothing to compare with: say --against REV.")
    cores = frozenset(os.sched_getaffinity(0))
    with checked_out(plan.against) as source, RollwayServer(plan.directory / "other", cores, source) as server:
        host, port = server.address
        with RollwayClient(ClientSettings(f"http://{host}:{port}")) as client:
            other = plan._replace(server=server, client=client)
            rows = plan.stored_rows()
            samples = in_turns(plan, {"this revision": _load(plan, rows), source.name: _load(other, rows)})
    ours, theirs = samples["this revision"], samples[source.name]
    what = f"transactional load, {plan.row_count:,} rows of 100 bytes, {plan.partition_count} partitions"
    goal = Goal("ratio", "<=", SECONDS_BOUND)
    yield row_of(BENCH, what, "s", ours, limit=source.name, limits=theirs, goal=goal)
    # Other programs on the machine disturb it less.
    ours, theirs = ([Sample(each.extra["server_cpu_s"]) for each in some] for some in (ours, theirs))
    yield row_of(BENCH, f"{what}: CPU of the service", "s", ours, limit=source.name, limits=theirs)


def _load(plan: SparkPlan, rows: DataFrame) -> Callable[[], Sample]:
    def load() -> Sample:
        with plan.topic() as topic:
            writer = rows.write.format("rollway").option("url", plan.url).option("topic", topic).mode("append")
            started, cpu_before = time.perf_counter(), plan.server.cpu_seconds()
            writer.save()
            seconds, cpu_seconds = time.perf_counter() - started, plan.server.cpu_seconds() - cpu_before
            return Sample(seconds, server_cpu=cpu_seconds / seconds, extra={"server_cpu_s": cpu_seconds})

    return load
