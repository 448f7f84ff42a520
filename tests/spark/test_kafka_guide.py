"""Programs as Spark's Kafka guide has users write them, run with format, address and mode changed, and nothing else.

Issue 5, acceptance 9. Whatever a program needs beside Spark is in the service: ``topic1`` and ``topic2``, and where it
writes, ``copy1`` and ``copy2``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rollway.client import ClientSettings, RollwayClient
from rollway.records import Record
from tests.spark.committed import committed_records
from tests.spark.topics import FilledTopic, new_topic
from tests.support.servers import ServerProcess, http_client

SERVERS = "host1:port1,host2:port2"


def as_rollway(program: str, server: ServerProcess) -> str:
    """The program as its user changes it: all that this does is format, address, and the mode of a batch write."""
    changes = (
        ('.format("kafka")', '.format("rollway")'),
        (SERVERS, server.url.removeprefix("http://")),
        (".save()", '.mode("append").save()'),
    )
    for old, new in changes:
        program = program.replace(old, new)
    return program


# The guide's reads: each makes ``rows``, a batch or a stream.

READS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "stream of one topic": (
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
    "stream with headers, limited": (
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
    "stream of several topics": (
        """
rows = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribe", "topic1,topic2")
    .option("startingOffsets", '{"topic1":{"0":2,"1":-1},"topic2":{"0":-2,"1":-2}}')
    .option("failOnDataLoss", "false")
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
)
""",
        [("k0", "two 0"), ("k1", "two 1"), ("k2", "one 2"), ("k2", "two 2")],
    ),
    "stream of a pattern, by time, in more tasks": (
        """
rows = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribePattern", "topic.*")
    .option("startingTimestamp", "1700000001000")
    .option("startingOffsetsByTimestampStrategy", "latest")
    .option("minPartitions", "4")
    .option("kafka.session.timeout.ms", "10000")
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
)
""",
        [("k1", "one 1"), ("k1", "two 1"), ("k2", "one 2"), ("k2", "two 2")],
    ),
    "batch of one topic, from the earliest to the latest offset": (
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
    "batch of several topics, between offsets": (
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
    "batch of a pattern, everything there is": (
        """
rows = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribePattern", "topic.*")
    .option("startingOffsets", "earliest")
    .option("endingOffsets", "latest")
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
)
""",
        [(f"k{place}", f"{name} {place}") for place in range(3) for name in ("one", "two")],
    ),
    "batch by time, with a client of that isolation": (
        """
rows = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("assign", '{"topic1":[0]}')
    .option("startingOffsetsByTimestamp", '{"topic1":{"0":1700000001000}}')
    .option("endingOffsetsByTimestamp", '{"topic1":{"0":1700000002000}}')
    .option("kafka.isolation.level", "read_committed")
    .load()
    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
)
""",
        [("k1", "one 1")],
    ),
}

# The guide's writes, of what its reads have read.

WRITES: dict[str, tuple[str, dict[str, list[str]]]] = {
    "batch to a topic named in an option": (
        """
df = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribe", "topic1")
    .load()
)
(
    df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    .write.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("topic", "copy1")
    .save()
)
""",
        {"copy1": ["k0=one 0", "k1=one 1", "k2=one 2"]},
    ),
    "batch to topics named in the data, with headers": (
        """
df = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribe", "topic1,topic2")
    .option("includeHeaders", "true")
    .load()
)
(
    df.selectExpr("replace(topic, 'topic', 'copy') AS topic", "CAST(key AS STRING)", "CAST(value AS STRING)", "headers")
    .write.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .save()
)
""",
        {
            "copy1": ["k0=one 0 h0", "k1=one 1 h1", "k2=one 2 h2"],
            "copy2": ["k0=two 0 h0", "k1=two 1 h1", "k2=two 2 h2"],
        },
    ),
    "stream to a topic named in an option": (
        """
df = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribe", "topic1")
    .option("startingOffsets", "earliest")
    .load()
)
ds = (
    df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("topic", "copy1")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
ds.awaitTermination()
""",
        {"copy1": ["k0=one 0", "k1=one 1", "k2=one 2"]},
    ),
    "stream to topics named in the data": (
        """
df = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribe", "topic1,topic2")
    .option("startingOffsets", "earliest")
    .load()
)
ds = (
    df.selectExpr("replace(topic, 'topic', 'copy') AS topic", "CAST(key AS STRING)", "CAST(value AS STRING)")
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
ds.awaitTermination()
""",
        {"copy1": ["k0=one 0", "k1=one 1", "k2=one 2"], "copy2": ["k0=two 0", "k1=two 1", "k2=two 2"]},
    ),
    "batch after batch of a stream": (
        """
def write(rows, batch_id):
    (
        rows.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
        .option("topic", "copy1")
        .save()
    )

ds = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
    .option("subscribe", "topic1")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 2)
    .load()
    .writeStream.foreachBatch(write)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
ds.awaitTermination()
""",
        {"copy1": ["k0=one 0", "k1=one 1", "k2=one 2"]},
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service of its own, whose topics have the guide's names."""
    environment = {"ROLLWAY_RETENTION_CHECK_INTERVAL_MS": "86400000"}
    with ServerProcess(tmp_path_factory.mktemp("guide") / "data", environment=environment) as running:
        with http_client(running.url) as http:
            for topic, name in (("topic1", "one"), ("topic2", "two")):
                fill(new_topic(http, 2, topic), name)
        yield running


def fill(topic: FilledTopic, name: str) -> None:
    """Three records in the first partition, a second apart."""
    for place in range(3):
        key, value, headers = b"k%d" % place, f"{name} {place}".encode(), (("h", b"h%d" % place),)
        topic.send(0, [Record(0, 1_700_000_000_000 + 1000 * place, key, value, headers)])


@pytest.mark.parametrize("name", READS)
def test_a_program_that_reads(name: str, spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    program, expected = READS[name]
    namespace: dict[str, Any] = {"spark": spark}
    exec(as_rollway(program, server), namespace)
    rows = namespace["rows"]
    if rows.isStreaming:
        writer = rows.writeStream.format("memory").queryName("guide").option("checkpointLocation", str(tmp_path))
        assert writer.trigger(availableNow=True).start().awaitTermination(300)
        rows = spark.table("guide")
    assert sorted(tuple(row) for row in rows.collect()) == expected


@pytest.mark.parametrize("name", WRITES)
def test_a_program_that_writes(name: str, spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    program, expected = WRITES[name]
    with http_client(server.url) as http, RollwayClient(ClientSettings(server.url)) as client:
        copies = [new_topic(http, 2, topic) for topic in expected]
        try:
            exec(as_rollway(program, server), {"spark": spark, "checkpoint": str(tmp_path)})
            assert {copy.name: written(client, copy.name) for copy in copies} == expected
        finally:
            for copy in copies:
                copy.delete()


def written(client: RollwayClient, topic: str) -> list[str]:
    """Key, value and header of each committed record of a topic, sorted."""
    records = [record for several in committed_records(client, topic).values() for record in several]
    lines = [f"{(each.key or b'').decode()}={(each.value or b'').decode()}" for each in records]
    headers = [" ".join(["", *((value or b"").decode() for _, value in each.headers)]) for each in records]
    return sorted(map("".join, zip(lines, headers, strict=True)))


def test_there_are_ten_and_each_says_kafka() -> None:
    programs = [program for program, _ in (*READS.values(), *WRITES.values())]
    assert len(programs) >= 10
    assert all('.format("kafka")' in program and SERVERS in program for program in programs)
    assert not any("rollway" in program or ".mode(" in program for program in programs)
