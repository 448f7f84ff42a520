"""The directories of topics' partitions: found, protected from reuse, renamed, removed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from log_model.clock import Clock
from log_model.errors import CorruptionError, TopicExistsError
from log_model.names import PartitionName
from storage.disk.file_names import (
    deleted_directory_name,
    is_deleted_directory_name,
    parse_partition_directory_name,
    partition_directory_name,
)
from storage.disk.file_system import FileSystem
from storage.log.deleted_files import DeletedDirectories, remove_directory


class TopicDirectories:
    """The directories in ``<data>/logs``, by partition.

    Thread: any; one at a time for each partition.
    """

    def __init__(self, file_system: FileSystem, clock: Clock, logs_directory: Path) -> None:
        self._file_system = file_system
        self._logs_directory = logs_directory
        self._deleted = DeletedDirectories(file_system, clock)

    def path_of(self, name: PartitionName) -> Path:
        """Return the directory of the partition."""
        return self._logs_directory / partition_directory_name(name)

    def refuse_existing(self, names: Iterable[PartitionName]) -> None:
        """Refuse to make partitions whose directory exists: it may hold data, and is never reused.

        Raises:
            TopicExistsError: there is such a directory.
        """
        for name in names:
            directory = self.path_of(name)
            if self._file_system.exists(directory):
                raise TopicExistsError(f"{directory} exists and belongs to no topic; move it away first")

    def remove(self, names: Iterable[PartitionName]) -> None:
        """Remove partitions without records. Durable: on return. A repeated call is harmless.

        Raises:
            OSError: the disk refused.
        """
        for name in names:
            directory = self.path_of(name)
            if self._file_system.is_directory(directory):
                remove_directory(self._file_system, directory)
        self._file_system.sync_directory(self._logs_directory)

    def give_up(
        self, names: Iterable[PartitionName], delay_ms: int, moved: Callable[[PartitionName, Path], None]
    ) -> None:
        """Rename the directories of deleted partitions; they are unlinked after ``delay_ms``. Durable: on return.

        ``moved`` is called with each new path. A repeated call is harmless.

        Raises:
            OSError: the disk refused; some may be renamed.
        """
        for name in names:
            directory = self.path_of(name)
            if self._file_system.is_directory(directory):
                doomed = self._logs_directory / deleted_directory_name(name)
                self._file_system.rename(directory, doomed)
                moved(name, doomed)
                self._deleted.add(doomed, delay_ms)
        self._file_system.sync_directory(self._logs_directory)

    def find(self, known: Collection[str], topic_files: Path) -> set[str]:
        """Return which of the ``known`` names of directories exist; find what earlier runs left for ``remove_due``.

        Raises:
            CorruptionError: there is a partition of no known topic.
        """
        listed = self._file_system.list_directory(self._logs_directory)
        for directory_name in listed:
            # The names come first: there may be 100,000.
            if directory_name in known:
                continue
            path = self._logs_directory / directory_name
            if not self._file_system.is_directory(path):
                continue
            if is_deleted_directory_name(directory_name):
                self._deleted.add(path, 0)
            elif parse_partition_directory_name(directory_name) is not None:
                # Creating a topic of that name would make its first segment again.
                raise CorruptionError(
                    f"{path} is a partition of no known topic. Restore the topic's file in {topic_files}, "
                    "or move the directory away. If a Kafka broker wrote it, run rollway log import on the broker's "
                    "log directory"
                )
        return {name for name in listed if name in known}

    def remove_due(self) -> int:
        """Remove renamed directories whose delay has passed; return their number.

        Raises:
            OSError: the disk refused some; these wait for the next call.
        """
        return self._deleted.remove_due()
