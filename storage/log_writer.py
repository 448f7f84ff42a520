"""The writer's side of a log: giving offsets, writing batches, rolling, cutting off either end."""

from __future__ import annotations

import errno
import random
import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rollway.records import BatchHeader, parse_header
from storage.batch_validation import ValidBatch
from storage.clock import Clock
from storage.config import TopicConfig
from storage.deleted_files import DeletedFiles
from storage.directory_checkpoints import DirectoryCheckpoints
from storage.errors import (
    CorruptionError,
    DiskFullError,
    ExpectedOffsetMismatchError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    RefusedError,
    StorageError,
)
from storage.file_names import PartitionName
from storage.file_system import FileSystem
from storage.leader_epochs import LeaderEpochs
from storage.log_snapshot import OffsetRange
from storage.offsets import NO_TIMESTAMP, LeaderEpoch, LogOffsetMetadata, Offset, Position
from storage.producer_state import ProducerBatch, ProducerDraft, ProducerState
from storage.repeated_requests import find_repeated
from storage.segment import RELATIVE_OFFSET_MAX, Segment

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """The batches of one request: appended one behind the other, all or none.

    With ``expected_offset`` only if that is the log end offset when their turn comes.
    """

    batches: tuple[ValidBatch, ...]
    expected_offset: Offset | None = None

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)

    @property
    def record_count(self) -> int:
        return sum(batch.header.record_count for batch in self.batches)


class AppendResult(NamedTuple):
    """Where the records of a request are. ``last_offset`` is the last record's own; a request without records has
    base offset -1 (spec A12). ``log_append_time`` is -1 unless the topic stamps records itself."""

    base_offset: Offset
    last_offset: Offset
    record_count: int
    log_append_time: int
    log_start_offset: Offset
    duplicate: bool = False

    @property
    def end_offset(self) -> Offset:
        return Offset(self.last_offset + 1)


@dataclass(frozen=True, slots=True)
class WrittenState:
    """What the writer has finished: the source of the next snapshot, replaced in one assignment."""

    segments: tuple[Segment, ...]
    base_offsets: tuple[Offset, ...]
    log_start_offset: Offset
    log_end: LogOffsetMetadata

    @classmethod
    def of(cls, segments: tuple[Segment, ...], log_start_offset: Offset, log_end: LogOffsetMetadata) -> WrittenState:
        """With a new list of segments."""
        return cls(segments, tuple(segment.base_offset for segment in segments), log_start_offset, log_end)

    @property
    def active(self) -> Segment:
        return self.segments[-1]


@dataclass(slots=True)
class LogParts:
    """What a log is put together from, new or recovered."""

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
    damage: tuple[OffsetRange, ...] = ()
    random: random.Random = field(default_factory=random.Random)


class _Pending(NamedTuple):
    """A request whose batches are stamped and wait for the write of their piece of the group."""

    place: int
    request: AppendRequest
    draft: ProducerDraft
    result: AppendResult


