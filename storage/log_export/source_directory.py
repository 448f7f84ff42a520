"""The data directory that is exported: locked, recovered if it was not stopped cleanly, and its topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from log_model.clock import Clock
from log_model.config import TopicConfig
from log_model.errors import CorruptionError
from log_model.names import INTERNAL_TOPICS, PartitionName
from storage.disk.ballast import Ballast
from storage.disk.dir_lock import DirectoryLock
from storage.disk.directory_checkpoints import DirectoryCheckpoints
from storage.disk.file_names import CLEAN_SHUTDOWN_MARKER, partition_directory_name
from storage.disk.file_system import FileSystem
from storage.disk.topic_metadata import read_meta_properties
from storage.log_export.stored_partition import DamagedLogError, StoredPartition, find_partition
from storage.manager.log_manager import BALLAST, LOG_START_OFFSETS, LOGS_DIRECTORY, OWN_DIRECTORY, LogManager
from storage.manager.topic_registry import TopicRecord, TopicRegistry, TopicState


class NoDataDirectoryError(CorruptionError):
    """The path leads to no data directory of a service."""


class UncleanStopError(CorruptionError):
    """The directory could not be brought into the state that a clean stop leaves."""


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic of the directory. ``named`` are the settings that the topic or the service sets, by Kafka's names."""

    name: str
    topic_id: str
    partition_count: int
    config: TopicConfig
    named: frozenset[str]

    def partition_names(self) -> list[PartitionName]:
        return [PartitionName(self.name, number) for number in range(self.partition_count)]


class SourceDirectory:
    """A data directory, locked against services until the end of a ``with`` block.

    Attributes:
        directory_id: what tells this directory from all others, also after it was moved.
        is_clean: whether all records are in the segments. Without that nothing but ``topics`` can be relied on.
        was_recovered: whether it had to be recovered first.
    """

    def __init__(
        self, data_directory: Path, file_system: FileSystem, lock: DirectoryLock, topic_defaults: Mapping[str, object]
    ) -> None:
        """Use ``open``."""
        self.path = data_directory
        self.logs = data_directory / LOGS_DIRECTORY
        self.was_recovered = False
        self._own = data_directory / OWN_DIRECTORY
        self._file_system = file_system
        self._lock = lock
        self._topic_defaults = topic_defaults
        properties = read_meta_properties(file_system, self.logs)
        if properties is None:
            raise NoDataDirectoryError(f"{self.logs} has no meta.properties: no service has used it")
        self.directory_id = properties.directory_id or f"{properties.cluster_id}/{properties.node_id}"
        self.is_clean = properties.journal_id is None and file_system.exists(self.logs / CLEAN_SHUTDOWN_MARKER)
        ballast = Ballast(file_system, self._own / BALLAST, 0)
        self._checkpoints = DirectoryCheckpoints(file_system, self.logs, self._own / LOG_START_OFFSETS, ballast)
        self._checkpoints.read()

    @classmethod
    def open(
        cls,
        data_directory: Path,
        file_system: FileSystem,
        *,
        clock: Clock,
        topic_defaults: Mapping[str, object],
        may_recover: bool,
    ) -> Self:
        """Lock the directory. With ``may_recover``, recover it as a start would, unless it was stopped cleanly.

        Raises:
            NoDataDirectoryError: it is none.
            DirectoryLockedError: a service uses it.
            UncleanStopError: it was recovered, but could not be stopped cleanly.
            CorruptionError: a file that cannot be rebuilt is damaged; the message names it.
            OSError: the disk refused.
        """
        for directory in (data_directory / LOGS_DIRECTORY, data_directory / OWN_DIRECTORY):
            if not file_system.is_directory(directory):
                raise NoDataDirectoryError(f"{data_directory} is no data directory: it has no {directory.name}/")
        source = cls._locked(data_directory, file_system, topic_defaults)
        if source.is_clean or not may_recover:
            return source
        source.close()
        manager = LogManager.open(data_directory, file_system=file_system, clock=clock, topic_defaults=topic_defaults)
        if not manager.close():
            raise UncleanStopError(f"{data_directory} was recovered, but not stopped cleanly; its log says why")
        source = cls._locked(data_directory, file_system, topic_defaults)
        if not source.is_clean:
            source.close()
            raise UncleanStopError(f"{data_directory} was used by a service meanwhile")
        source.was_recovered = True
        return source

    @classmethod
    def _locked(cls, data_directory: Path, file_system: FileSystem, topic_defaults: Mapping[str, object]) -> Self:
        lock = DirectoryLock.acquire(file_system, data_directory / LOGS_DIRECTORY)
        try:
            return cls(data_directory, file_system, lock, topic_defaults)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def topics(self) -> Sequence[StoredTopic]:
        """Return all topics by name, except those of the service itself and those that are being deleted.

        Raises:
            CorruptionError: a topic's file is damaged.
        """
        defaults = TopicConfig.parse(self._topic_defaults)
        return [
            _stored_topic(record, defaults, self._topic_defaults)
            for record in TopicRegistry(self._file_system, self._own).load()
            if record.state is TopicState.READY and record.name not in INTERNAL_TOPICS
        ]

    def partition(self, topic: StoredTopic, name: PartitionName) -> StoredPartition:
        """Return the files of one partition of a topic.

        Raises:
            DamagedLogError: there is no segment, or the first is missing.
            OSError: the disk refused.
        """
        directory = self.logs / partition_directory_name(name)
        log_start_offset = self._checkpoints.log_starts.get(name, 0)
        noted_gaps = frozenset((int(gap.start), int(gap.end)) for gap in self._checkpoints.gaps.of(name))
        found = find_partition(
            self._file_system,
            directory,
            name,
            log_start_offset,
            may_have_gaps=topic.config.compacts,
            noted_gaps=noted_gaps,
        )
        first_base = found.segments[0].base_offset
        is_certain = self._checkpoints.is_log_start_certain(name)
        if is_certain and first_base > log_start_offset and (log_start_offset, first_base) not in noted_gaps:
            raise DamagedLogError(
                f"{directory}: the log starts at {log_start_offset}, but its first segment begins at {first_base}"
            )
        return found


def _stored_topic(record: TopicRecord, defaults: TopicConfig, topic_defaults: Mapping[str, object]) -> StoredTopic:
    config = TopicConfig.parse(record.overrides, defaults)
    named = frozenset(record.overrides) | frozenset(topic_defaults)
    return StoredTopic(record.name, record.topic_id, record.partition_count, config, named)
