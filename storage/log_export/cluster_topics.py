"""The topics of the cluster: the script that creates them, and what the cluster says of them then."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote

from log_model.config import LONG_MAX, TIMESTAMP_AFTER_MAX_MS_DEFAULT, TopicConfig
from storage.disk.topic_metadata import is_topic_id
from storage.log_export.source_directory import StoredTopic

OWN_SETTINGS = frozenset({"flush.policy", "retention.policy"})
"""Settings that Kafka does not have."""

DELETING_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")
"""Settings that let a broker delete records. They are always written, as the broker may have defaults of its own."""

SEGMENT_BYTES_MIN = 1 << 20
"""Kafka 4 refuses a smaller ``segment.bytes``."""

_DIFFERENCE_MAX = "message.timestamp.difference.max.ms"
_BEFORE_MAX = "message.timestamp.before.max.ms"
_AFTER_MAX = "message.timestamp.after.max.ms"
_MIN_INSYNC = "min.insync.replicas"

_TOPIC_LINE = re.compile(
    r"Topic:\s*(?P<name>\S+)\s+TopicId:\s*(?P<id>\S+)\s+PartitionCount:\s*(?P<count>[0-9]{1,9})\s+"
    r"ReplicationFactor:\s*[0-9]+\s+Configs:\s*(?P<settings>.*)"
)
_PARTITION_LINE = re.compile(
    r"Topic:\s*(?P<name>\S+)\s+Partition:\s*(?P<partition>[0-9]{1,9})\s.*?\bReplicas:\s*(?P<replicas>[0-9,]*)(\s|$)"
)


class TopicListError(ValueError):
    """The text is no output of ``kafka-topics.sh --describe``."""


@dataclass(slots=True)
class ClusterTopic:
    """One topic as ``kafka-topics.sh --describe`` shows it. ``settings`` are those that are not Kafka's defaults."""

    name: str
    topic_id: str
    partition_count: int
    settings: Mapping[str, str]
    replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The brokers of each partition."""

    def value_of(self, setting: str) -> str:
        """Return the value of a setting that Kafka has: the cluster's, or Kafka's default."""
        return self.settings.get(setting) or setting_text(TopicConfig.DEFAULTS.value_of(setting))


def parse_topics(text: str) -> dict[str, ClusterTopic]:
    """Parse the output of ``kafka-topics.sh --describe`` for any number of topics.

    Raises:
        TopicListError: it describes no topic, one twice, or one without a valid id. The message names the line.
    """
    topics: dict[str, ClusterTopic] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        found = _TOPIC_LINE.search(line)
        if found is not None:
            topic = ClusterTopic(found["name"], found["id"], int(found["count"]), _settings(found["settings"]))
            if not is_topic_id(topic.topic_id):
                raise TopicListError(f"line {number}: {topic.topic_id!r} is no topic id")
            if topic.name in topics:
                raise TopicListError(f"line {number}: topic {topic.name} is described a second time")
            topics[topic.name] = topic
            continue
        found = _PARTITION_LINE.search(line)
        if found is not None and found["name"] in topics:
            replicas = tuple(int(replica) for replica in found["replicas"].split(",") if replica)
            topics[found["name"]].replicas[int(found["partition"])] = replicas
    if not topics:
        raise TopicListError("it describes no topic; save the output of kafka-topics.sh --describe")
    return topics


def _settings(text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    name = ""
    for part in text.strip().split(","):
        # A value may have commas: cleanup.policy=delete,compact.
        key, separator, value = part.partition("=")
        if separator:
            name = key.strip()
            settings[name] = value.strip()
        elif name:
            settings[name] += f",{part.strip()}"
    return settings


def setting_text(value: object) -> str:
    """Return a setting's value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def cluster_settings(topic: StoredTopic) -> dict[str, str]:
    """Return the settings with which the topic is created in the cluster.

    These are all that the topic or the service sets, all that differ from Kafka's defaults, and those that let a broker
    delete records. Settings that Kafka does not have are left out. ``message.timestamp.difference.max.ms``, which
    Kafka 4 does not have, becomes the two limits that it stands for. ``segment.bytes`` is at least 1 MiB, or Kafka 4
    refuses it.
    """
    config = topic.config
    settings: dict[str, str] = {}
    for name in TopicConfig.options():
        if name in OWN_SETTINGS or name == _DIFFERENCE_MAX:
            continue
        value = config.value_of(name)
        is_wanted = name in topic.named or name in DELETING_SETTINGS or value != TopicConfig.DEFAULTS.value_of(name)
        if is_wanted:
            settings[name] = setting_text(value)
    if config.timestamp_before_limit_ms != LONG_MAX:
        settings[_BEFORE_MAX] = str(config.timestamp_before_limit_ms)
    if config.timestamp_after_limit_ms != TIMESTAMP_AFTER_MAX_MS_DEFAULT:
        settings[_AFTER_MAX] = str(config.timestamp_after_limit_ms)
    if config.segment_bytes < SEGMENT_BYTES_MIN:
        settings["segment.bytes"] = str(SEGMENT_BYTES_MIN)
    if config.min_insync_replicas > 1:
        # With one copy, the cluster would refuse every write.
        del settings[_MIN_INSYNC]
    return settings


