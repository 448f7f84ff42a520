"""A log as its writer has it: the written state, rolling, cutting off the beginning."""

from __future__ import annotations

import errno
import functools
import random
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from log_model.clock import Clock
from log_model.config import TopicConfig
from log_model.epochs import EpochEntry
from log_model.errors import (
    NO_DESCRIPTOR_ERRNOS,
    NO_ROOM_ERRNOS,
    CorruptionError,
    DiskFullError,
    TooManyOpenFilesError,
    too_many_open_files,
)
from log_model.names import PartitionName
from log_model.offsets import LeaderEpoch, LogOffsetMetadata, Offset, Position
from log_model.reads import OffsetRange
from log_model.transactions import NOTHING_UNSTABLE, CompletedTransaction, UnstableTransactions
from storage.disk.directory_checkpoints import DirectoryCheckpoints
from storage.disk.file_system import FileSystem
from storage.disk.leftover_files import remove_segment_files
from storage.log.deleted_files import DeletedFiles
from storage.log.leader_epochs import LeaderEpochs
from storage.log.log_snapshot import LogSnapshot
from storage.log.replica_set import ReplicaSet, restored_high_watermark
from storage.producers.producer_replay import replay_producers
from storage.producers.producer_state import ProducerState
from storage.producers.transaction_checkpoint import TransactionCheckpoint
from storage.segment.file_watch import FileWatch
from storage.segment.segment import Segment
from storage.segment.segment_room import SegmentRoom
from storage.segment.writeback import Writeback


class WrittenState(NamedTuple):
    """The finished work of the writer: the source of the next snapshot, replaced in one assignment."""

    segments: tuple[Segment, ...]
    base_offsets: tuple[Offset, ...]
    log_start_offset: Offset
    log_end: LogOffsetMetadata
    unstable: UnstableTransactions = NOTHING_UNSTABLE

    @classmethod
    def of(
        cls,
        segments: tuple[Segment, ...],
        log_start_offset: Offset,
        log_end: LogOffsetMetadata,
        unstable: UnstableTransactions = NOTHING_UNSTABLE,
    ) -> WrittenState:
        """Return a state with these segments."""
        return cls(segments, tuple(segment.base_offset for segment in segments), log_start_offset, log_end, unstable)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def shown(self, high_watermark: LogOffsetMetadata, damage: tuple[OffsetRange, ...]) -> LogSnapshot:
        """Return the snapshot for readers while all copies have the log up to ``high_watermark``."""
        base_offsets = self.base_offsets
        if high_watermark.segment_base_offset < base_offsets[0]:
            # The high watermark lay at the end of a segment that is gone. The first segment left begins at that offset.
            high_watermark = LogOffsetMetadata(
                max(high_watermark.offset, base_offsets[0]), base_offsets[0], Position(0)
            )
        last_stable = self.unstable.first_unstable(high_watermark.offset)
        if last_stable is None or last_stable.offset > high_watermark.offset:
            last_stable = high_watermark
        if last_stable.offset < self.log_start_offset:
            # No record is readable at this offset, so its position does not matter.
            last_stable = LogOffsetMetadata(self.log_start_offset)
        return LogSnapshot(
            self.segments, base_offsets, self.log_start_offset, last_stable, high_watermark, self.log_end, damage
        )

    def shown_shorter(self, high_watermark: LogOffsetMetadata, damage: tuple[OffsetRange, ...]) -> LogSnapshot:
        """Return the snapshot after a truncation, if copies had the log up to ``high_watermark`` before."""
        end = self.log_end
        is_cut = high_watermark.offset >= end.offset or high_watermark.segment_base_offset > end.segment_base_offset
        return self.shown(end if is_cut else high_watermark, damage)

    def grown_to(self, log_end: LogOffsetMetadata, unstable: UnstableTransactions) -> WrittenState:
        """Return the state after an append to the active segment."""
        return WrittenState(self.segments, self.base_offsets, self.log_start_offset, log_end, unstable)


