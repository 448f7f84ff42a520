"""The journal at a start, and the mark that says whose entries the next start must replay."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from log_model.errors import CorruptionError
from log_model.names import PartitionName
from storage.disk.directory_checkpoints import DirectoryCheckpoints
from storage.disk.file_names import CLEAN_SHUTDOWN_MARKER, META_PROPERTIES, partition_directory_name
from storage.disk.file_system import FileSystem
from storage.disk.topic_metadata import mark_journal
from storage.journal.journal import Journal
from storage.journal.journal_files import JournalFiles, JournalLimits
from storage.journal.replay import JournalReplay
from storage.manager.topic_registry import TopicRecord, TopicState

_logger = logging.getLogger(__name__)


class JournalMark:
    """The journal's id in ``meta.properties``: brokers, and versions of the service without a journal, refuse the file.

    Thread: one at a time.
    """

    def __init__(self, file_system: FileSystem, logs_directory: Path, checkpoints: DirectoryCheckpoints) -> None:
        self._file_system = file_system
        self._logs_directory = logs_directory
        self._ballast = checkpoints.ballast

    def write(self, journal_id: str | None) -> None:
        """Note whose entries a start must replay, or that there are none. Durable: on return."""
        self._ballast.run(lambda: mark_journal(self._file_system, self._logs_directory, journal_id))


class JournalOpening:
    """Replays the journal of an earlier run, and makes the one of this run."""

    def __init__(
        self, file_system: FileSystem, logs_directory: Path, directory: Path, checkpoints: DirectoryCheckpoints
    ) -> None:
        self.mark = JournalMark(file_system, logs_directory, checkpoints)
        self._file_system = file_system
        self._logs_directory = logs_directory
        self._directory = directory
        self._checkpoints = checkpoints

    def replay(self, journal_id: str, records: Iterable[TopicRecord]) -> None:
        """Write all that the journal made durable to the segments, durably, and then forget the journal.

        Raises:
            CorruptionError: entries are missing, or do not fit the segments.
            OSError: the disk refused.
        """
        known = {record.topic_id: record for record in records if record.state is not TopicState.DELETING}

        def find_directory(topic_id: str, partition: int) -> Path | None:
            record = known.get(topic_id)
            if record is None or partition >= record.partition_count:
                return None
            directory = self._logs_directory / partition_directory_name(PartitionName(record.name, partition))
            return directory if self._file_system.is_directory(directory) else None

        replay = JournalReplay(self._file_system, self._directory, journal_id)
        for (topic_id, partition), end in replay.run(find_directory).items():
            # The segments have it now, so a loss of it would be damage and no tail of a crash.
            self._checkpoints.raise_recovery_point(PartitionName(known[topic_id].name, partition), end)
        _logger.info("%d bytes of the journal were written to their segments again", replay.replayed_bytes)
        self.mark.write(None)

    def refuse_unknown_entries(self) -> None:
        """Refuse a directory whose ``meta.properties`` is lost if its journal may have what the segments lack.

        Raises:
            CorruptionError: the last stop was not clean, and there are files of a journal.
        """
        if self._file_system.exists(self._logs_directory / CLEAN_SHUTDOWN_MARKER):
            return
        if self._file_system.is_directory(self._directory) and self._file_system.list_directory(self._directory):
            raise CorruptionError(
                f"{self._logs_directory / META_PROPERTIES} is missing, and the service was not stopped cleanly. It "
                f"names the journal in {self._directory}, which may have records that the segments lack: restore the "
                "file, or give those records up: make the folder empty, and start again"
            )

    def make(self, limits: JournalLimits) -> Journal:
        """Return the journal of this run. It touches the disk at its first flush."""
        return Journal(JournalFiles(self._file_system, self._directory, limits), self.mark.write)
