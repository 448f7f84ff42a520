"""The batch read by a real Spark from a real service. What is planned and fetched is tested without Spark elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession

from rollway.records import Record
from tests.spark.topics import TIMESTAMP, FilledTopic, new_topic
from tests.support.servers import ServerProcess, http_client


class Reads:
    """Reads of the service under test."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.spark = spark
        self._url = url

    def load(self, topic: FilledTopic, schema: str | None = None, **options: object) -> DataFrame:
        reader = self.spark.read.format("rollway").option("url", self._url).option("subscribe", topic.name)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**{name: str(value) for name, value in options.items()}).load()


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with http_client(server.url) as client:
        yield client


@pytest.fixture
def reads(spark: SparkSession, server: ServerProcess) -> Reads:
    return Reads(spark, server.url)


@pytest.fixture(scope="module")
def pair(http: httpx.Client) -> FilledTopic:
    """A topic of two partitions with five records each, in a batch each: values a0 to a4, b0 to b4."""
    topic = new_topic(http, 2)
    for partition, letter in enumerate("ab"):
        for place in range(5):
            topic.send_values(partition, f"{letter}{place}", timestamp=TIMESTAMP + 1000 * place)
    return topic


def test_every_column_is_as_in_kafkas_source(reads: Reads, http: httpx.Client) -> None:
    topic = new_topic(http)
    topic.send(0, [Record(0, TIMESTAMP, b"k", b"v", (("h", b"1"), ("n", None))), Record(1, TIMESTAMP + 5, None, b"")])
    topic.send(0, [Record(0, TIMESTAMP + 7, b"", None)])
    frame = reads.load(topic, includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    found = [
        (row["key"], row["value"], row["topic"], row["partition"], row["offset"], row["ms"], row["timestampType"])
        for row in rows
    ]
    assert found == [
        (b"k", b"v", topic.name, 0, 0, TIMESTAMP, 0),
        (None, b"", topic.name, 0, 1, TIMESTAMP + 5, 0),
        (b"", None, topic.name, 0, 2, TIMESTAMP + 7, 0),
    ]
    assert [row["headers"] for row in rows] == [[("h", b"1"), ("n", None)], None, None]


def test_a_narrower_schema_reads_those_columns(reads: Reads, pair: FilledTopic) -> None:
    rows = reads.load(pair, schema="offset bigint, value binary").collect()
    assert sorted(tuple(row) for row in rows)[:3] == [(0, b"a0"), (0, b"b0"), (1, b"a1")]


def test_a_task_for_each_partition_with_its_records_in_order(reads: Reads, http: httpx.Client) -> None:
    topic = new_topic(http, 3)
    for partition in (0, 2):
        for first in range(0, 50, 10):
            topic.send_values(partition, *(str(first + place) for place in range(10)))
    rows = reads.load(topic).selectExpr("spark_partition_id()", "partition", "offset").collect()
    assert [tuple(row) for row in rows] == [
        (task, partition, offset) for task, partition in ((0, 0), (1, 2)) for offset in range(50)
    ]


def test_an_empty_topic_has_no_rows(reads: Reads, http: httpx.Client) -> None:
    assert reads.load(new_topic(http)).count() == 0


def test_a_frame_keeps_its_offsets_and_lost_records_are_told(reads: Reads, http: httpx.Client) -> None:
    topic = new_topic(http)
    topic.send_values(0, "a")
    frame = reads.load(topic)
    assert frame.count() == 1
    topic.send_values(0, "b")
    assert (frame.count(), reads.load(topic).count()) == (1, 2)
    topic.delete_before(0, 1)
    with pytest.raises(Exception, match="are gone; to go on without them, set failOnDataLoss to false"):
        frame.count()
    start = json.dumps({topic.name: {"0": 0}})
    assert reads.load(topic, startingOffsets=start, failOnDataLoss="false").count() == 1


def test_unions_self_joins_and_views_with_filters_have_the_right_rows(reads: Reads, pair: FilledTopic) -> None:
    """Issue 5, acceptance 8: Spark would keep the filter pushed for one use of a DataFrame for all others."""
    raw = reads.load(pair)
    union = raw.where("offset = 1 AND partition = 0").union(raw.where("offset = 2 AND partition = 1"))
    assert [row["value"] for row in union.collect()] == [b"a1", b"b2"]

    frame = raw.selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
    left, right = frame.where("partition = 0").alias("l"), frame.where("partition = 1").alias("r")
    joined = left.join(right, on="offset").selectExpr("l.value || r.value AS both")
    assert sorted(row["both"] for row in joined.collect()) == [f"a{place}b{place}" for place in range(5)]

    frame.createOrReplaceTempView("records")
    query = (
        "SELECT value FROM records WHERE offset = 0 AND partition = 0 "
        "UNION ALL SELECT value FROM records WHERE offset > 3 "
        "UNION ALL SELECT max(value) FROM records WHERE value < 'b' "
        "UNION ALL SELECT value FROM records r WHERE partition = 1 AND offset IN "
        "(SELECT offset FROM records WHERE value IN ('a1', 'a2'))"
    )
    assert sorted(row["value"] for row in reads.spark.sql(query).collect()) == ["a0", "a4", "a4", "b1", "b2", "b4"]