BeforeChange = Callable[[str, PartitionName, bool], None]
"""A function of the topic's id, the log's name, and whether its files were closed since it was opened."""


def _nothing(_topic_id: str, _name: PartitionName, _was_closed: bool) -> None:
    """Let it change."""


@dataclass(slots=True)
class LogParts:
    """The parts of a log, new or recovered."""

    file_system: FileSystem
    clock: Clock
    name: PartitionName
    topic_id: str
    directory: Path
    config: TopicConfig
    segments: tuple[Segment, ...]
    log_start_offset: Offset
    log_end_offset: Offset
    epochs: LeaderEpochs
    producers: ProducerState
    checkpoints: DirectoryCheckpoints
    recovery_point: Offset
    transaction_checkpoint: TransactionCheckpoint
    damage: tuple[OffsetRange, ...] = ()
    damage_hint: str | None = None
    """A hint for operators how to repair the damage."""
    replicas: ReplicaSet = field(default_factory=ReplicaSet)
    high_watermark: Offset | None = None
    """The checkpointed value. It counts if there are other copies."""
    random: random.Random = field(default_factory=random.Random)
    before_change: BeforeChange = _nothing
    """Called before the files of an untouched log change; what it raises, the change raises."""
    is_untouched: bool = False
    """Whether the files are as a clean stop leaves them. The active segment is sealed then."""
    began_ms: int = 0
    """Elapsed time from which the age of the segments counts that have no timestamps."""


class JournaledEnd:
    """The end of a log's last piece in one ``use`` of a file of the journal; each use of a file is another object."""

    __slots__ = ("offset", "use")

    def __init__(self, use: object) -> None:
        self.use = use
        self.offset = Offset(0)


class Journal(Protocol):
    """The journal that has made records of a log durable before its segment did."""

    def forget(self, name: PartitionName, topic_id: str) -> None:
        """Let a replay write nothing of the log that came so far. Durable: on return."""


