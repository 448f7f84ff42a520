"""The check of a whole data directory: checkpoints, metadata, and every partition in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from log_model.names import PartitionName
from storage.disk.file_names import (
    CLEAN_SHUTDOWN_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    is_deleted_directory_name,
    is_set_aside_directory_name,
    parse_partition_directory_name,
)
from storage.disk.file_system import FileSystem, LocalFileSystem
from storage.log_inspection.findings import Finding, Findings, Severity, read_sound
from storage.log_inspection.journal_state import (
    JOURNAL,
    JOURNAL_ID,
    JOURNAL_VERSION,
    OWN_DIRECTORY,
    journal_id_of,
    name_pieces,
)
from storage.log_inspection.partition_check import TOPIC_ID_LENGTH, DirectoryState, PartitionCheck, PartitionReport
from storage.log_inspection.stored_files import (
    StoredFileError,
    read_checkpoint,
    read_log_starts,
    read_next_producer_id,
    read_properties,
    read_small_file,
    read_truncation_gaps,
)
from storage.log_inspection.stored_journal import JournalPiece, StoredJournal
from storage.log_inspection.topic_files import TopicFile, check_topic_files, read_topic_files

LOGS_DIRECTORY = "logs"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
TRUNCATION_GAPS = ("truncation-gaps", "truncation-gaps-copy")
_CHECKED_FILES: dict[str, Callable[[bytes], object]] = {
    "log-start-offsets": read_log_starts,
    "producer-ids": read_next_producer_id,
}

_KNOWN_DIRECTORIES = {"remote-log-index-cache", "lost+found"}


@dataclass(frozen=True, slots=True)
class DirectoryReport:
    """The extent and the findings of a verification."""

    directory: Path
    is_live: bool
    is_clean: bool
    """Whether the last server to write here stopped cleanly; meaningless while one runs."""
    partitions: tuple[PartitionReport, ...]
    findings: tuple[Finding, ...]

    @property
    def is_damaged(self) -> bool:
        return any(finding.severity is Severity.DAMAGE for finding in self.findings)


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """The locations of Kafka's tree and of the topics' files."""

    logs: Path
    topics: Path
    only: PartitionName | None = None
    """Set if the given path was a single partition's directory."""


def locate(file_system: FileSystem, path: Path) -> LogDirectory:
    """Find the logs in a Rollway data directory, a Kafka log directory, or a partition's directory.

    Raises:
        StoredFileError: ``path`` is none of them.
    """
    if not file_system.is_directory(path):
        raise StoredFileError(f"{path} is not a directory")
    nested = path / LOGS_DIRECTORY
    if file_system.is_directory(nested):
        return LogDirectory(nested, path / OWN_DIRECTORY)
    names = file_system.list_directory(path)
    name = parse_partition_directory_name(path.resolve().name)
    if name is not None and any(entry.endswith(LOG_SUFFIX) for entry in names):
        return LogDirectory(path.resolve().parent, path.resolve().parent.parent / OWN_DIRECTORY, name)
    if META_PROPERTIES in names or any(parse_partition_directory_name(entry) for entry in names):
        return LogDirectory(path, path.resolve().parent / OWN_DIRECTORY)
    raise StoredFileError(f"{path} has neither logs nor partitions in it")


def verify_directory(
    path: Path,
    *,
    file_system: FileSystem | None = None,
    topic: str | None = None,
    decodes: bool = True,
    on_batch: Callable[[int, int], None] = lambda _size_bytes, _record_count: None,
) -> DirectoryReport:
    """Check every file under a data directory, a Kafka log directory or one partition's directory.

    Only reads, and takes no lock: a server may run. Its concurrent writes are not damage, see
    ``DirectoryReport.is_live``.

    Args:
        path: the directory.
        file_system: the disk; the machine's own by default.
        topic: check only this topic's partitions.
        decodes: also decompress and decode every record, not only headers and CRCs.
        on_batch: called with the size and the record count of each batch after its check.

    Raises:
        StoredFileError: ``path`` holds no logs.
        OSError: the disk refused to be read.
    """
    disk = file_system or LocalFileSystem()
    place = locate(disk, path)
    check = _DirectoryCheck(disk, place, decodes=decodes, on_batch=on_batch)
    try:
        partitions = check.run(topic)
    finally:
        check.close()
    return DirectoryReport(
        directory=path,
        is_live=check.is_live,
        is_clean=check.is_clean,
        partitions=partitions,
        findings=check.findings.all(),
    )


