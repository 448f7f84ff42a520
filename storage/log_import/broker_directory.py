"""The log directory of a broker that does not run: which topics it has, and whether they are whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from storage.disk.file_names import LOCK, META_PROPERTIES, parse_partition_directory_name
from storage.disk.file_system import FileSystem
from storage.disk.topic_metadata import read_partition_metadata
from storage.log_import.cluster_metadata import CLUSTER_METADATA, ClusterTopic, read_cluster_topics

KAFKAS_OWN_TOPICS = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Groups and transactions of a cluster. Rollway has no groups, and its own log of transactions."""

_NAMES_SHOWN_MAX = 5


class BrokerDirectoryError(Exception):
    """The directory cannot be imported. The message is a sentence that names the directory or the topic."""


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """A topic of a broker's directory, all of whose partitions are there.

    ``settings`` are the topic's own in the cluster, as text.
    """

    name: str
    topic_id: str
    partition_count: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BrokerDirectory:
    """The topics of a broker's directory. Without the cluster's metadata their settings are unknown."""

    path: Path
    topics: tuple[BrokerTopic, ...]
    has_metadata: bool


def find_topics(file_system: FileSystem, path: Path, only: Collection[str] = ()) -> BrokerDirectory:
    """Look which topics a broker's log directory has: all, or those named in ``only``.

    Raises:
        BrokerDirectoryError: it is no such directory, a broker uses it, it lacks a named topic, or a topic lacks a
            partition or the id that its partitions agree on.
        CorruptionError: the cluster's metadata log, or a partition's id, is damaged.
        OSError: the disk refused.
    """
    if not file_system.is_directory(path) or META_PROPERTIES not in file_system.list_directory(path):
        raise BrokerDirectoryError(f"{path} is not the log directory of a broker: it has no {META_PROPERTIES}.")
    if file_system.exists(path / LOCK) and file_system.is_locked(path / LOCK):
        raise BrokerDirectoryError(f"A broker uses {path}. Stop it first.")
    cluster = read_cluster_topics(file_system, path / CLUSTER_METADATA)
    partitions: dict[str, set[int]] = defaultdict(set)
    for entry in file_system.list_directory(path):
        name = parse_partition_directory_name(entry)
        if name is not None and name.topic not in KAFKAS_OWN_TOPICS and file_system.is_directory(path / entry):
            partitions[name.topic].add(name.partition)
    missing = sorted(set(only) - partitions.keys())
    if missing:
        raise BrokerDirectoryError(f"{path} has no topic {', '.join(missing[:_NAMES_SHOWN_MAX])}.")
    topics = tuple(
        _whole_topic(file_system, path, topic, numbers, None if cluster is None else cluster.get(topic))
        for topic, numbers in sorted(partitions.items())
        if not only or topic in only
    )
    return BrokerDirectory(path, topics, has_metadata=cluster is not None)


def _whole_topic(
    file_system: FileSystem, path: Path, topic: str, numbers: set[int], known: ClusterTopic | None
) -> BrokerTopic:
    count = max(numbers) + 1
    if known is not None and known.partitions:
        count = max(count, max(known.partitions) + 1)
    absent = sorted(set(range(count)) - numbers)
    if absent:
        shown = ", ".join(map(str, absent[:_NAMES_SHOWN_MAX]))
        raise BrokerDirectoryError(
            f"{path} lacks partitions of {topic} ({shown}). Bring the directories of all its partitions together first."
        )
    ids = {read_partition_metadata(file_system, path / f"{topic}-{number}") for number in numbers}
    topic_id = ids.pop()
    if ids or topic_id is None:
        raise BrokerDirectoryError(f"The partitions of {topic} in {path} do not agree on the topic's id.")
    if known is not None and known.topic_id != topic_id:
        raise BrokerDirectoryError(
            f"The partitions of {topic} in {path} belong to a topic of this name that the cluster has deleted."
        )
    return BrokerTopic(topic, topic_id, count, {} if known is None else known.settings)
