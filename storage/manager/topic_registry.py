"""The list of topics: one small file for each, outside the log directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from log_model.config import TopicConfig
from log_model.errors import CorruptionError, InvalidConfigError, TopicExistsError
from log_model.names import INTERNAL_TOPICS, PartitionName, topic_name_problem
from log_model.producers import KEYED_PRODUCER_ID_MIN
from storage.disk.checked_json import dump_checked, parse_checked
from storage.disk.file_names import PARTITION_COUNT_MAX, TEMPORARY_SUFFIX
from storage.disk.file_system import FileSystem
from storage.disk.topic_metadata import is_topic_id
from storage.disk.whole_files import NotDurableError, read_file, write_file_atomically
from storage.manager.partition_logs import PartitionLogs

_SUFFIX = ".json"
_VERSION = 1
_MEMBERS = frozenset({"version", "name", "topic_id", "partitions", "ready_partitions", "config", "state"})
_FILE_BYTES_MAX = 1024 * 1024


class TopicState(StrEnum):
    """The state of a topic; the next start finishes a creation or deletion."""

    CREATING = "creating"
    READY = "ready"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """The content of a topic's file. ``ready_count`` counts the partitions that surely exist, ``None``: all."""

    name: str
    topic_id: str
    partition_count: int
    overrides: Mapping[str, object]
    state: TopicState
    ready_count: int | None = None

    def partition_names(self) -> list[PartitionName]:
        """Return the names of the partitions, in order."""
        return [PartitionName(self.name, number) for number in range(self.partition_count)]

    def was_ready(self, name: PartitionName) -> bool:
        """Return whether this partition's directory must exist. A partition that is being added may have none."""
        return self.ready_count is None or name.partition < self.ready_count

    def with_state(self, state: TopicState) -> TopicRecord:
        return replace(self, state=state, ready_count=None)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions. ``overrides`` are its own settings, in Kafka's names."""

    name: str
    topic_id: str
    partitions: PartitionLogs
    config: TopicConfig
    overrides: Mapping[str, object]
    service_defaults: Mapping[str, object]

    @property
    def partition_count(self) -> int:
        """The number of the topic's partitions."""
        return len(self.partitions)

    def online_partitions(self) -> list[int]:
        """Return the numbers of the partitions that take appends, in order."""
        return self.partitions.online()

    @property
    def is_internal(self) -> bool:
        """Whether the topic belongs to the service itself."""
        return self.name in INTERNAL_TOPICS

    def config_source(self, name: str) -> str:
        """Return the source of the setting's value: ``topic``, ``service`` or ``default``."""
        if name in self.overrides:
            return "topic"
        return "service" if name in self.service_defaults else "default"

    def refuse_difference(self, partition_count: int, config: TopicConfig) -> None:
        """Refuse to take this topic for one with another number of partitions or other settings.

        Raises:
            TopicExistsError: they differ; it names each setting that does.
        """
        if len(self.partitions) != partition_count:
            raise TopicExistsError(
                f"topic {self.name} exists with {len(self.partitions)} partitions, not {partition_count}",
                field="partitions",
            )
        if self.config != config:
            values = [(name, self.config.value_of(name), config.value_of(name)) for name in TopicConfig.options()]
            different = [f"{name} {has}, not {asked}" for name, has, asked in values if has != asked]
            raise TopicExistsError(f"topic {self.name} exists with {'; '.join(different)}", field="config")


