"""``rollway-spark copy`` from and to a real Kafka, with Spark's source and sink; judged by Kafka's other clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from rollway.client import RollwayClient
from tests.spark.committed import committed_records
from tests.spark_packages.conftest import Job

pytestmark = pytest.mark.slow

BEGIN_MS = 1_372_896_000_000  # 2013-07-04T00:00Z
MINUTE_MS = 60_000
KEEP = {"retention.ms": -1}
QUICK = {"default.api.timeout.ms": 3000, "request.timeout.ms": 2000, "max.block.ms": 3000, "delivery.timeout.ms": 4000}
GIVING_UP_SOON = [part for key, value in {**QUICK, "linger.ms": 0}.items() for part in ("-o", f"kafka.{key}={value}")]

Found = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
"""Partition, key, value, headers, time."""


def record(number: int) -> Found:
    """One of every kind: without key, without value, with repeated, empty, binary and null headers."""
    headers = [("h", b"x%d" % number), ("h", b"\xff\x00"), ("e", b""), ("n", None)] if number % 4 else []
    key = None if number % 5 == 0 else b"k%d" % (number % 7)
    value = None if key and number % 11 == 3 else b"v%d" % number
    return number % 3, key, value, headers, BEGIN_MS + number * MINUTE_MS


def make_topic(kafka: str, topic: str, partitions: int = 3) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics([NewTopic(topic, partitions, 1, topic_configs={"retention.ms": "-1"})])
    admin.close()


def fill(kafka: str, topic: str, records: Sequence[Found]) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
            for partition, key, value, headers, at in records:
                await producer.send(topic, value, key, partition, timestamp_ms=at, headers=headers)

    asyncio.run(send())


def in_kafka(kafka: str, topic: str) -> list[Found]:
    found: list[Found] = []
    consumer = KafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False)
    for number in sorted(consumer.partitions_for_topic(topic) or ()):
        partition = TopicPartition(topic, number)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            polled = consumer.poll(500).get(partition, ())
            found += [(number, each.key, each.value, list(each.headers), each.timestamp) for each in polled]
    consumer.close()
    return found


def in_rollway(client: RollwayClient, topic: str) -> list[Found]:
    return [
        (number, each.key, each.value, list(each.headers), each.timestamp)
        for number, records in sorted(committed_records(client, topic).items())
        for each in records
    ]


def by_partition(records: Sequence[Found]) -> list[Found]:
    return sorted(records, key=lambda each: each[0])


def test_copies_bring_every_part_of_records_and_are_done_once(
    job: Job, kafka: str, client: RollwayClient, name: str
) -> None:
    records = [record(number) for number in range(60)]
    make_topic(kafka, name)
    fill(kafka, name, records)
    client.create_topic(name, 3, KEEP)
    line = ("copy", name, name, "--from-kafka", kafka, "--app-id", name, "--version", "1")
    status, printed, _ = job(*line, "--dry-run")
    assert (status, printed.split(" of ")[0]) == (0, "Dry run: 60 records")
    assert in_rollway(client, name) == []
    assert job(*line, "--json")[0] == 0
    assert in_rollway(client, name) == by_partition(records)
    status, printed, _ = job(*line)
    assert (status, printed) == (0, f"Version 1 of {name} is copied already; nothing was written.\n")
    assert in_rollway(client, name) == by_partition(records)

    # And back: everything but the timestamps.
    make_topic(kafka, f"{name}-2")
    status, printed, error = job("copy", name, f"{name}-2", "--to-kafka", kafka, "--json")
    assert status == 0, error
    assert json.loads(printed)["rows"] == 60
    assert [each[:4] for each in in_kafka(kafka, f"{name}-2")] == [each[:4] for each in by_partition(records)]


def test_an_empty_topic_is_copied(job: Job, kafka: str, client: RollwayClient) -> None:
    client.create_topic("nothing", 2, KEEP)
    make_topic(kafka, "nothing", 2)
    for line in (("--to-kafka", kafka), ("--from-kafka", kafka)):
        status, printed, error = job("copy", "nothing", "nothing", *line, "--json")
        assert (status, error) == (0, "")
        assert json.loads(printed)["rows"] == 0
    assert in_kafka(kafka, "nothing") == in_rollway(client, "nothing") == []


def test_ranges_of_kafka_are_copied(job: Job, kafka: str, client: RollwayClient, name: str) -> None:
    """By offsets; and by time as the records' own timestamps have it, though they do not rise."""
    minutes = [0, 30, 10, 50, 20, 40]
    records: list[Found] = [(0, None, b"%d" % each, [], BEGIN_MS + each * MINUTE_MS) for each in minutes]
    make_topic(kafka, name, 1)
    fill(kafka, name, records)
    for number, (start, end, expected) in enumerate(
        [
            ('{"0": 1}', '{"0": 3}', [30, 10]),
            ("2013-07-04T00:20:00Z", "2013-07-04T00:45:00Z", [30, 20, 40]),
            ("2013-07-04T00:40:00Z", "latest", [50, 40]),
            ("2033-07-04", "latest", []),
        ]
    ):
        topic = f"{name}-{number}"
        client.create_topic(topic, 1, KEEP)
        assert job("copy", name, topic, "--from-kafka", kafka, "--from", start, "--until", end)[::2] == (0, "")
        assert [int(each[2] or b"") for each in in_rollway(client, topic)] == expected


def test_records_that_kafka_has_deleted_are_an_error_unless_left_out(
    job: Job, kafka: str, client: RollwayClient, name: str
) -> None:
    make_topic(kafka, name, 1)
    fill(kafka, name, [(0, None, b"%d" % number, [], BEGIN_MS) for number in range(10)])
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.delete_records({TopicPartition(name, 0): 4})
    admin.close()
    client.create_topic(name, 1, KEEP)
    line = ("copy", name, name, "--from-kafka", kafka, "--from", '{"0": 1}')
    status, _, error = job(*line)
    assert status == 1
    assert error.startswith(f"rollway-spark: {name} (Kafka at {kafka}): ")
    assert in_rollway(client, name) == []
    assert job(*line, "--on-data-loss", "skip")[0] == 0
    assert [each[2] for each in in_rollway(client, name)] == [b"%d" % number for number in range(4, 10)]


def test_what_cannot_be_copied_is_one_sentence(job: Job, kafka: str, client: RollwayClient, name: str) -> None:
    make_topic(kafka, name)
    fill(kafka, name, [record(number) for number in range(3)])
    client.create_topic(name, 3, KEEP)
    nobody = "127.0.0.1:9"
    here, none = f"{name} (Kafka at {kafka}): ", f"{name} (Kafka at {nobody}): "
    for line, sentence in (
        ((name, name, "--from-kafka", kafka, "--from", '{"0": 1}'), f"{here}Kafka needs an offset of every partition."),
        ((name, name, "--from-kafka", kafka, "--from", '{"0":9,"1":9,"2":9}'), f"{here}The resolved start offset 9"),
        ((name, "nowhere", "--from-kafka", kafka), "nowhere does not exist; create it with the number of partitions"),
        (("absent", name, "--from-kafka", kafka), f"absent (Kafka at {kafka}): Kafka has no such topic."),
        (("absent", name, "--from-kafka", kafka, "--dry-run"), f"absent (Kafka at {kafka}): Kafka has no such topic."),
        ((name, name, "--from-kafka", nobody), none),
    ):
        status, _, error = job("copy", *line, *(GIVING_UP_SOON if nobody in line else ()))
        assert status == 1
        assert error.startswith(f"rollway-spark: {sentence}")
        assert "An error occurred while calling" not in error