def left_settings(topic: StoredTopic) -> list[str]:
    """Return sentences about the settings that are not carried over as they are."""
    config = topic.config
    sentences = []
    if config.flush_policy != TopicConfig.DEFAULTS.flush_policy:
        sentences.append(f"flush.policy={config.flush_policy} stays behind: Kafka has no other policy.")
    if config.segment_bytes < SEGMENT_BYTES_MIN:
        sentences.append(
            f"segment.bytes={config.segment_bytes} becomes {SEGMENT_BYTES_MIN}: Kafka 4 refuses less than 1 MiB."
        )
    if config.min_insync_replicas > 1:
        command = alter_command(topic.name, _MIN_INSYNC, config.min_insync_replicas)
        sentences.append(
            f"min.insync.replicas={config.min_insync_replicas} is left out, as one copy would then refuse all writes. "
            f"Set it when there are as many copies: {command}"
        )
    return sentences


def alter_command(topic: str, setting: str, value: object) -> str:
    """Return the command that sets one setting of a topic in the cluster."""
    text = setting_text(value)
    # Kafka's tool splits its argument at commas, but for those in brackets.
    shown = f"[{text}]" if "," in text else text
    return (
        f'kafka-configs.sh --bootstrap-server "$BOOTSTRAP" --alter --entity-type topics --entity-name {topic} '
        f"--add-config {setting}={shown}"
    )


def create_command(topic: StoredTopic, broker: int) -> str:
    """Return the command that creates a topic in the cluster, with one copy of each partition on ``broker``."""
    assignment = ",".join([str(broker)] * topic.partition_count)
    parts = [
        f'kafka-topics.sh --bootstrap-server "$BOOTSTRAP" --create --if-not-exists --topic {topic.name}',
        f"--replica-assignment {assignment}",
        *(f"--config {name}={value}" for name, value in cluster_settings(topic).items()),
    ]
    return " \\\n    ".join(parts)


def creation_script(topics: Sequence[StoredTopic], broker: int, described_file: str) -> str:
    """Return a shell script that creates the topics in a cluster, and writes their description to ``described_file``.

    It may be run again. A topic that exists stays as it is; the export compares its settings.
    """
    commented = [[*(f"# {line}" for line in left_settings(topic)), create_command(topic, broker)] for topic in topics]
    blocks = [_SCRIPT_HEAD, *("\n".join(lines) for lines in commented)]
    provisional, final = quote(f"{described_file}.tmp"), quote(described_file)
    blocks.append(
        f'kafka-topics.sh --bootstrap-server "$BOOTSTRAP" --describe > {provisional}\nmv {provisional} {final}'
    )
    return "\n\n".join(blocks) + "\n"


_SCRIPT_HEAD = """\
#!/bin/sh
# Creates the topics of a Rollway data directory in a Kafka cluster, and describes them: sh SCRIPT broker:9092
# Kafka's bin directory must be on the PATH.
set -eu
BOOTSTRAP="${1:?name a broker: host:port}\""""
