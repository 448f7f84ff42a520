"""A Spark session to measure in, a service beside it, and contestants that take turns."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from bench.machine import touch_memory
from bench.processes import ROOT
from bench.rollway_server import RollwayServer
from bench.rows import Sample
from rollway.client import ClientSettings, RollwayClient
from rollway.spark.java import java_home

PARTITION_COUNT = 4
_numbers = count()


class SparkPlan(NamedTuple):
    """What a benchmark of Spark is given, and how much it measures."""

    spark: SparkSession
    server: RollwayServer
    client: RollwayClient
    directory: Path
    row_count: int
    rounds: int
    smoke: bool
    say: Callable[[str], None]
    partition_count: int = PARTITION_COUNT
    """Of each topic that is written."""
    against: str | None = None
    """Another revision of Rollway, for the bench that compares revisions."""

    @property
    def url(self) -> str:
        """Where the service is."""
        return self.client.settings.url

    def rows(self, row_count: int | None = None, value_bytes: int = 100) -> DataFrame:
        """Values of ``value_bytes``, made by Spark as they are needed."""
        numbers = self.spark.range(0, row_count or self.row_count, 1, PARTITION_COUNT)
        return numbers.selectExpr(f"cast(lpad(cast(id as string), {value_bytes}, 'x') as binary) as value")

    def stored_rows(self) -> DataFrame:
        """The same values of 100 bytes from a Parquet file, which is written when it is first asked for."""
        path = self.directory / "rows.parquet"
        if not path.exists():
            self.rows().write.parquet(str(path))
        return self.spark.read.parquet(str(path))

    @contextmanager
    def topic(self, partitions: int | None = None) -> Iterator[str]:
        """A topic that is gone afterwards, with its files."""
        name = f"bench.{next(_numbers)}"
        self.server.create_topic(name, partitions or self.partition_count)
        yield name
        self.server.delete_topic(name)


@contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    """A session with two tasks at a time, for as long as the block runs. ``directory`` is for its files."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def spark_plan(
    directory: Path, row_count: int, rounds: int, *, smoke: bool, say: Callable[[str], None]
) -> Iterator[SparkPlan]:
    """A session and a service, for as long as the block runs."""
    cores = frozenset(os.sched_getaffinity(0))
    with spark_session(directory) as spark, RollwayServer(directory / "service", cores) as server:
        host, port = server.address
        with RollwayClient(ClientSettings(f"http://{host}:{port}")) as client:
            yield SparkPlan(spark, server, client, directory, row_count, rounds, smoke, say)


def in_turns(plan: SparkPlan, contestants: Mapping[str, Callable[[], Sample | None]]) -> dict[str, list[Sample]]:
    """Seconds of each contestant in each round; one round before them is not counted.

    A contestant that leaves out a part of its work returns the sample itself. Every second round runs them the other
    way round, so that none always follows the same other.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in contestants}
    for turn in range(plan.rounds + 1):
        names = list(contestants)
        for name in names if turn % 2 else names[::-1]:
            plan.say(f"{name}, round {turn} of {plan.rounds}")
            if not plan.smoke:
                touch_memory()
            started = time.perf_counter()
            sample = contestants[name]() or Sample(time.perf_counter() - started)
            if turn or plan.smoke:
                samples[name].append(sample)
    return samples