class TopicRegistry:
    """The files ``<data>/rollway/<topic id>.json``: name, id, partitions, settings, state.

    Thread: any; one at a time for each topic.
    """

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        self.directory = directory
        self._file_system = file_system
        self.last_written: dict[str, TopicRecord] = {}
        """By topic id, the last record that ``save`` wrote to the topic's file, durably or not."""

    def path_of(self, record: TopicRecord) -> Path:
        return self.directory / f"{record.topic_id}{_SUFFIX}"

    def load(self) -> list[TopicRecord]:
        """Read every topic, sorted by name.

        Raises:
            CorruptionError: a file is damaged, or two topics have one name.
        """
        records: dict[str, TopicRecord] = {}
        for file_name in self._file_system.list_directory(self.directory):
            path = self.directory / file_name
            if file_name.endswith(TEMPORARY_SUFFIX):
                self._file_system.unlink(path)
            elif file_name.endswith(_SUFFIX):
                record = self._read(path)
                if record.name in records:
                    raise CorruptionError(f"{path}: there is a second topic named {record.name}")
                records[record.name] = record
        return [records[name] for name in sorted(records)]

    def has(self, record: TopicRecord) -> bool:
        """Return whether the topic's file exists."""
        return self._file_system.exists(self.path_of(record))

    def save(self, record: TopicRecord) -> None:
        """Write the topic's file atomically. Durable: on return.

        Raises:
            NotDurableError: the file has the new content, and the next start may find it or not.
            OSError: the file is as before.
        """
        content = {
            "version": _VERSION,
            "name": record.name,
            "topic_id": record.topic_id,
            "partitions": record.partition_count,
            "ready_partitions": record.ready_count,
            "config": dict(record.overrides),
            "state": record.state.value,
        }
        try:
            write_file_atomically(self._file_system, self.path_of(record), dump_checked(content))
        except NotDurableError:
            self.last_written[record.topic_id] = record
            raise
        self.last_written[record.topic_id] = record

    def remove(self, record: TopicRecord) -> None:
        """Remove the topic's file. Durable: on return."""
        path = self.path_of(record)
        if self._file_system.exists(path):
            self._file_system.unlink(path)
        self._file_system.sync_directory(self.directory)
        self.last_written.pop(record.topic_id, None)

    def _read(self, path: Path) -> TopicRecord:
        try:
            content = parse_checked(read_file(self._file_system, path, _FILE_BYTES_MAX), _MEMBERS)
            record = TopicRecord(
                content["name"],
                content["topic_id"],
                content["partitions"],
                content["config"],
                TopicState(content["state"]),
                content["ready_partitions"],
            )
            _check(record, content["version"])
            if path.name != self.path_of(record).name:
                raise ValueError(f"it is the file of topic id {record.topic_id}")
            TopicConfig.parse(record.overrides)
        except (ValueError, KeyError, TypeError, RecursionError, InvalidConfigError) as error:
            raise CorruptionError(
                f"{path} is damaged: {error}. Restore it from a backup, or write it by hand "
                "(docs/how-to/repair.md, 'A topic's file')"
            ) from error
        return record


def _check(record: TopicRecord, version: object) -> None:
    if version != _VERSION:
        raise ValueError(f"version {version!r} is not {_VERSION}")
    if not isinstance(record.name, str) or topic_name_problem(record.name) is not None:
        raise ValueError(f"{record.name!r} is no topic name")
    if not isinstance(record.topic_id, str) or not is_topic_id(record.topic_id):
        raise ValueError(f"{record.topic_id!r} is no topic id")
    for count in (record.partition_count, record.ready_count):
        if count is not None and (type(count) is not int or not 1 <= count <= PARTITION_COUNT_MAX):
            raise ValueError(f"{count!r} is no number of partitions")
    if not isinstance(record.overrides, dict):
        raise ValueError("config is no object")


def known_producer_id_max(topics: Mapping[str, Topic], below: int) -> int:
    """Return the largest producer id under ``below`` in the logs, except keyed producers' ids; -1 for none."""
    below = min(below, KEYED_PRODUCER_ID_MIN)
    largest = -1
    for topic in list(topics.values()):
        opened = topic.partitions.opened()
        for number, state in topic.partitions.resting():
            if state.largest_producer_id < below:
                largest = max(largest, state.largest_producer_id)
            else:
                # Only the largest id of a partition that rests is known.
                opened.append(topic.partitions[number])
        largest = max([largest, *(log.producers.largest_id(below=below) for log in opened)])
    return largest
