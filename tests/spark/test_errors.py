"""What a user of Spark sees when something is wrong: a sentence that can be acted on, and little around it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.support.servers import ServerProcess

LINES_MAX = 8
"""Spark's own words around ours: a title, the start of a traceback, one place, the error, an SQL state."""


def closed_url() -> str:
    """An address of this machine where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def told(error: pytest.ExceptionInfo[PySparkException]) -> str:
    """The message, which must be short."""
    text = str(error.value)
    assert len(text.splitlines()) <= LINES_MAX, text
    return text


def read(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    return spark.read.format("rollway").options(url=url, subscribe=topic, **options).load()


def save(rows: DataFrame, url: str, topic: str, mode: str = "append", **options: str) -> None:
    rows.write.format("rollway").options(url=url, topic=topic, **options).mode(mode).save()


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(4).selectExpr("cast(id as string) as value")


def test_options_are_judged_when_the_user_says_load(spark: SparkSession, server: ServerProcess, topic: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        read(spark, server.url, topic, startingOffset="earliest")
    assert "OptionError: there is no option startingoffset; did you mean startingOffsets?" in told(caught)
    with pytest.raises(AnalysisException) as caught:
        spark.readStream.format("rollway").options(url=server.url, subscribe=topic, group="g").load()
    assert "OptionError: there is no option group; " in told(caught)


def test_options_of_a_write(rows: DataFrame, server: ServerProcess, topic: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        save(rows, server.url, topic, deliverymod="idempotent")
    assert "OptionError: there is no option deliverymod; did you mean deliveryMode?" in told(caught)


def test_a_topic_that_is_not_there(spark: SparkSession, rows: DataFrame, server: ServerProcess) -> None:
    with pytest.raises(AnalysisException) as caught:
        read(spark, server.url, "no-such").collect()
    assert "there is no topic 'no-such'" in told(caught)
    with pytest.raises(AnalysisException) as caught:
        save(rows, server.url, "no-such")
    assert "there is no topic 'no-such'" in told(caught)


def test_a_service_that_is_down(spark: SparkSession, rows: DataFrame) -> None:
    url = closed_url()
    sentence = f"cannot reach Rollway at {url}: tried 3 times in "
    few = {"retries": "2", "retryBackoffMs": "1"}
    with pytest.raises(AnalysisException) as caught:
        read(spark, url, "flights", **few).collect()
    assert sentence in told(caught)
    assert "; last error: [Errno 111] Connection refused" in told(caught)
    with pytest.raises(AnalysisException) as caught:
        save(rows, url, "flights", **few)
    assert sentence in told(caught)


def test_save_modes(rows: DataFrame, server: ServerProcess, topic: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        save(rows, server.url, topic, mode="overwrite")
    assert "only appended to: write with .mode('append')" in told(caught)
    with pytest.raises(AnalysisException) as caught:
        save(rows, server.url, topic, mode="error")
    assert 'use either the "Append"' in told(caught)


def test_columns(spark: SparkSession, server: ServerProcess, topic: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        save(spark.range(1), server.url, topic)
    assert "the rows have no column value, which is what is written; they have id" in told(caught)
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("rollway").options(url=server.url, subscribe=topic).schema("value string").load().collect()
    assert "the schema has value as string, but a read gives it as binary" in told(caught)


def test_rows_that_cannot_be_written(spark: SparkSession, server: ServerProcess, topic: str) -> None:
    rows = spark.range(1).selectExpr("cast(id as string) as value", "99 as partition")
    with pytest.raises(PySparkException) as caught:
        save(rows, server.url, topic)
    assert "a row names partition 99" in told(caught)


def test_streams(spark: SparkSession, server: ServerProcess, topic: str, tmp_path: Path) -> None:
    def run(**options: str) -> str:
        source = spark.readStream.format("rollway").options(**{"url": server.url, "subscribe": topic, **options}).load()
        sink = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.trigger(availableNow=True).start()
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination()
        return str(caught.value)

    assert "endingOffsets is for batch reads: a stream has no end" in run(endingOffsets="latest")
    assert "there is no topic 'no-such'" in run(subscribe="no-such")


def test_spark_connect_says_the_same(connect_spark: SparkSession, server: ServerProcess, topic: str) -> None:
    asks: dict[str, Callable[[], object]] = {
        "did you mean startingOffsets?": lambda: read(connect_spark, server.url, topic, startingOffset="x").collect(),
        "there is no topic 'no-such'": lambda: read(connect_spark, server.url, "no-such").collect(),
    }
    for sentence, ask in asks.items():
        with pytest.raises(PySparkException) as caught:
            ask()
        assert sentence in str(caught.value)
