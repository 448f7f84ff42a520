"""The service's own topic files, compared with the partitions in the log directory."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from log_model.names import PartitionName
from storage.disk.file_system import FileSystem
from storage.log_inspection.findings import Findings
from storage.log_inspection.partition_check import PartitionReport
from storage.log_inspection.stored_files import read_small_file

READY = "ready"
DELETING = "deleting"


class TopicFile(NamedTuple):
    """One topic as stored in ``<data>/rollway/<topic id>.json``."""

    path: Path
    name: str
    topic_id: str
    partition_count: int
    is_ready: bool
    """Whether it is neither being created nor being deleted."""
    is_compacted: bool
    is_deleting: bool


def read_topic_files(file_system: FileSystem, directory: Path, findings: Findings) -> dict[str, TopicFile]:
    """Return the topics by name; none if the directory is missing, as beside a Kafka broker's logs."""
    topics: dict[str, TopicFile] = {}
    if not file_system.is_directory(directory):
        return topics
    for file_name in file_system.list_directory(directory):
        path = directory / file_name
        if not file_name.endswith(".json"):
            continue
        try:
            topic = _parse(path, json.loads(read_small_file(file_system, path)))
        except FileNotFoundError:
            continue  # the topic was deleted meanwhile
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            findings.damage(path, "it does not describe a topic")
            continue
        if topic.name in topics:
            findings.damage(path, f"it describes topic {topic.name}, and so does {topics[topic.name].path.name}")
        topics[topic.name] = topic
    return topics


def _parse(path: Path, content: Mapping[str, object]) -> TopicFile:
    name, topic_id, count, config = (content[key] for key in ("name", "topic_id", "partitions", "config"))
    if not isinstance(name, str) or not isinstance(topic_id, str) or type(count) is not int:
        raise TypeError("a field has the wrong type")
    if not isinstance(config, dict):
        raise TypeError("config is no object")
    is_compacted = "compact" in str(config.get("cleanup.policy", ""))
    return TopicFile(path, name, topic_id, count, content["state"] == READY, is_compacted, content["state"] == DELETING)


def check_topic_files(
    topics: Collection[TopicFile],
    partitions: Mapping[PartitionName, PartitionReport],
    logs_directory: Path,
    findings: Findings,
    *,
    is_live: bool,
) -> None:
    """Report missing partitions of topics, and ids that differ."""
    for topic in topics:
        for number in range(topic.partition_count):
            report = partitions.get(PartitionName(topic.name, number))
            if report is None:
                if topic.is_ready and not is_live:
                    findings.damage(
                        logs_directory / f"{topic.name}-{number}",
                        f"the partition is missing, though {topic.path} has it",
                    )
            elif report.topic_id not in (None, topic.topic_id) and topic.is_ready:
                findings.damage(
                    report.directory, f"its topic id {report.topic_id} differs from {topic.topic_id} in {topic.path}"
                )