class _DirectoryCheck:
    def __init__(
        self, file_system: FileSystem, place: LogDirectory, *, decodes: bool, on_batch: Callable[[int, int], None]
    ) -> None:
        self._file_system = file_system
        self._place = place
        self._decodes = decodes
        self._on_batch = on_batch
        self.findings = Findings()
        self.is_live = file_system.is_locked(place.logs / LOCK)
        self.is_clean = not self.is_live and file_system.exists(place.logs / CLEAN_SHUTDOWN_MARKER)
        self._journal: StoredJournal | None = None

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def run(self, topic: str | None) -> tuple[PartitionReport, ...]:
        journal_id = self._check_meta_properties()
        # Checkpoints first: a log only grows, so an offset read before the log cannot be beyond its end.
        recovery_points = self._read_checkpoint(RECOVERY_POINT_CHECKPOINT)
        log_starts = self._read_checkpoint(LOG_START_OFFSET_CHECKPOINT)
        high_watermarks = self._read_checkpoint(HIGH_WATERMARK_CHECKPOINT)
        self._read_checkpoint(CLEANER_CHECKPOINT)
        self._check_own_files()
        topics = read_topic_files(self._file_system, self._place.topics, self.findings)
        pieces = {} if journal_id is None else self._read_journal(journal_id, topics)
        state = DirectoryState(
            is_live=self.is_live,
            is_clean=self.is_clean,
            recovery_points=self._raise_recovery_points(recovery_points, pieces),
            log_start_offsets=log_starts,
            truncation_gaps=self._read_gaps(),
            compacted_topics={name: noted.is_compacted for name, noted in topics.items()},
            journal_pieces=pieces,
            is_journal_damaged=self._journal is not None and self._journal.is_damaged,
            decodes=self._decodes,
            on_batch=self._on_batch,
        )
        reports = self._check_partitions(state, topic)
        for file_name, offsets in (
            (RECOVERY_POINT_CHECKPOINT, recovery_points),
            (LOG_START_OFFSET_CHECKPOINT, log_starts),
            (HIGH_WATERMARK_CHECKPOINT, high_watermarks),
        ):
            self._check_offsets(file_name, offsets, reports)
        self._check_topic_ids(reports)
        if self._place.only is None:
            wanted = [noted for noted in topics.values() if topic in (None, noted.name)]
            check_topic_files(wanted, reports, self._place.logs, self.findings, is_live=self.is_live)
        return tuple(reports.values())

    def _check_meta_properties(self) -> str | None:
        """Check the file; return the journal that the next start replays, if there is one and no server runs."""
        path = self._place.logs / META_PROPERTIES
        try:
            values = read_properties(read_small_file(self._file_system, path))
        except FileNotFoundError:
            self.findings.note(path, "the file is missing, so the directory belongs to no known node")
            return None
        except StoredFileError as error:
            self.findings.damage(path, str(error), error.position)
            return None
        if values.get("version") not in ("0", "1", JOURNAL_VERSION):
            self.findings.damage(path, f"the version should be 0 or 1, not {values.get('version')!r}")
        if not (values.get("node.id") or values.get("broker.id", "")).isdecimal():
            self.findings.damage(path, "it names no node")
        journal_id = journal_id_of(values)
        if values.get("version") == JOURNAL_VERSION and len(journal_id or "") != TOPIC_ID_LENGTH:
            self.findings.damage(path, f"{JOURNAL_ID} should name a journal, and is {journal_id!r}")
            return None
        return None if self.is_live else journal_id

    def _read_journal(
        self, journal_id: str, topics: Mapping[str, TopicFile]
    ) -> Mapping[PartitionName, Sequence[JournalPiece]]:
        # A marker of a clean stop beside it is of another program.
        self.is_clean = False
        self._journal = StoredJournal(self._file_system, self._place.topics / JOURNAL, journal_id, self.findings)
        self._journal.read()
        return name_pieces(self._journal, topics.values())

    def _raise_recovery_points(
        self,
        recovery_points: Mapping[tuple[str, int], int],
        pieces: Mapping[PartitionName, Sequence[JournalPiece]],
    ) -> Mapping[tuple[str, int], int]:
        """Return the recovery points as the next start has them: all that it writes again was durable."""
        if self._journal is None or self._journal.is_damaged:
            return recovery_points
        ends = {name: found[-1].end_offset for name, found in pieces.items()}
        return {**recovery_points, **{name: max(end, recovery_points.get(name, 0)) for name, end in ends.items()}}

    def _read_checkpoint(self, file_name: str) -> dict[tuple[str, int], int]:
        return read_sound(self._file_system, self._place.logs / file_name, read_checkpoint, self.findings) or {}

    def _read_gaps(self) -> Mapping[tuple[str, int], Collection[tuple[int, int]]]:
        """Read the gaps of the first whole copy; the second may differ after a crash between the two writes."""
        paths = [self._place.topics / file_name for file_name in TRUNCATION_GAPS]
        copies = [read_sound(self._file_system, path, read_truncation_gaps, self.findings) for path in paths]
        return next((copy for copy in copies if copy is not None), {})

    def _check_own_files(self) -> None:
        for file_name, read in _CHECKED_FILES.items():
            read_sound(self._file_system, self._place.topics / file_name, read, self.findings)

    def _check_partitions(self, state: DirectoryState, topic: str | None) -> dict[PartitionName, PartitionReport]:
        reports: dict[PartitionName, PartitionReport] = {}
        for directory_name in self._file_system.list_directory(self._place.logs):
            directory = self._place.logs / directory_name
            if not self._file_system.is_directory(directory):
                continue
            name = parse_partition_directory_name(directory_name)
            if is_deleted_directory_name(directory_name):
                self.findings.note(directory, "the partition was deleted, and its files wait to be unlinked")
            elif is_set_aside_directory_name(directory_name):
                self.findings.note(
                    directory, "a Kafka broker has set this copy of a partition aside; it was not checked"
                )
            elif name is None:
                if directory_name not in _KNOWN_DIRECTORIES:
                    self.findings.note(directory, "this is not a partition, and a Kafka broker would refuse to start")
            elif (topic is None or name.topic == topic) and self._place.only in (None, name):
                try:
                    reports[name] = PartitionCheck(self._file_system, directory, name, state, self.findings).run()
                except FileNotFoundError:
                    if not self.is_live:
                        raise
                    self.findings.note(directory, "the partition was deleted while it was read")
        return dict(sorted(reports.items()))

    def _check_offsets(
        self,
        file_name: str,
        offsets: Mapping[tuple[str, int], int],
        reports: Mapping[PartitionName, PartitionReport],
    ) -> None:
        path = self._place.logs / file_name
        for name, offset in offsets.items():
            report = reports.get(PartitionName(*name))
            if report is None or offset <= report.log_end_offset:
                continue
            message = (
                f"{name[0]}-{name[1]} is said to have offset {offset}, but its log ends at {report.log_end_offset}"
            )
            # A power cut may leave the high watermark ahead if a topic does not wait for fsync; a start clamps it.
            if file_name == HIGH_WATERMARK_CHECKPOINT and not self.is_clean:
                self.findings.note(path, message)
            else:
                self.findings.damage(path, message)

    def _check_topic_ids(self, reports: Mapping[PartitionName, PartitionReport]) -> None:
        first: dict[str, PartitionReport] = {}
        for name, report in reports.items():
            if report.topic_id is None:
                continue
            known = first.setdefault(name.topic, report)
            if known.topic_id != report.topic_id:
                self.findings.damage(
                    report.directory, f"its topic id {report.topic_id} differs from {known.topic_id} of {known.name}"
                )
