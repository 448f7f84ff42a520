"""Java exceptions, as py4j hands them over, become one sentence that says what is wrong."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError

from rollway.spark.jobs.expressions import first_sentence
from rollway.spark.jobs.topics import TopicAddress, kafka_error

UNREADABLE = """: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] \
Encountered error while reading file file:///in/b.avro. SQLSTATE: KD001
\tat org.apache.spark.Here.there(Here.scala:1)"""


class JavaError(Py4JJavaError):
    """As py4j raises it, without a Java behind it."""

    def __init__(self, trace: str) -> None:
        Exception.__init__(self)
        self._trace = trace

    def __str__(self) -> str:
        return f"An error occurred while calling o92.save.\n{self._trace}\n"


@pytest.mark.parametrize(
    ("trace", "sentence"),
    [
        (
            ": java.lang.IllegalStateException: The start lies behind the end.\n1. Check it.",
            "The start lies behind the end.",
        ),
        (
            f"{UNREADABLE}\nCaused by: java.io.IOException: Not an Avro data file",
            "file:///in/b.avro cannot be read: Not an Avro data file.",
        ),
        (
            f"{UNREADABLE}\nCaused by: java.lang.NullPointerException\n\tat x.Y",
            "file:///in/b.avro cannot be read: NullPointerException.",
        ),
        (
            ": java.util.concurrent.ExecutionException: x.Y: z\nCaused by: org.apache.kafka.E$F: no node left",
            "no node left.",
        ),
        (": org.apache.kafka.common.errors.InvalidTopicException: a/b", "InvalidTopicException: a/b."),
        ("nothing of Java", "An error occurred while calling o92.save."),
    ],
)
def test_the_innermost_cause_is_what_is_told(trace: str, sentence: str) -> None:
    assert first_sentence(JavaError(trace)) == sentence


@pytest.mark.parametrize(
    ("trace", "sentence"),
    [
        (
            ": org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server ...",
            "Kafka has no such topic.",
        ),
        (
            ": a.B: Partitions specified for Kafka start offsets don't match",
            "Kafka needs an offset of every partition.",
        ),
        (": a.B: Timed out waiting for a node assignment.", "Timed out waiting for a node assignment."),
    ],
)
def test_what_kafka_says_is_told_with_its_address(trace: str, sentence: str) -> None:
    address = TopicAddress(topic="orders", url="host:9092", format="kafka")
    assert str(kafka_error(address, JavaError(trace))) == f"orders (Kafka at host:9092): {sentence}"
