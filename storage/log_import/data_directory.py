"""A new data directory from a copy of a broker's partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from log_model.config import TopicConfig
from log_model.errors import InvalidConfigError
from storage.disk.file_names import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TEMPORARY_SUFFIX,
)
from storage.disk.file_system import FileSystem
from storage.disk.topic_metadata import MetaProperties, new_topic_id, write_meta_properties
from storage.log_import.broker_directory import BrokerDirectory, BrokerDirectoryError, BrokerTopic
from storage.manager.log_manager import LOGS_DIRECTORY, OWN_DIRECTORY
from storage.manager.topic_registry import TopicRecord, TopicRegistry, TopicState

_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
_LEFT_BEHIND = (DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)
_COPY_BYTES = 1 << 20
_KEPT_FOR_EVER = {"retention.ms": -1, "retention.bytes": -1}
_NEEDS_COPIES = "min.insync.replicas"
_NODE_ID = 1


@dataclass(frozen=True, slots=True)
class ImportedTopic:
    """A topic with the settings that it gets, and the reasons why others of its settings are left out."""

    topic: BrokerTopic
    settings: Mapping[str, object]
    left_out: Mapping[str, str]


def plan_topics(source: BrokerDirectory, settings: Mapping[str, Mapping[str, object]]) -> list[ImportedTopic]:
    """Return the topics with the settings that they get in Rollway.

    ``settings`` by topic come before those of the cluster. A topic with no retention of its own keeps its records for
    ever, since the limits that its broker had by default are not in its directory.

    Raises:
        BrokerDirectoryError: ``settings`` name a topic that is not there, or a setting that Rollway refuses.
    """
    strangers = sorted(settings.keys() - {topic.name for topic in source.topics})
    if strangers:
        raise BrokerDirectoryError(f"There are settings for topics that are not imported: {', '.join(strangers[:5])}.")
    return [_planned(topic, settings.get(topic.name, {})) for topic in source.topics]


def _planned(topic: BrokerTopic, given: Mapping[str, object]) -> ImportedTopic:
    try:
        TopicConfig.parse(given)
    except InvalidConfigError as error:
        raise BrokerDirectoryError(f"Settings of {topic.name}: {error}.") from error
    kept: dict[str, object] = dict(_KEPT_FOR_EVER)
    left_out = {}
    for name, value in topic.settings.items():
        if name == _NEEDS_COPIES:
            left_out[name] = "Rollway has one copy of each partition"
            continue
        try:
            TopicConfig.parse({name: value})
        except InvalidConfigError as error:
            left_out[name] = str(error)
        else:
            kept[name] = value
    return ImportedTopic(topic, {**kept, **given}, left_out)


def import_topics(
    file_system: FileSystem,
    source: BrokerDirectory,
    target: Path,
    topics: list[ImportedTopic],
    on_bytes: Callable[[int], None] = lambda _size_bytes: None,
) -> None:
    """Make the data directory ``target`` with copies of the topics' partitions. Durable: on return.

    The topics' files come last: a service refuses to start on a directory whose import was interrupted.
    ``on_bytes`` is called with the size of each piece that was copied.

    Raises:
        BrokerDirectoryError: ``target`` exists and is not empty.
        OSError: the disk refused. Remove ``target`` before the next attempt.
    """
    if file_system.exists(target) and (not file_system.is_directory(target) or file_system.list_directory(target)):
        raise BrokerDirectoryError(f"{target} exists and is not empty. Name a new directory.")
    logs, own = target / LOGS_DIRECTORY, target / OWN_DIRECTORY
    for directory in (*(each for each in reversed(target.parents) if not file_system.exists(each)), target, logs, own):
        if not file_system.is_directory(directory):
            file_system.make_directory(directory)
            file_system.sync_directory(directory.parent)
    for topic in topics:
        for number in range(topic.topic.partition_count):
            name = f"{topic.topic.name}-{number}"
            _copy_directory(file_system, source.path / name, logs / name, on_bytes)
    for name in (*_CHECKPOINTS, CLEAN_SHUTDOWN_MARKER):
        if file_system.exists(source.path / name):
            _copy_file(file_system, source.path / name, logs / name, on_bytes)
    write_meta_properties(file_system, logs, MetaProperties(new_topic_id(), _NODE_ID, new_topic_id()))
    registry = TopicRegistry(file_system, own)
    for topic in topics:
        record = TopicRecord(
            topic.topic.name, topic.topic.topic_id, topic.topic.partition_count, topic.settings, TopicState.READY
        )
        registry.save(record)
    file_system.sync_directory(logs)


def _copy_directory(file_system: FileSystem, source: Path, target: Path, on_bytes: Callable[[int], None]) -> None:
    file_system.make_directory(target)
    for name in file_system.list_directory(source):
        if not name.endswith(_LEFT_BEHIND) and not file_system.is_directory(source / name):
            _copy_file(file_system, source / name, target / name, on_bytes)
    file_system.sync_directory(target)


def _copy_file(file_system: FileSystem, source: Path, target: Path, on_bytes: Callable[[int], None]) -> None:
    with (
        contextlib.closing(file_system.open(source, writable=False)) as old,
        contextlib.closing(file_system.open(target, create=True)) as new,
    ):
        size, position = old.size(), 0
        while position < size:
            piece = old.read(position, min(_COPY_BYTES, size - position))
            new.write(position, [piece])
            position += len(piece)
            on_bytes(len(piece))
        new.sync()
