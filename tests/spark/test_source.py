"""``format("rollway")`` as a whole: found by itself, in classic Spark and in Spark Connect."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rollway.client import RollwayClient
from tests.support.servers import ServerProcess


@pytest.fixture(params=["spark", "connect_spark"])
def session(request: pytest.FixtureRequest) -> SparkSession:
    """Classic Spark, and Spark Connect."""
    session: SparkSession = request.getfixturevalue(request.param)
    return session


def read(session: SparkSession, server: ServerProcess, topic: str, **options: str) -> DataFrame:
    return session.read.format("rollway").options(url=server.url, subscribe=topic, **options).load()


def test_rows_are_written_and_read_back(session: SparkSession, server: ServerProcess, topic: str) -> None:
    rows = session.range(1_000).selectExpr("cast(id as string) as key", "concat('value ', id) as value")
    rows.write.format("rollway").options(url=server.url, topic=topic).mode("append").save()
    found = read(session, server, topic).selectExpr("cast(key as string) as key", "cast(value as string) as value")
    assert {(row.key, row.value) for row in found.collect()} == {(str(n), f"value {n}") for n in range(1_000)}
    assert found.count() == 1_000


def test_a_stream_copies_a_topic(
    session: SparkSession, server: ServerProcess, client: RollwayClient, topic: str, tmp_path: Path
) -> None:
    copy = client.create_topic(f"{topic}-copy").name
    rows = session.range(100).selectExpr("cast(id as string) as key", "concat('value ', id) as value")
    rows.write.format("rollway").options(url=server.url, topic=topic).mode("append").save()
    source = session.readStream.format("rollway").options(url=server.url, subscribe=topic, startingOffsets="earliest")
    sink = source.load().select("key", "value").writeStream.format("rollway").options(url=server.url, topic=copy)
    for _ in range(2):
        query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
    found = read(session, server, copy).selectExpr("cast(key as string) as key", "cast(value as string) as value")
    assert sorted((row.key, row.value) for row in found.collect()) == sorted((str(n), f"value {n}") for n in range(100))
