"""The script that creates topics, and the list of topics that the cluster gives back."""

from __future__ import annotations

import pytest

from log_model.config import TopicConfig
from storage.log_export.cluster_topics import (
    TopicListError,
    alter_command,
    cluster_settings,
    creation_script,
    left_settings,
    parse_topics,
)
from storage.log_export.source_directory import StoredTopic

ID = "vbX5CGHpTq2OyL3cZhW1Uw"
OTHER_ID = "Jx3Tj0LzQ8ChRkfWBvMxGA"

DESCRIBED = (
    f"Topic: orders\tTopicId: {ID}\tPartitionCount: 2\tReplicationFactor: 1\t"
    "Configs: cleanup.policy=compact,delete,retention.ms=-1,segment.bytes=1048576\n"
    "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
    "\tTopic: orders\tPartition: 1\tLeader: 2\tReplicas: 2,1\tIsr: 2\tElr: \tLastKnownElr: \n"
    f"Topic: a.b\tTopicId: {OTHER_ID}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: \n"
    "\tTopic: a.b\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n"
)


def stored(name: str = "orders", partitions: int = 2, **settings: object) -> StoredTopic:
    overrides = {setting.replace("_", "."): value for setting, value in settings.items()}
    return StoredTopic(name, ID, partitions, TopicConfig.parse(overrides), frozenset(overrides))


def test_description_of_several_topics() -> None:
    topics = parse_topics(DESCRIBED)
    assert sorted(topics) == ["a.b", "orders"]
    orders = topics["orders"]
    assert (orders.topic_id, orders.partition_count) == (ID, 2)
    assert orders.settings == {"cleanup.policy": "compact,delete", "retention.ms": "-1", "segment.bytes": "1048576"}
    assert orders.replicas == {0: (1,), 1: (2, 1)}
    assert topics["a.b"].settings == {}
    assert topics["a.b"].value_of("retention.ms") == "604800000"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "describes no topic"),
        ("orders\n", "describes no topic"),
        (DESCRIBED + DESCRIBED, "line 6: topic orders is described a second time"),
        (DESCRIBED.replace(ID, "AAAAAAAAAAAAAAAAAAAAAA"), "line 1: 'AAAAAAAAAAAAAAAAAAAAAA' is no topic id"),
    ],
)
def test_what_is_no_description(text: str, message: str) -> None:
    with pytest.raises(TopicListError, match=message):
        parse_topics(text)


def test_settings_that_delete_records_are_always_written() -> None:
    assert cluster_settings(stored()) == {
        "cleanup.policy": "delete",
        "retention.ms": "604800000",
        "retention.bytes": "-1",
    }


def test_settings_of_the_topic_are_written_even_with_kafkas_default() -> None:
    settings = cluster_settings(stored(max_message_bytes=1_048_588, preallocate=True))
    assert settings["max.message.bytes"] == "1048588"
    assert settings["preallocate"] == "true"


def test_settings_that_kafka_does_not_have_are_left_out() -> None:
    topic = stored(flush_policy="interval", min_insync_replicas=2, segment_bytes=5_000)
    settings = cluster_settings(topic)
    assert "flush.policy" not in settings
    assert "min.insync.replicas" not in settings
    assert settings["segment.bytes"] == "1048576"
    assert len(left_settings(topic)) == 3


def test_the_older_timestamp_limit_becomes_two() -> None:
    settings = cluster_settings(stored(message_timestamp_difference_max_ms=5))
    assert settings["message.timestamp.before.max.ms"] == "5"
    assert settings["message.timestamp.after.max.ms"] == "5"
    assert "message.timestamp.difference.max.ms" not in settings


def test_script_creates_each_topic_on_one_broker_and_describes_all() -> None:
    script = creation_script([stored(), stored("a.b", 1, min_insync_replicas=2)], 7, "the topics.txt")
    assert "--topic orders \\\n    --replica-assignment 7,7 \\\n    --config cleanup.policy=delete" in script
    assert "--topic a.b \\\n    --replica-assignment 7 \\\n" in script
    assert "# min.insync.replicas=2 is left out" in script
    assert script.endswith("--describe > 'the topics.txt.tmp'\nmv 'the topics.txt.tmp' 'the topics.txt'\n")


def test_a_value_with_a_comma_stands_in_brackets() -> None:
    assert alter_command("orders", "cleanup.policy", "delete,compact").endswith("cleanup.policy=[delete,compact]")
