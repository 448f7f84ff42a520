"""The journal that the next start replays, as ``meta.properties`` names it, by the partitions of its pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from log_model.names import PartitionName
from storage.disk.file_names import (
    LOCK,
    LOG_SUFFIX,
    META_PROPERTIES,
    OffsetFileName,
    parse_offset_file_name,
    parse_partition_directory_name,
)
from storage.disk.file_system import FileSystem
from storage.log_inspection.findings import Findings
from storage.log_inspection.replayed_segment import count_missing_bytes, fit_pieces
from storage.log_inspection.stored_files import StoredFileError, read_properties, read_small_file
from storage.log_inspection.stored_journal import JournalPiece, StoredJournal, by_segment
from storage.log_inspection.topic_files import TopicFile, read_topic_files

OWN_DIRECTORY = "rollway"
JOURNAL = "journal"
JOURNAL_VERSION = "1000"
JOURNAL_ID = "rollway.journal.id"


def journal_id_of(properties: Mapping[str, str]) -> str | None:
    """Return the journal that the next start replays, according to ``meta.properties``."""
    return properties.get(JOURNAL_ID) if properties.get("version") == JOURNAL_VERSION else None


def name_pieces(journal: StoredJournal, topics: Iterable[TopicFile]) -> dict[PartitionName, Sequence[JournalPiece]]:
    """Return the pieces of the partitions that exist. A start passes by those of deleted topics."""
    known = {topic.topic_id: topic for topic in topics if not topic.is_deleting}
    return {
        PartitionName(known[topic_id].name, partition): pieces
        for (topic_id, partition), pieces in journal.pieces.items()
        if topic_id in known and 0 <= partition < known[topic_id].partition_count
    }


class MissingBytes(NamedTuple):
    """The number of bytes of one segment that only the journal has.

    ``is_journal_damaged``: the next start refuses the journal, and the number may be too small. Always false for a
    segment that others follow: such a segment was fsynced by itself.
    """

    byte_count: int
    is_journal_damaged: bool


class MissingBytesSearch:
    """Finds what segments lack of the journals of their directories. Close it at the end."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._journals: dict[Path, StoredJournal] = {}
        self._pieces: dict[Path, Mapping[PartitionName, Sequence[JournalPiece]]] = {}

    def close(self) -> None:
        for journal in self._journals.values():
            journal.close()

    def find(self, path: Path) -> MissingBytes:
        """Return what the segment ``path`` lacks. Nothing while a service runs, whose journal changes.

        Raises:
            OSError: the disk refused to be read.
        """
        none = MissingBytes(0, is_journal_damaged=False)
        file_name = parse_offset_file_name(path.name)
        directory = path.resolve().parent
        name = parse_partition_directory_name(directory.name)
        if file_name is None or file_name.suffix != LOG_SUFFIX or file_name.state or name is None:
            return none
        if directory.parent not in self._pieces:
            self._pieces[directory.parent] = self._read(directory.parent)
        journal = self._journals.get(directory.parent)
        if journal is None:
            return none
        pieces = by_segment(self._pieces[directory.parent].get(name, ())).get(file_name.offset, ())
        is_damaged = journal.is_damaged and not self._is_sealed(directory, file_name)
        with contextlib.closing(self._file_system.open(path, writable=False)) as segment:
            if journal.is_damaged:
                return MissingBytes(count_missing_bytes(segment, pieces), is_damaged)
            return MissingBytes(fit_pieces(segment, file_name.offset, pieces, Findings()).missing_bytes, is_damaged)

    def _is_sealed(self, directory: Path, file_name: OffsetFileName) -> bool:
        others = map(parse_offset_file_name, self._file_system.list_directory(directory))
        return any(
            other is not None and other.suffix == LOG_SUFFIX and not other.state and other.offset > file_name.offset
            for other in others
        )

    def _read(self, logs: Path) -> Mapping[PartitionName, Sequence[JournalPiece]]:
        try:
            journal_id = journal_id_of(read_properties(read_small_file(self._file_system, logs / META_PROPERTIES)))
        except (FileNotFoundError, StoredFileError):
            return {}
        if journal_id is None or self._file_system.is_locked(logs / LOCK):
            return {}
        own = logs.parent / OWN_DIRECTORY
        journal = StoredJournal(self._file_system, own / JOURNAL, journal_id, Findings())
        self._journals[logs] = journal
        journal.read()
        return name_pieces(journal, read_topic_files(self._file_system, own, Findings()).values())
