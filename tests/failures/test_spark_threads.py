"""Writes in threads that did not make the session: Spark finds no format there that is written in Python."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rollway.client import RollwayClient
from rollway.spark.jobs import CompareRequest, CopyRequest, ExportRequest, ReplayRequest, compare, copy, export, replay
from rollway.spark.threads import active_session
from tests.spark.conftest import client, connect_spark, server, spark, topic
from tests.spark.orders import address, load_orders
from tests.support.servers import ServerProcess

__all__ = ["client", "connect_spark", "server", "spark", "topic"]


@pytest.fixture(params=["spark", "connect_spark"])
def session(request: pytest.FixtureRequest) -> SparkSession:
    """Classic Spark, and Spark Connect."""
    session: SparkSession = request.getfixturevalue(request.param)
    return session


def in_threads(work: Callable[[int], Any], count: int = 2) -> list[Any]:
    """Results of ``work`` in new threads, none of which made a session."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def numbers(session: SparkSession, server: ServerProcess, topic: str) -> list[int]:
    rows = session.read.format("rollway").options(url=server.url, subscribe=topic).load()
    return sorted(int(row.value) for row in rows.selectExpr("cast(value as string) as value").collect())


def test_batch_writes_work_from_every_thread(session: SparkSession, server: ServerProcess, topic: str) -> None:
    rows = session.range(10).selectExpr("cast(id as string) as value")

    def save(_: int) -> None:
        rows.write.format("rollway").options(url=server.url, topic=topic).mode("append").save()

    in_threads(active_session(session)(save))
    assert numbers(session, server, topic) == sorted([*range(10)] * 2)


def test_without_the_helper_spark_finds_no_format(spark: SparkSession, server: ServerProcess, topic: str) -> None:
    """What the helper is for. If Spark mends this, the helper and its pages can go."""
    rows = spark.range(10).selectExpr("cast(id as string) as value")

    def save(_: int) -> None:
        rows.write.format("rollway").options(url=server.url, topic=topic).mode("append").save()

    with pytest.raises((PySparkException, Py4JJavaError), match="DATA_SOURCE_NOT_FOUND"):
        in_threads(save, 1)


def test_a_thread_gets_back_the_session_that_it_had(spark: SparkSession) -> None:
    other = spark.newSession()
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]

    def look(_: int) -> None:
        with active_session(other):
            with active_session(spark):
                assert sessions.getActiveSession().get().equals(spark._jsparkSession)
            assert sessions.getActiveSession().get().equals(other._jsparkSession)
        assert not sessions.getActiveSession().isDefined()

    in_threads(look, 1)


def test_streams_start_in_every_thread(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, topic: str, tmp_path: Path
) -> None:
    target = client.create_topic(f"{topic}-streamed").name
    spark.range(10).selectExpr("cast(id as string) as value").write.format("rollway").options(
        url=server.url, topic=topic
    ).mode("append").save()

    @active_session(spark)
    def stream(_: int) -> None:
        source = spark.readStream.format("rollway").options(url=server.url, subscribe=topic, startingOffsets="earliest")
        sink = source.load().select("value").writeStream.format("rollway").options(url=server.url, topic=target)
        query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()

    in_threads(stream, 1)
    assert numbers(spark, server, target) == [*range(10)]


def test_a_pool_within_foreach_batch_writes(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, topic: str, tmp_path: Path
) -> None:
    target = client.create_topic(f"{topic}-fanned").name
    spark.range(10).selectExpr("cast(id as string) as value").write.format("rollway").options(
        url=server.url, topic=topic
    ).mode("append").save()

    def fan_out(batch: DataFrame, _: int) -> None:
        def save(half: int) -> None:
            rows = batch.select("value").where(f"cast(cast(value as string) as int) % 2 = {half}")
            rows.write.format("rollway").options(url=server.url, topic=target).mode("append").save()

        in_threads(active_session(batch.sparkSession)(save))

    source = spark.readStream.format("rollway").options(url=server.url, subscribe=topic, startingOffsets="earliest")
    sink = source.load().writeStream.foreachBatch(fan_out).option("checkpointLocation", str(tmp_path))
    sink.trigger(availableNow=True).start().awaitTermination()
    assert numbers(spark, server, target) == [*range(10)]


def test_jobs_run_in_every_thread(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    def run(number: int) -> list[str]:
        source, copied, replayed = (address(server, f"in-a-thread-{number}{end}") for end in ("", "-copy", "-replay"))
        load_orders(spark, server, source.topic, tmp_path / str(number), 30)
        reports = [
            copy(spark, CopyRequest(source=source, target=copied)),
            replay(spark, ReplayRequest(source=source, target=replayed, speed=0)),
            export(spark, ExportRequest(source=source, destination=str(tmp_path / f"out-{number}"))),
            compare(spark, CompareRequest(left=source, right=copied)),
        ]
        return [report.outcome for report in reports]

    assert in_threads(run) == [["done", "done", "done", "equal"]] * 2