class WrittenLog:
    """A log as its writer has it: rolling, and cutting off the beginning. ``LogWriter`` adds appending.

    Changes are not visible to readers until ``PartitionLog`` publishes ``written``.

    ``written`` is replaced in one assignment after each change; ``durable_end`` is the end of the durable bytes, and
    below ``recovery_point`` everything is durable. Below ``fsynced_end`` the segments' own files are fsynced, and the
    checkpoint says so; records from there on may be durable by the ``journal`` alone. ``pieces_c`` notes that as
    ``note_journaled`` does, unless ``durable_lock`` is held.

    Thread: the partition's writer only. ``written`` and ``durable_end`` may be read by any thread.

    Raises (from everything that touches the disk):
        DiskFullError, TooManyOpenFilesError: no room; the log is as before.
        OSError: the disk failed otherwise; what reached it is unknown.
    """

    def __init__(self, parts: LogParts) -> None:
        self._file_system = parts.file_system
        self.clock = parts.clock
        self.name = parts.name
        self.directory = parts.directory
        self.config = parts.config
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.topic_id = parts.topic_id
        self.recovery_point = parts.recovery_point
        self.fsynced_end = parts.recovery_point
        self.journal: Journal | None = None
        """The journal, if it may have records of this log that a replay would write again."""
        self.journaled: JournaledEnd | None = None
        """The end of the last piece in the file of the journal that got it; the journal sets it."""
        self.deleted_files = DeletedFiles(parts.file_system, parts.clock)
        self.checkpoints = parts.checkpoints
        self._transaction_checkpoint = parts.transaction_checkpoint
        self._random = parts.random
        active = parts.segments[-1]
        log_end = LogOffsetMetadata(parts.log_end_offset, active.base_offset, Position(active.size_bytes))
        self.high_watermark = log_end.offset
        """The last published value. ``PartitionLog`` and ``append_c`` set it when they publish."""
        self.written = WrittenState.of(parts.segments, parts.log_start_offset, log_end)
        self.written = self.written._replace(unstable=self._unstable_after(()))
        self.room: SegmentRoom | None = None
        """The room of the active segment, if known.

        Code that changes more than the end of the segment sets ``None``.
        """
        self._writeback = Writeback()
        self.watch: FileWatch | None = None
        """The watch of the files, if they were checked since the last truncation. Read before ``written``."""
        self.before_change = parts.before_change
        self.was_at_rest = False
        """Whether the files were brought into that state since the log was opened."""
        self.is_untouched = parts.is_untouched
        """Whether the files are as a clean stop leaves them; see ``files_at_rest``."""
        self.durable_end = log_end
        self.durable_lock = threading.Lock()
        self.flushing = threading.RLock()
        self.last_flush_ms = parts.clock.elapsed_ms()
        """Elapsed time of the last flush."""
        self.failed = False

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch stamped into batches."""
        return self.epochs.current

    def begin_epoch(self, entry: EpochEntry) -> None:
        """Begin a leader epoch; see ``LeaderEpochs.assign_or_keep``."""
        log_start_offset = self.written.log_start_offset
        if self.epochs.latest is None and log_start_offset < entry.start_offset:
            # The whole log was truncated, and appends follow. A log does not begin before its first epoch.
            self.epochs.assign_or_keep(self.epochs.current, log_start_offset, self.checkpoints.ballast.run)
        self.epochs.assign_or_keep(*entry, self.checkpoints.ballast.run)

    # Rolling

    def roll(self, base_offset: Offset) -> None:
        """Seal the active segment and begin another at ``base_offset``.

        A crash after any step loses nothing: first the old segment is durable, then the new names, then the recovery
        point.
        """
        segments = self.written.segments
        active = segments[-1]
        if active.size_bytes == 0 and active.base_offset == base_offset:
            if not active.sealed and active.offset_index.get().entry_count == 0:
                return
            segments = segments[:-1]
        try:
            self.producers.take_snapshot(base_offset)
            self.seal(active)
            fresh = self._create_durably(base_offset)
        except OSError as error:
            if error.errno in NO_ROOM_ERRNOS:
                raise self.no_room(error) from error
            raise
        log_end = LogOffsetMetadata(base_offset, base_offset, Position(0))
        self.written = WrittenState.of(
            (*segments, fresh), self.written.log_start_offset, log_end, self.written.unstable
        )
        self.advance_durable_end(log_end)

    def _create_durably(self, base_offset: Offset) -> Segment:
        try:
            fresh = self.create_segment(base_offset)
            self._file_system.sync_directory(self.directory)
        except OSError as error:
            if error.errno in NO_ROOM_ERRNOS:
                # After a clean stop all files count as whole. Half a segment is not.
                self._remove_created(base_offset)
            raise
        return fresh

    def _remove_created(self, base_offset: Offset) -> None:
        try:
            remove_segment_files(self._file_system, self.directory, base_offset)
        except OSError as error:
            raise OSError(errno.EIO, "a segment that found no room could not be removed") from error

    def seal(self, active: Segment) -> None:
        """Seal the segment while no other fsync of its file runs.

        The kernel reports a failed write only once (disk rule 3).
        """
        with self.flushing:
            if self.failed:
                raise OSError(errno.EIO, "the disk failed before")
            self.room = None
            try:
                self.check_files()
                active.seal()
                self._transaction_checkpoint.note(
                    active.base_offset, active.transactions.content(), self.written.base_offsets
                )
            except OSError as error:
                self.failed = error.errno not in NO_ROOM_ERRNOS
                raise

    def advance_durable_end(self, log_end: LogOffsetMetadata, *, by_segment: bool = True) -> None:
        """Note that everything below ``log_end`` is durable, ``by_segment`` or by the journal alone.

        Thread: any; the greatest end counts.
        """
        with self.durable_lock:
            if self.failed:
                return
            if log_end.offset >= self.durable_end.offset:
                self.durable_end = log_end
            self.recovery_point = max(self.recovery_point, log_end.offset)
            if by_segment:
                self.fsynced_end = max(self.fsynced_end, log_end.offset)

    def note_journaled(self, log_end: LogOffsetMetadata, journal: Journal) -> None:
        """Note that the journal has made everything below ``log_end`` durable. Thread: any."""
        self.journal = journal
        self.advance_durable_end(log_end, by_segment=False)
        self.last_flush_ms = self.clock.elapsed_ms()

    def leave_journal(self) -> None:
        """Make the segments durable by themselves, and let the journal forget this log: its end will be cut.

        The caller holds ``flushing``.
        """
        if self.journal is None:
            return
        written = self.written
        if written.log_end.offset > self.fsynced_end:
            try:
                written.active.flush(written.log_end.position)
            except OSError:
                self.failed = True
                raise
            self.advance_durable_end(written.log_end)
        self.journal.forget(self.name, self.topic_id)
        self.journal = None

    def create_segment(self, base_offset: Offset) -> Segment:
        """Make an active segment's files. Its name is durable once the directory was synced."""
        return Segment.create(
            self._file_system,
            self.directory,
            base_offset,
            self.config,
            created_ms=self.clock.elapsed_ms(),
            jitter_ms=self.config.draw_segment_jitter_ms(self._random),
        )

    def find_room(self, active: Segment) -> SegmentRoom | None:
        """Return the room of the active segment before other work is due; see ``SegmentRoom.of``. Kept as ``room``.

        There is none before the first change, because an append into the room does not call ``begin_change``.
        """
        if self.is_untouched:
            return None
        self.room = SegmentRoom.of(active, self.config, self._writeback.look_from(active, self.config))
        return self.room

    def check_files(self) -> None:
        """Check the files as ``FileWatch.check``, unless that would open them."""
        if self.written.active.is_ready:
            if self.watch is None:
                self.watch = FileWatch()
            self.watch.check(self.written.active)

    def due_writeback(self, *, is_busy: bool) -> Callable[[], None] | None:
        """Return the writeback that is due; see ``Writeback.due``.

        The room of the segment ends where the next one is due.
        """
        active = self.written.active
        if active.size_bytes < self._writeback.look_from(active, self.config):
            return None
        self.room = None
        return self._writeback.due(active, self.config, is_busy=is_busy, is_journaled=self.journal is not None)

    # Cutting off the beginning

    def drop_oldest(self, count: int) -> tuple[Segment, ...]:
        """Take the oldest ``count`` segments out of the log and return them. At least one stays.

        The new log start is durable before the first file is renamed (disk rule 7).
        """
        doomed = self.written.segments[:count]
        kept = self.written.segments[count:]
        log_start_offset = max(self.written.log_start_offset, kept[0].base_offset)
        self._save_log_start(log_start_offset)
        self.written = WrittenState.of(kept, log_start_offset, self.written.log_end, self.written.unstable)
        self.retire(doomed)
        return doomed

    def raise_log_start(self, log_start_offset: Offset) -> None:
        """Let the log begin at ``log_start_offset``, durably, unless it begins there or above already."""
        if log_start_offset > self.written.log_start_offset:
            self._save_log_start(log_start_offset)
            self.written = self.written._replace(log_start_offset=log_start_offset)

    def _save_log_start(self, log_start_offset: Offset) -> None:
        if log_start_offset > self.written.log_start_offset:
            self.checkpoints.set_log_start(self.name, log_start_offset)
            self.checkpoints.ballast.run(lambda: self.epochs.truncate_from_start(log_start_offset))

    def retire(self, doomed: Iterable[Segment]) -> None:
        """Rename the segments' files, in this order, and hand them over for unlinking."""
        for segment in doomed:
            # A longer name may need a block of the directory.
            paths = self.checkpoints.ballast.run(functools.partial(self._mark_deleted, segment))
            self.deleted_files.add(paths, segment, self.config.file_delete_delay_ms)
        self._file_system.sync_directory(self.directory)

    def _mark_deleted(self, segment: Segment) -> list[Path]:
        paths = segment.mark_deleted()
        snapshot_path = self.producers.snapshots.mark_deleted(segment.base_offset)
        return paths if snapshot_path is None else [*paths, snapshot_path]

    def sync_directory(self) -> None:
        """Make the names in the log's directory durable."""
        self._file_system.sync_directory(self.directory)

    # Cutting off the end: see ``log_truncation``

    def end_at(self, segments: tuple[Segment, ...], log_start_offset: Offset, offset: Offset) -> None:
        """Take a shorter list of segments, whose files are cut already, and update all state to the new log end."""
        log_end = LogOffsetMetadata(offset, segments[-1].base_offset, Position(segments[-1].size_bytes))
        self.room = None
        # The file that it watches may be cut and written again.
        self.watch = None
        self.end_epochs_at(offset, segments)
        replay_producers(self.producers, segments, offset)
        written = WrittenState.of(segments, log_start_offset, log_end)
        completed = tuple(entry for entry in self.written.unstable.completed if entry.marker_offset < offset)
        unstable = UnstableTransactions(self._first_open(written), completed)
        self.written = written._replace(unstable=unstable)
        if self.durable_end.offset > offset:
            self.durable_end = log_end

    def end_epochs_at(self, offset: Offset, segments: Sequence[Segment] | None = None) -> None:
        """Forget epochs that begin at ``offset``, the new log end, or above.

        ``segments`` are the files of the log then.
        """
        entries = self.epochs.entries
        all_go = bool(entries) and entries[0].start_offset >= offset
        self.epochs.truncate_from_end(offset, _last_epoch(segments or self.written.segments) if all_go else None)

    def no_room(self, error: OSError) -> DiskFullError | TooManyOpenFilesError:
        """Return the error for callers when the disk is full or read-only, or no more files may be opened."""
        if error.errno in NO_DESCRIPTOR_ERRNOS:
            return too_many_open_files(f"{self.name} takes no more", error)
        return DiskFullError(f"the disk of {self.name} takes no more: {error.strerror}")

    # Transactions

    def _unstable_after(self, completed: Sequence[CompletedTransaction]) -> UnstableTransactions:
        """Return the transactions that hold back the last stable offset, after ``completed`` have ended."""
        known = self.written.unstable
        first_open = self._first_open(self.written)
        if not completed and not known.completed and first_open == known.first_open:
            return known
        unstable = UnstableTransactions(first_open, (*known.above(self.high_watermark), *completed))
        return NOTHING_UNSTABLE if unstable == NOTHING_UNSTABLE else unstable

    def _first_open(self, written: WrittenState) -> LogOffsetMetadata | None:
        transaction = next(self.producers.open_transactions(), None)
        if transaction is None:
            return None
        first = transaction.first
        if first.is_offset_only:
            first = place_of(first.offset, written)
            self.producers.place_first_open(first)
        return first