class LogWriter:
    """Changes a log. Nothing here is visible to readers until ``PartitionLog`` publishes ``written``.

    ``written`` is replaced in one assignment after each change; ``durable_end`` is the end of what has been fsynced.

    Thread: the partition's writer only. ``written`` and ``durable_end`` may be read by any thread.

    Raises (from everything that touches the disk):
        DiskFullError: no room; the log is as before.
        OSError: the disk failed otherwise; what reached it is unknown.
    """

    def __init__(self, parts: LogParts) -> None:
        self._file_system = parts.file_system
        self._clock = parts.clock
        self._name = parts.name
        self._directory = parts.directory
        self.config = parts.config
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.recovery_point = parts.recovery_point
        self.deleted_files = DeletedFiles(parts.file_system, parts.clock)
        self._checkpoints = parts.checkpoints
        self._random = parts.random
        active = parts.segments[-1]
        log_end = LogOffsetMetadata(parts.log_end_offset, active.base_offset, Position(active.size_bytes))
        self.written = WrittenState.of(parts.segments, parts.log_start_offset, log_end)
        self.durable_end = log_end
        self._durable_lock = threading.Lock()
        self.flushing = threading.RLock()
        self.failed = False

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch stamped into batches."""
        latest = self.epochs.latest
        return LeaderEpoch(0) if latest is None else latest.epoch

    # Appending

    def append(self, group: Sequence[AppendRequest]) -> list[AppendResult | StorageError]:
        """Give offsets to the batches of each request and write them; one answer per request, in order."""
        answers: list[AppendResult | StorageError] = []
        self._append_group(group, answers)
        return answers

    def _append_group(self, group: Sequence[AppendRequest], answers: list[AppendResult | StorageError]) -> None:
        pending: list[_Pending] = []
        for place, request in enumerate(group):
            answers.append(self._nothing())
            try:
                self._prepare(place, request, pending, answers)
            except (DiskFullError, OSError) as failure:
                error = self._room_error(failure)
                # Those that wait for the same write did not reach the disk either.
                for waiting in pending:
                    answers[waiting.place] = error
                pending.clear()
                answers[place] = error
            except RefusedError as error:
                answers[place] = error
        try:
            self._write(pending, answers)
        except DiskFullError as error:
            for waiting in pending:
                answers[waiting.place] = error

    def _room_error(self, failure: DiskFullError | OSError) -> DiskFullError:
        """What callers are told when the disk is full; any other failure is raised on."""
        if isinstance(failure, DiskFullError):
            return failure
        if failure.errno not in DISK_FULL_ERRNOS:
            raise failure
        return self.no_room(failure)

    def _prepare(
        self,
        place: int,
        request: AppendRequest,
        pending: list[_Pending],
        answers: list[AppendResult | StorageError],
    ) -> None:
        """Check a request against the log, make room for it, stamp it and put it into ``pending``."""
        if not request.batches:
            return
        if request.size_bytes > self.config.segment_bytes:
            raise RecordListTooLargeError(
                f"{request.size_bytes} bytes do not fit into a segment of {self.config.segment_bytes} bytes"
            )
        if any(batch.header.producer_id >= 0 for batch in request.batches):
            # Sequences are checked against what is written, so what waits goes first.
            self._write(pending, answers)
        log_end = self._pending_end(pending)
        duplicate = self._find_duplicate(request)
        if duplicate is not None:
            answers[place] = duplicate
            return
        if request.expected_offset is not None and request.expected_offset != log_end:
            raise ExpectedOffsetMismatchError(request.expected_offset, log_end)
        if self._must_write_first(request, pending):
            self._write(pending, answers)
        if self._must_roll(request, pending, log_end):
            self._write(pending, answers)
            self.roll(log_end)
        pending.append(self._stamp(place, request, log_end))

    def _nothing(self) -> AppendResult:
        return AppendResult(Offset(-1), Offset(-1), 0, NO_TIMESTAMP, self.written.log_start_offset)

    def _pending_end(self, pending: Sequence[_Pending]) -> Offset:
        return pending[-1].result.end_offset if pending else self.written.log_end.offset

    def _find_duplicate(self, request: AppendRequest) -> AppendResult | None:
        """The first answer again if every batch of the request is in the log already (spec E19)."""
        headers = [batch.header for batch in request.batches]
        entry = self.producers.find(headers[0].producer_id)
        repeated = find_repeated(entry, headers, self._header_at, self.written.base_offsets[0])
        if repeated is not None:
            return self._first_answer(request, repeated, repeated)
        draft = self.producers.draft()
        originals = []
        for batch in request.batches:
            originals.append(draft.check(batch.header))
            if originals[-1] is None:
                draft.update(batch.header)
        known = [original for original in originals if original is not None]
        if not known:
            return None
        if len(known) < len(originals):
            raise OutOfOrderSequenceError("some batches of the request are in the log already, others are not")
        return self._first_answer(request, known[0], known[-1])

    def _first_answer(self, request: AppendRequest, first: ProducerBatch, last: ProducerBatch) -> AppendResult:
        log_append_time = first.timestamp if self.config.message_timestamp_type == "LogAppendTime" else NO_TIMESTAMP
        return AppendResult(
            first.first_offset,
            last.last_offset,
            request.record_count,
            log_append_time,
            self.written.log_start_offset,
            duplicate=True,
        )

    def _header_at(self, offset: Offset) -> BatchHeader | None:
        """The batch that holds ``offset``, as far as the disk tells."""
        segment = self.written.segments[max(0, bisect_right(self.written.base_offsets, offset) - 1)]
        try:
            found = segment.locate(offset, segment.size_bytes)
        except CorruptionError:
            return None
        return None if found is None else found.header

    def _stamp(self, place: int, request: AppendRequest, log_end: Offset) -> _Pending:
        now_ms = self._clock.now_ms()
        stamps_time = self.config.message_timestamp_type == "LogAppendTime"
        draft = self.producers.draft()
        base_offset = log_end
        for batch in request.batches:
            if stamps_time:
                batch.set_log_append_time(now_ms)
            batch.stamp(base_offset, self.leader_epoch)
            if batch.header.producer_id >= 0:
                draft.update(parse_header(batch.head), now_ms)
            base_offset = Offset(batch.last_offset + 1)
        result = AppendResult(
            log_end,
            Offset(base_offset - 1),
            request.record_count,
            now_ms if stamps_time else NO_TIMESTAMP,
            self.written.log_start_offset,
        )
        return _Pending(place, request, draft, result)

    def _must_write_first(self, request: AppendRequest, pending: Sequence[_Pending]) -> bool:
        """Whether what waits must be written before it can be told if an index is full."""
        waiting_count = sum(len(waiting.request.batches) for waiting in pending)
        return waiting_count > 0 and self.written.active.index_room() <= waiting_count + len(request.batches)

    def _must_roll(self, request: AppendRequest, pending: Sequence[_Pending], log_end: Offset) -> bool:
        """Spec E6, before an append."""
        active = self.written.active
        if active.sealed:
            return True
        size_bytes = active.size_bytes + sum(waiting.request.size_bytes for waiting in pending)
        if size_bytes > self.config.segment_bytes - request.size_bytes:
            return True
        if active.index_room() <= 0 and (size_bytes > 0 or active.offset_index.get().entry_count > 0):
            return True
        last_offset = log_end + request.record_count - 1
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if size_bytes == 0:
            return False
        now_ms = self._clock.now_ms()
        newest = max(batch.max_timestamp for batch in request.batches)
        if self.config.message_timestamp_type == "LogAppendTime":
            newest = now_ms
        first_timestamp = active.first_timestamp if active.size_bytes else NO_TIMESTAMP
        waited_ms = newest - first_timestamp if first_timestamp >= 0 else now_ms - active.created_ms
        return waited_ms > self.config.segment_ms - active.jitter_ms

    def _write(self, pending: list[_Pending], answers: list[AppendResult | StorageError]) -> None:
        """Write the stamped batches that wait, answer their requests, and leave none waiting.

        Raises:
            DiskFullError: there was no room, and the log is as before; they still wait.
            OSError: the disk failed otherwise.
        """
        if not pending:
            return
        active = self.written.active
        end_before = self.written.log_end.offset
        max_timestamp = active.builder.max_timestamp
        try:
            active.append([batch for waiting in pending for batch in waiting.request.batches])
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            try:
                active.undo_append(end_before, max_timestamp)
            except OSError as second:
                raise OSError(errno.EIO, "an append that found no room could not be undone") from second
            raise self.no_room(error) from error
        for waiting in pending:
            self.producers.accept(waiting.draft)
            answers[waiting.place] = waiting.result
        end_offset = pending[-1].result.end_offset
        pending.clear()
        log_end = LogOffsetMetadata(end_offset, active.base_offset, Position(active.size_bytes))
        self.written = replace(self.written, log_end=log_end)

    # Rolling

    def roll(self, base_offset: Offset) -> None:
        """The order makes each step safe to lose: old segment durable, then the new names, then the recovery point."""
        segments = self.written.segments
        active = segments[-1]
        if active.size_bytes == 0 and active.base_offset == base_offset:
            if not active.sealed and active.offset_index.get().entry_count == 0:
                return
            segments = segments[:-1]
        try:
            self.producers.take_snapshot(base_offset)
            self._seal(active)
            fresh = self._create_segment(base_offset)
            self._file_system.sync_directory(self._directory)
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                raise self.no_room(error) from error
            raise
        log_end = LogOffsetMetadata(base_offset, base_offset, Position(0))
        self.written = WrittenState.of((*segments, fresh), self.written.log_start_offset, log_end)
        self.advance_durable_end(log_end)

    def _seal(self, active: Segment) -> None:
        """Seal with no other fsync of the file under way: the kernel tells of a failed write only once (rule 3)."""
        with self.flushing:
            if self.failed:
                raise OSError(errno.EIO, "the disk failed before")
            try:
                active.seal()
            except OSError as error:
                self.failed = error.errno not in DISK_FULL_ERRNOS
                raise

    def advance_durable_end(self, log_end: LogOffsetMetadata) -> None:
        """Note that everything below ``log_end`` has been fsynced. Thread: any; the greatest wins."""
        with self._durable_lock:
            if self.failed:
                return
            if log_end.offset >= self.durable_end.offset:
                self.durable_end = log_end
            self.recovery_point = max(self.recovery_point, log_end.offset)

    def _create_segment(self, base_offset: Offset) -> Segment:
        return Segment.create(
            self._file_system,
            self._directory,
            base_offset,
            self.config,
            now_ms=self._clock.now_ms(),
            jitter_ms=self.config.draw_segment_jitter_ms(self._random),
        )

    # Cutting off the beginning

    def drop_oldest(self, count: int) -> tuple[Segment, ...]:
        """Take the oldest ``count`` segments out of the log and return them; one at least stays.

        The new log start is durable before the first file is renamed (rule 7).
        """
        doomed = self.written.segments[:count]
        kept = self.written.segments[count:]
        log_start_offset = max(self.written.log_start_offset, kept[0].base_offset)
        self._save_log_start(log_start_offset)
        self.written = WrittenState.of(kept, log_start_offset, self.written.log_end)
        self._retire(doomed)
        return doomed

    def raise_log_start(self, log_start_offset: Offset) -> None:
        """Let the log begin at ``log_start_offset``, durably, if it does not begin there or above already."""
        if log_start_offset > self.written.log_start_offset:
            self._save_log_start(log_start_offset)
            self.written = replace(self.written, log_start_offset=log_start_offset)

    def _save_log_start(self, log_start_offset: Offset) -> None:
        if log_start_offset > self.written.log_start_offset:
            self._checkpoints.set_log_start(self._name, log_start_offset)
            self._checkpoints.ballast.run(lambda: self.epochs.truncate_from_start(log_start_offset))

    def _retire(self, doomed: Iterable[Segment]) -> None:
        """Rename the segments' files, oldest first, and hand them over for unlinking."""
        for segment in doomed:
            paths = segment.mark_deleted()
            snapshot_path = self.producers.mark_snapshot_deleted(segment.base_offset)
            if snapshot_path is not None:
                paths.append(snapshot_path)
            self.deleted_files.add(paths, segment, self.config.file_delete_delay_ms)
        self._file_system.sync_directory(self._directory)

    # Cutting off the end

    def truncate_to(self, offset: Offset) -> None:
        """Let the log end at ``offset``, which lies below its end; a batch that reaches over it goes whole."""
        segments = self.written.segments
        if offset < segments[0].base_offset:
            self.start_at(offset)
            return
        kept = tuple(segment for segment in segments if segment.base_offset <= offset)
        kept_end = _end_below(kept[-1], offset)
        log_start_offset = min(self.written.log_start_offset, offset)
        self._lower_recovery_point(kept_end)
        if log_start_offset < self.written.log_start_offset:
            self._checkpoints.set_log_start(self._name, log_start_offset)
        self._retire(segments[len(kept) :])
        kept[-1].truncate_to(offset)
        self._end_at(kept, log_start_offset, offset)
        if kept_end < offset:
            # A gap needs a witness, or recovery would take it for damage: a segment and an epoch that begin behind it.
            epoch = LeaderEpoch(self.leader_epoch + 1)
            self.epochs.assign(epoch, offset)
            self.roll(offset)

    def start_at(self, offset: Offset) -> None:
        """Drop everything; the log is one empty segment at ``offset``."""
        self._lower_recovery_point(offset)
        self._checkpoints.set_log_start(self._name, offset)
        self._retire(self.written.segments)
        self.producers.truncate_fully()
        fresh = self._create_segment(offset)
        self._file_system.sync_directory(self._directory)
        self._end_at((fresh,), offset, offset)

    def _lower_recovery_point(self, offset: Offset) -> None:
        self._checkpoints.lower_recovery_point(self._name, offset)
        self.recovery_point = min(self.recovery_point, offset)

    def _end_at(self, segments: tuple[Segment, ...], log_start_offset: Offset, offset: Offset) -> None:
        log_end = LogOffsetMetadata(offset, segments[-1].base_offset, Position(segments[-1].size_bytes))
        self.written = WrittenState.of(segments, log_start_offset, log_end)
        self.epochs.truncate_from_end(offset)
        replay_producers(self.producers, segments, log_start_offset, offset)
        if self.durable_end.offset > offset:
            self.durable_end = log_end

    def no_room(self, error: OSError) -> DiskFullError:
        """The error for callers when the disk is full or read-only."""
        return DiskFullError(f"the disk of {self._name} takes no more: {error.strerror}")


