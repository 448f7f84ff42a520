"""The check of one partition's directory: file names, metadata, segments in order, producer snapshots."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from log_model.names import PartitionName
from storage.disk.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_DIGITS,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    TRANSACTION_INDEX_CHECKPOINT,
    offset_file_name,
    parse_offset_file_name,
)
from storage.disk.file_system import FileSystem
from storage.log_inspection.findings import Findings, read_sound
from storage.log_inspection.replayed_segment import count_missing_bytes, fit_pieces
from storage.log_inspection.segment_check import PartitionWalk, SegmentCheck, SegmentPlace
from storage.log_inspection.stored_files import (
    ProducerEntry,
    StoredFileError,
    is_zero,
    read_epochs,
    read_index_checkpoint,
    read_producer_snapshot,
    read_properties,
    read_small_file,
)
from storage.log_inspection.stored_journal import JournalPiece, by_segment
from storage.log_inspection.transaction_check import TransactionWalk

TOPIC_ID_LENGTH = 22
_NO_TOPIC_ID = "A" * TOPIC_ID_LENGTH


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The results of reading one partition. Offsets are ``None`` if it has no batch."""

    name: PartitionName
    directory: Path
    topic_id: str | None
    segment_count: int
    size_bytes: int
    batch_count: int
    record_count: int
    index_entry_count: int
    first_offset: int | None
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """The facts about all partitions that the directory around them holds."""

    is_live: bool
    is_clean: bool
    recovery_points: Mapping[tuple[str, int], int]
    log_start_offsets: Mapping[tuple[str, int], int]
    truncation_gaps: Mapping[tuple[str, int], Collection[tuple[int, int]]]
    """Offsets ``[start, end)`` that a truncation inside a batch removed, by partition; a segment begins at each end."""
    compacted_topics: Mapping[str, bool]
    """Whether a topic is compacted, for the topics whose configuration is known."""
    journal_pieces: Mapping[PartitionName, Sequence[JournalPiece]]
    """The pieces that the next start writes to the segments of each partition."""
    is_journal_damaged: bool
    """Whether the next start refuses the journal, and so writes none of the pieces."""
    decodes: bool
    on_batch: Callable[[int, int], None]