def first_high_watermark(parts: LogParts, log: WrittenLog) -> LogOffsetMetadata:
    """Return the first high watermark of a log: the log end of an only copy, otherwise the checkpoint."""
    log_end = log.durable_end
    if len(parts.replicas.replicas) == 1:
        return log_end
    offset = restored_high_watermark(parts.high_watermark, parts.log_start_offset, log_end.offset)
    return log_end if offset == log_end.offset else place_of(offset, log.written)


def place_of(offset: Offset, written: WrittenState) -> LogOffsetMetadata:
    """Return the place of the batch that begins at ``offset``.

    The offset alone if the batch cannot be read, which stops readers as well.
    """
    first = max(0, bisect_right(written.base_offsets, offset) - 1)
    for segment in written.segments[first : first + 1]:
        try:
            batch = segment.locate(offset, segment.size_bytes)
        except (CorruptionError, OSError):
            break
        if batch is not None and batch.header.base_offset == offset:
            return LogOffsetMetadata(offset, segment.base_offset, batch.position)
    return LogOffsetMetadata(offset)


def _last_epoch(segments: Sequence[Segment]) -> LeaderEpoch | None:
    for segment in reversed(segments):
        if segment.size_bytes:
            *_, last = segment.walk(0, segment.size_bytes)
            return LeaderEpoch(last.header.partition_leader_epoch)
    return None