def _end_below(segment: Segment, offset: Offset) -> Offset:
    """Where the batches that lie below ``offset`` entirely end: at ``offset``, unless that is in a batch or a gap."""
    before = segment.locate(Offset(offset - 1), segment.size_bytes)
    if before is not None and before.header.last_offset == offset - 1:
        return offset
    end = segment.base_offset
    for batch in segment.walk(0, segment.size_bytes):
        if batch.header.last_offset >= offset:
            break
        end = Offset(batch.header.last_offset + 1)
    return end


def replay_producers(
    producers: ProducerState, segments: Sequence[Segment], log_start_offset: Offset, log_end_offset: Offset
) -> None:
    """Restore the producers from their newest snapshot and the batches after it (spec E20)."""
    first = max(segments[0].base_offset, Offset(0))
    restored = producers.load(first, log_end_offset)
    if restored >= log_end_offset:
        return
    for segment in segments:
        if segment is not segments[-1] and _next_base(segments, segment) <= restored:
            continue
        for batch in segment.walk(0, segment.size_bytes):
            if batch.header.base_offset >= max(restored, log_start_offset) and not batch.header.is_control:
                producers.update(batch.header)


def _next_base(segments: Sequence[Segment], segment: Segment) -> Offset:
    return segments[segments.index(segment) + 1].base_offset