class PartitionCheck:
    """Checks one partition directory."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: Path,
        name: PartitionName,
        state: DirectoryState,
        findings: Findings,
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._name = name
        self._state = state
        self._findings = findings
        self._bases: list[int] = []
        self._snapshots: list[int] = []
        self._pieces: dict[int, Sequence[JournalPiece]] = {}

    def run(self) -> PartitionReport:
        """Check everything in the directory.

        Raises:
            FileNotFoundError: the directory is gone (the topic was deleted meanwhile).
        """
        self._sort_files()
        self._fit_journal()
        topic_id = self._check_metadata()
        epochs = self._read_epochs()
        index_checkpoint = self._directory / TRANSACTION_INDEX_CHECKPOINT
        read_sound(self._file_system, index_checkpoint, read_index_checkpoint, self._findings)
        entries = self._read_producer_snapshots()
        walk = PartitionWalk(
            findings=self._findings,
            is_compacted=self._state.compacted_topics.get(self._name.topic),
            epochs=epochs,
            producer_entries=entries,
            decodes=self._state.decodes,
            next_offset=self._bases[0] if self._bases else 0,
            transactions=TransactionWalk(self._opened_before()),
            on_batch=self._state.on_batch,
        )
        size_bytes = self._check_segments(walk)
        self._note_all(walk.missing_indexes, "missing; an index is rebuilt from its log")
        self._check_ends(walk)
        return PartitionReport(
            name=self._name,
            directory=self._directory,
            topic_id=topic_id,
            segment_count=len(self._bases),
            size_bytes=size_bytes,
            batch_count=walk.batch_count,
            record_count=walk.record_count,
            index_entry_count=walk.index_entry_count,
            first_offset=walk.first_offset,
            log_end_offset=walk.next_offset,
        )

    def _sort_files(self) -> None:
        orphans: list[tuple[int, str]] = []
        set_aside: list[Path] = []
        for file_name in self._file_system.list_directory(self._directory):
            path = self._directory / file_name
            if file_name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT, TRANSACTION_INDEX_CHECKPOINT):
                continue
            parsed = parse_offset_file_name(file_name)
            if parsed is None:
                if file_name.endswith(TEMPORARY_SUFFIX):
                    self._findings.note(path, "an unfinished write is left here; the next start removes it")
                else:
                    self._findings.note(path, "this file does not belong to a partition")
            elif parsed.state:
                set_aside.append(path)
            elif file_name.index(".") != OFFSET_DIGITS:
                self._findings.damage(path, f"a file of the log is named by {OFFSET_DIGITS} digits")
            elif parsed.suffix == LOG_SUFFIX:
                self._bases.append(parsed.offset)
            elif parsed.suffix == PRODUCER_SNAPSHOT_SUFFIX:
                self._snapshots.append(parsed.offset)
            else:
                orphans.append((parsed.offset, file_name))
        self._note_all(set_aside, "marked as deleted or unfinished, and not part of the log")
        self._bases.sort()
        self._snapshots.sort()
        marked = {parsed.offset for parsed in map(parse_offset_file_name, (path.name for path in set_aside)) if parsed}
        for base_offset, file_name in orphans:
            if base_offset not in self._bases:
                self._report_orphan(self._directory / file_name, base_offset, is_marked=base_offset in marked)

    def _fit_journal(self) -> None:
        """Find the pieces that the next start writes to the segments, and note how many bytes the segments lack."""
        missing_bytes = 0
        pieces = self._state.journal_pieces.get(self._name, ())
        for base_offset, found in sorted(by_segment(pieces).items()):
            path = self._directory / offset_file_name(base_offset, LOG_SUFFIX)
            if base_offset not in self._bases:
                # Retention deletes the first segments. The journal still has their pieces for a while.
                if not self._state.is_journal_damaged and (not self._bases or base_offset > self._bases[-1]):
                    self._findings.damage(path, "the journal has bytes of this segment, but its log is missing")
                continue
            with contextlib.closing(self._file_system.open(path, writable=False)) as segment:
                if self._state.is_journal_damaged:
                    missing_bytes += count_missing_bytes(segment, found)
                    continue
                fit = fit_pieces(segment, base_offset, found, self._findings)
            self._pieces[base_offset] = fit.pieces
            missing_bytes += fit.missing_bytes
        if missing_bytes and self._state.is_journal_damaged:
            what = f"the whole entries of the damaged journal have {missing_bytes} bytes that the segments lack"
            self._findings.note(self._directory, what)
        elif missing_bytes:
            what = f"the journal has {missing_bytes} bytes that the segments lack; the next start writes them again"
            self._findings.note(self._directory, what)

    def _report_orphan(self, path: Path, base_offset: int, *, is_marked: bool) -> None:
        """Report an index without a log: damage if a segment was lost, a note if one was being made or deleted."""
        lowest = max(self._state.log_start_offsets.get(self._name, 0), *(base + 1 for base in self._bases), 0)
        if base_offset >= lowest and not is_marked and not self._state.is_live:
            with contextlib.closing(self._file_system.open(path, writable=False)) as file:
                is_empty = is_zero(file, 0, file.size())
            if not is_empty:
                self._findings.damage(path, "the index has entries, but its log is missing")
                return
        self._findings.note(path, "the index has no log; the next start removes it")

    def _note_all(self, paths: Sequence[Path], what: str) -> None:
        """Add one note for many harmless files."""
        if len(paths) == 1:
            self._findings.note(paths[0], f"it is {what}")
        elif paths:
            self._findings.note(self._directory, f"{len(paths)} files are {what}, {paths[0].name} the first")

    def _check_metadata(self) -> str | None:
        path = self._directory / PARTITION_METADATA
        try:
            values = read_properties(read_small_file(self._file_system, path), ": ")
        except FileNotFoundError:
            self._findings.note(path, "the file is missing, so the topic's id is not known")
            return None
        except StoredFileError as error:
            self._findings.damage(path, str(error), error.position)
            return None
        topic_id = values.get("topic_id", "")
        if values.get("version") != "0":
            self._findings.damage(path, f"the version should be 0, not {values.get('version')!r}")
        if len(topic_id) != TOPIC_ID_LENGTH or topic_id == _NO_TOPIC_ID:
            self._findings.damage(path, f"{topic_id!r} is not a topic id")
            return None
        return topic_id

    def _read_epochs(self) -> list[tuple[int, int]]:
        path = self._directory / LEADER_EPOCH_CHECKPOINT
        return read_sound(self._file_system, path, read_epochs, self._findings) or []

    def _read_producer_snapshots(self) -> dict[int, list[tuple[Path, ProducerEntry]]]:
        entries: dict[int, list[tuple[Path, ProducerEntry]]] = {}
        for offset in self._snapshots:
            path = self._directory / f"{offset:0{OFFSET_DIGITS}d}{PRODUCER_SNAPSHOT_SUFFIX}"
            try:
                producers = read_producer_snapshot(read_small_file(self._file_system, path))
            except FileNotFoundError:
                continue  # retention took it meanwhile
            except StoredFileError as error:
                self._findings.damage(path, str(error), error.position)
                continue
            if len({entry.producer_id for entry in producers}) != len(producers):
                self._findings.damage(path, "a producer is listed twice")
            for entry in producers:
                if entry.last_offset >= offset:
                    self._findings.damage(
                        path,
                        f"producer {entry.producer_id} is listed with offset {entry.last_offset}, not below {offset}",
                    )
                elif entry.last_offset >= 0:
                    entries.setdefault(entry.last_offset, []).append((path, entry))
        return entries

    def _opened_before(self) -> dict[int, int] | None:
        """Return the transactions that were open where the log begins, by producer; ``None`` if they are unknown."""
        base = self._bases[0] if self._bases else 0
        if self._state.compacted_topics.get(self._name.topic):
            return None
        try:
            path = self._directory / f"{base:0{OFFSET_DIGITS}d}{PRODUCER_SNAPSHOT_SUFFIX}"
            producers = read_producer_snapshot(read_small_file(self._file_system, path))
        except (FileNotFoundError, StoredFileError):
            return {} if base == 0 else None
        return {
            entry.producer_id: entry.current_transaction_first_offset
            for entry in producers
            if entry.current_transaction_first_offset >= 0
        }

    def _check_segments(self, walk: PartitionWalk) -> int:
        size_bytes = 0
        recovery_point = self._state.recovery_points.get(self._name, 0)
        for number, base_offset in enumerate(self._bases):
            following = self._bases[number + 1] if number + 1 < len(self._bases) else None
            is_above_recovery_point = following is None or following > recovery_point
            place = SegmentPlace(
                directory=self._directory,
                base_offset=base_offset,
                is_active=following is None,
                is_live=self._state.is_live,
                is_recovered_at_start=is_above_recovery_point and not self._state.is_clean and not self._state.is_live,
                pieces=self._pieces.get(base_offset, ()),
            )
            log_path = place.path(LOG_SUFFIX)
            if base_offset < walk.next_offset:
                self._findings.damage(
                    log_path,
                    f"the segment begins at offset {base_offset}, but the one before it ends at {walk.next_offset}",
                )
            elif (walk.next_offset, base_offset) in self._state.truncation_gaps.get(self._name, ()):
                walk.next_offset = base_offset
            batch_count = walk.batch_count
            try:
                size_bytes += SegmentCheck(self._file_system, place, walk).run()
            except FileNotFoundError:
                if not self._state.is_live:
                    raise
                self._findings.note(log_path, "retention deleted the segment while it was to be read")
            if following is None:
                if walk.batch_count == batch_count:
                    walk.report_gap(log_path, base_offset, "this segment")
                walk.next_offset = max(walk.next_offset, base_offset)
        return size_bytes

    def _check_ends(self, walk: PartitionWalk) -> None:
        log_start = max(self._state.log_start_offsets.get(self._name, 0), self._bases[0] if self._bases else 0)
        if not self._bases:
            self._findings.note(self._directory, "the directory has no segment")
        epochs_path = self._directory / LEADER_EPOCH_CHECKPOINT
        if walk.epochs and walk.epochs[-1][1] > walk.next_offset and not self._state.is_live:
            self._findings.damage(
                epochs_path,
                f"leader epoch {walk.epochs[-1][0]} begins at offset {walk.epochs[-1][1]}, beyond the log's end "
                f"{walk.next_offset}",
            )
        for last_offset, speakers in walk.producer_entries.items():
            if not log_start <= last_offset < walk.next_offset or walk.is_compacted is not False:
                continue
            for path, entry in speakers:
                self._findings.damage(
                    path,
                    f"producer {entry.producer_id} should have ended a batch with offset {last_offset}, but none does",
                )
