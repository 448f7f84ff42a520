"""Programs as Spark's Kafka guide has users write them, run with another format and another address and nothing else.

Issue 5, acceptance 9, the reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rollway.records import Record
from tests.servers import ServerProcess, http_client
from tests.spark.topics import TIMESTAMP, FilledTopic, new_topic

FORMAT, SERVERS = '.format("kafka")', "host1:port1,host2:port2"

BATCHES = {
    "one topic, from the earliest to the latest offset": (
        """
rows = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribe", "topic1")
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
)
""",
        [("k0", "one 0"), ("k1", "one 1"), ("k2", "one 2")],
    ),
    "several topics, between offsets": (
        """
rows = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribe", "topic1,topic2")
    .option("startingOffsets", '{"topic1":{"0":1,"1":-2},"topic2":{"0":-2,"1":0}}')
    .option("endingOffsets", '{"topic1":{"0":2,"1":-1},"topic2":{"0":2,"1":-1}}')
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
)
""",
        [("k0", "two 0"), ("k1", "one 1"), ("k1", "two 1")],
    ),
    "a pattern, everything there is": (
        """
rows = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribePattern", "topic.*")
    .option("startingOffsets", "earliest")
    .option("endingOffsets", "latest")
    .option("minPartitions", "4")
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
)
""",
        [(f"k{place}", f"{name} {place}") for place in range(3) for name in ("one", "two")],
    ),
    "by time, with a client of that isolation": (
        """
rows = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("assign", '{"topic1":[0]}')
    .option("startingOffsetsByTimestamp", '{"topic1":{"0":TIMESTAMP1}}')
    .option("endingOffsetsByTimestamp", '{"topic1":{"0":TIMESTAMP2}}')
    .option("kafka.isolation.level", "read_committed")
    .option("failOnDataLoss", "false")
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
)
""",
        [("k1", "one 1")],
    ),
}

STREAMS = {
    "one topic": (
        """
rows = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribe", "topic1")
    .option("startingOffsets", "earliest")
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
)
""",
        [("k0", "one 0"), ("k1", "one 1"), ("k2", "one 2")],
    ),
    "one topic with headers, limited": (
        """
rows = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribe", "topic2")
    .option("includeHeaders", "true")
    .option("startingOffsets", '{"topic2":{"0":1,"1":-2}}')
    .option("maxOffsetsPerTrigger", 100)
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(headers[0].value AS STRING)")
)
""",
        [("k1", "h1"), ("k2", "h2")],
    ),
    "several topics by pattern, in more tasks": (
        """
rows = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribePattern", "topic[12]")
    .option("startingTimestamp", "TIMESTAMP1")
    .option("startingOffsetsByTimestampStrategy", "latest")
    .option("minPartitions", "4")
    .option("kafka.session.timeout.ms", "10000")
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
)
""",
        [(f"k{place}", f"{name} {place}") for place in (1, 2) for name in ("one", "two")],
    ),
}


@pytest.fixture(scope="module")
def topics(server: ServerProcess) -> Iterator[tuple[FilledTopic, FilledTopic]]:
    """Two topics of two partitions, with three records each in the first of them."""
    with http_client(server.url) as http:
        mark = new_topic(http).name
        made = tuple(new_topic(http, 2, f"{mark}.topic{number}") for number in (1, 2))
        for topic, name in zip(made, ("one", "two"), strict=True):
            for place in range(3):
                headers = (("h", b"h%d" % place),)
                key, value = f"k{place}".encode(), f"{name} {place}".encode()
                topic.send(0, [Record(0, TIMESTAMP + 1000 * place, key, value, headers)])
        yield made[0], made[1]


def run(script: str, spark: SparkSession, server: ServerProcess, topics: tuple[FilledTopic, FilledTopic]) -> DataFrame:
    """What the program makes of it, after its format, its address and the names and times that are ours are put in."""
    assert FORMAT in script
    assert SERVERS in script
    program = script.replace(FORMAT, '.format("rollway")').replace(SERVERS, server.url.removeprefix("http://"))
    program = program.replace("topic", topics[0].name.removesuffix("1")).replace("TIMESTAMP1", str(TIMESTAMP + 1000))
    namespace: dict[str, Any] = {"spark": spark}
    exec(program.replace("TIMESTAMP2", str(TIMESTAMP + 2000)), namespace)
    rows: DataFrame = namespace["rows"]
    return rows


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_program_runs(
    name: str, spark: SparkSession, server: ServerProcess, topics: tuple[FilledTopic, FilledTopic]
) -> None:
    script, expected = BATCHES[name]
    assert sorted(tuple(row) for row in run(script, spark, server, topics).collect()) == expected


@pytest.mark.parametrize("name", STREAMS)
def test_a_streaming_program_runs(
    name: str, spark: SparkSession, server: ServerProcess, topics: tuple[FilledTopic, FilledTopic], tmp_path: Path
) -> None:
    script, expected = STREAMS[name]
    writer = run(script, spark, server, topics).writeStream.format("memory").queryName("guide")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(tuple(row) for row in spark.table("guide").collect()) == expected
