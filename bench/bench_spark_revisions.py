"""A transactional load through Spark into a topic of many partitions: this revision of the service beside another."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame

from bench.compare import checked_out
from bench.processes import BenchError
from bench.rollway_server import RollwayServer
from bench.rows import Goal, Row, row_of
from bench.spark_session import SparkPlan, in_turns
from rollway.client import ClientSettings, RollwayClient

BENCH = "spark-revisions"
SECONDS_BOUND = 1.03


def measure_revisions(plan: SparkPlan) -> Iterator[Row]:
    """Seconds of a load, without making and deleting its topic. The library in Spark is this revision's each time.

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
    yield row_of(
        BENCH,
        f"transactional load, {plan.row_count:,} rows of 100 bytes, {plan.partition_count} partitions",
        "s",
        samples["this revision"],
        limit=source.name,
        limits=samples[source.name],
        goal=Goal("ratio", "<=", SECONDS_BOUND),
    )


def _load(plan: SparkPlan, rows: DataFrame) -> Callable[[], float]:
    def load() -> float:
        with plan.topic() as topic:
            writer = rows.write.format("rollway").option("url", plan.url).option("topic", topic).mode("append")
            started = time.perf_counter()
            writer.save()
            return time.perf_counter() - started

    return load
