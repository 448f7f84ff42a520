"""One partition's log: the only place where offsets are given, bytes are written and snapshots are published."""

from __future__ import annotations

import errno
import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from rollway.records import parse_header
from storage.batch_validation import ValidBatch
from storage.clock import Clock
from storage.config import TopicConfig
from storage.deleted_files import DeletedFiles
from storage.errors import (
    DiskFullError,
    ExpectedOffsetMismatchError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionFailedError,
    PartitionOfflineError,
    PolicyViolationError,
    RecordListTooLargeError,
    RefusedError,
    StorageError,
)
from storage.file_names import PartitionName
from storage.file_system import FileSystem
from storage.leader_epochs import LeaderEpochs
from storage.log_snapshot import LogSnapshot, OffsetRange
from storage.offsets import NO_TIMESTAMP, LeaderEpoch, LogOffsetMetadata, Offset, Position
from storage.producer_state import ProducerDraft, ProducerState
from storage.retention import RetainedSegment, RetentionEntry, plan_retention
from storage.segment import RELATIVE_OFFSET_MAX, Segment

_logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")
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


class DeletedSegment(NamedTuple):
    """A segment that retention removed, and by which rule."""

    base_offset: Offset
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class WrittenState:
    """What the writer has finished: the source of the next snapshot, replaced in one assignment."""

    segments: tuple[Segment, ...]
    log_start_offset: Offset
    log_end: LogOffsetMetadata

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
    persist_log_start: Callable[[PartitionName, Offset], None]
    recovery_point: Offset
    damage: tuple[OffsetRange, ...] = ()
    random: random.Random = field(default_factory=random.Random)


class _Pending(NamedTuple):
    """A request whose batches are stamped and wait for the write of their piece of the group."""

    place: int
    request: AppendRequest
    draft: ProducerDraft
    result: AppendResult


class PartitionLog:
    """The log of one partition: ordered segments, one writer, any number of readers.

    The writer calls ``append`` and everything else that changes the log; readers take ``snapshot`` once and never
    wait. ``flush`` may run in another thread beside an append. Bytes are written first, then index entries, and
    ``publish`` shows them, in one assignment (invariants 1 to 4).

    After a disk failure the log is offline (``offline_reason``): appends are refused, reads go on.
    """

    def __init__(self, parts: LogParts) -> None:
        """Take over a log as recovery or creation left it: everything up to the log end is durable."""
        self._file_system = parts.file_system
        self._clock = parts.clock
        self.name = parts.name
        self.topic_id = parts.topic_id
        self.directory = parts.directory
        self.config = parts.config
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.damage = parts.damage
        self.recovery_point = parts.recovery_point
        self.offline_reason: str | None = None
        self.deleted_files = DeletedFiles(parts.file_system, parts.clock)
        self._persist_log_start = parts.persist_log_start
        self._random = parts.random
        self._writing = threading.Lock()
        self._flushing = threading.Lock()
        self._last_flush_ms = parts.clock.elapsed_ms()
        active = parts.segments[-1]
        log_end = LogOffsetMetadata(parts.log_end_offset, active.base_offset, Position(active.size_bytes))
        self._written = WrittenState(parts.segments, parts.log_start_offset, log_end)
        self._durable_end = log_end
        self._closed = False
        if parts.damage:
            ranges = ", ".join(f"{damaged.start} to {damaged.end}" for damaged in parts.damage)
            self.offline_reason = f"offsets {ranges} are damaged on disk; the partition is read-only"
        self.snapshot = self._make_snapshot(self._written, log_end)

    # What is known

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch stamped into batches."""
        latest = self.epochs.latest
        return LeaderEpoch(0) if latest is None else latest.epoch

    @property
    def written_end_offset(self) -> Offset:
        """The offset the next record gets; ahead of the snapshot's log end while a group is being written."""
        return self._written.log_end.offset

    @property
    def unflushed_count(self) -> int:
        """Records not yet covered by an fsync."""
        return max(0, self._written.log_end.offset - self._durable_end.offset)

    @property
    def durable_end_offset(self) -> Offset:
        """Everything below survives a power cut."""
        return self._durable_end.offset

    # Publishing

    def publish(self) -> LogSnapshot:
        """Show readers what appends have written and, with ``flush.policy=group``, what fsyncs have covered.

        Thread: one at a time, the same that looks at ``snapshot`` to decide about waiting (invariant 7).
        """
        written = self._written
        durable_end = self._durable_end
        bound = durable_end if self.config.flush_policy == "group" else written.log_end
        if bound.offset >= written.log_end.offset:
            bound = written.log_end
        if bound.offset < self.snapshot.high_watermark <= written.log_end.offset:
            bound = self.snapshot.high_watermark_metadata
        self.snapshot = self._make_snapshot(written, bound)
        return self.snapshot

    def _make_snapshot(self, written: WrittenState, high_watermark: LogOffsetMetadata) -> LogSnapshot:
        base_offsets = tuple(segment.base_offset for segment in written.segments)
        if high_watermark.segment_base_offset < base_offsets[0]:
            # It lay at the end of a segment that is gone, which is where the first of the others begins.
            high_watermark = LogOffsetMetadata(
                max(high_watermark.offset, base_offsets[0]), base_offsets[0], Position(0)
            )
        return LogSnapshot(
            written.segments, base_offsets, written.log_start_offset, high_watermark, written.log_end, self.damage
        )

    # Appending

    def append(self, group: Sequence[AppendRequest]) -> list[AppendResult | StorageError]:
        """Give the batches of each request consecutive offsets and write them; one answer per request, in order.

        All batches of one request or none of them: a refused request, or one for which the disk had no room, gets
        its error in its place and the others go on. The active segment is rolled first when a roll condition
        holds (spec E6). Readers see the group when the caller publishes it.

        Thread: the partition's writer only; a second caller is a bug and is refused.
        Durable: no, except as ``flush.messages`` asks. ``flush`` makes it so; the high watermark waits for it.

        Raises:
            PartitionOfflineError: the partition is offline; nothing was written.
            PartitionFailedError: the disk refused; what reached it is unknown, and the partition is offline now.
        """
        with self._exclusive():
            self._check_online()
            answers: list[AppendResult | StorageError] = []
            try:
                self._append_group(group, answers)
            except OSError as error:
                raise self._fail(error, "appending") from error
        if self.unflushed_count >= self.config.flush_messages:
            self.flush()
        return answers

    def _append_group(self, group: Sequence[AppendRequest], answers: list[AppendResult | StorageError]) -> None:
        pending: list[_Pending] = []
        for place, request in enumerate(group):
            answers.append(self._nothing())
            try:
                self._prepare(place, request, pending, answers)
            except DiskFullError as error:
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
        if request.expected_offset is not None and request.expected_offset != log_end:
            raise ExpectedOffsetMismatchError(request.expected_offset, log_end)
        duplicate = self._find_duplicate(request)
        if duplicate is not None:
            answers[place] = duplicate
            return
        if self._must_write_first(request, pending):
            self._write(pending, answers)
        if self._must_roll(request, pending, log_end):
            self._write(pending, answers)
            self._roll(log_end)
        pending.append(self._stamp(place, request, log_end))

    def _nothing(self) -> AppendResult:
        return AppendResult(Offset(-1), Offset(-1), 0, NO_TIMESTAMP, self._written.log_start_offset)

    def _pending_end(self, pending: Sequence[_Pending]) -> Offset:
        return pending[-1].result.end_offset if pending else self._written.log_end.offset

    def _find_duplicate(self, request: AppendRequest) -> AppendResult | None:
        """The first answer again if every batch of the request is in the log already (spec E19)."""
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
        log_append_time = known[0].timestamp if self.config.message_timestamp_type == "LogAppendTime" else NO_TIMESTAMP
        return AppendResult(
            known[0].first_offset,
            known[-1].last_offset,
            request.record_count,
            log_append_time,
            self._written.log_start_offset,
            duplicate=True,
        )

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
            self._written.log_start_offset,
        )
        return _Pending(place, request, draft, result)

    def _must_write_first(self, request: AppendRequest, pending: Sequence[_Pending]) -> bool:
        """Whether what waits must be written before it can be told if an index is full."""
        waiting_count = sum(len(waiting.request.batches) for waiting in pending)
        return waiting_count > 0 and self._written.active.index_room() <= waiting_count + len(request.batches)

    def _must_roll(self, request: AppendRequest, pending: Sequence[_Pending], log_end: Offset) -> bool:
        """Spec E6, before an append."""
        active = self._written.active
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
        active = self._written.active
        log_end = self._written.log_end.offset
        max_timestamp = active.builder.max_timestamp
        try:
            active.append([batch for waiting in pending for batch in waiting.request.batches])
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            active.undo_append(log_end, max_timestamp)
            raise self._no_room(error) from error
        for waiting in pending:
            self.producers.accept(waiting.draft)
            answers[waiting.place] = waiting.result
        end_offset = pending[-1].result.end_offset
        pending.clear()
        self._written = WrittenState(
            self._written.segments,
            self._written.log_start_offset,
            LogOffsetMetadata(end_offset, active.base_offset, Position(active.size_bytes)),
        )

    # Rolling

    def roll(self) -> None:
        """Seal the active segment, durably, and begin another at the log end; nothing to do when it is empty.

        Thread: the writer. Publish afterwards.

        Raises:
            DiskFullError, PartitionOfflineError, PartitionFailedError.
        """
        with self._exclusive():
            self._check_online()
            self._guarded(lambda: self._roll(self._written.log_end.offset), "rolling")

    def roll_due(self) -> bool:
        """Whether the active segment is older than ``segment.ms`` by the wall clock; an empty one never is."""
        active = self._written.active
        age_ms = self._clock.now_ms() - active.created_ms
        return active.size_bytes > 0 and age_ms > self.config.segment_ms - active.jitter_ms

    def _roll(self, base_offset: Offset) -> None:
        """The order makes each step safe to lose: old segment durable, then the new names, then the recovery point."""
        segments = self._written.segments
        active = segments[-1]
        if active.size_bytes == 0 and active.base_offset == base_offset:
            if not active.sealed and active.offset_index.get().entry_count == 0:
                return
            segments = segments[:-1]
        try:
            self.producers.take_snapshot(base_offset)
            active.seal()
            fresh = self._create_segment(base_offset)
            self._file_system.sync_directory(self.directory)
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                raise self._no_room(error) from error
            raise
        log_end = LogOffsetMetadata(base_offset, base_offset, Position(0))
        self._written = WrittenState((*segments, fresh), self._written.log_start_offset, log_end)
        self._durable_end = log_end
        self.recovery_point = max(self.recovery_point, base_offset)

    def _create_segment(self, base_offset: Offset) -> Segment:
        jitter_max_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return Segment.create(
            self._file_system,
            self.directory,
            base_offset,
            self.config,
            now_ms=self._clock.now_ms(),
            jitter_ms=self._random.randrange(jitter_max_ms) if jitter_max_ms else 0,
        )

    # Flushing

    def flush(self) -> Offset:
        """Make everything written so far durable; return the new recovery point.

        One fsync for all appends that came before it (group commit). Publish afterwards.

        Thread: any; one at a time, others wait for it. May run beside an append.

        Raises:
            PartitionFailedError: the fsync failed. It is never tried again: the partition is offline (rule 3).
        """
        with self._flushing:
            written = self._written
            if written.log_end.offset > self._durable_end.offset:
                if self.offline_reason is not None:
                    raise PartitionFailedError(f"{self.name} is offline: {self.offline_reason}")
                try:
                    written.active.flush()
                except OSError as error:
                    raise self._fail(error, "fsync") from error
                if written.log_end.offset > self._durable_end.offset:
                    self._durable_end = written.log_end
            if self.offline_reason is None:
                self.recovery_point = max(self.recovery_point, written.log_end.offset)
            self._last_flush_ms = self._clock.elapsed_ms()
            return self.recovery_point

    def flush_due(self) -> bool:
        """Whether ``flush.ms`` or ``flush.messages`` asks for a flush now (spec B4)."""
        if self.unflushed_count == 0 or self.offline_reason is not None:
            return False
        waited_ms = self._clock.elapsed_ms() - self._last_flush_ms
        return waited_ms >= self.config.flush_ms or self.unflushed_count >= self.config.flush_messages

    # Retention and deletion

    def retention_plan(self, now_ms: int) -> list[RetentionEntry]:
        """What retention would delete now, and what holds the rest. Changes nothing. Thread: any."""
        snapshot = self.snapshot
        return plan_retention(
            self._retained(snapshot.segments, snapshot.log_end_offset),
            self.config,
            now_ms=now_ms,
            log_start_offset=snapshot.log_start_offset,
            high_watermark=snapshot.high_watermark,
        )

    def _retained(self, segments: Sequence[Segment], log_end_offset: Offset) -> list[RetainedSegment]:
        ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
        retained = []
        for segment, end_offset in zip(segments, ends, strict=True):
            timestamp = segment.largest_timestamp.timestamp
            if timestamp == NO_TIMESTAMP:
                timestamp = segment.modified_ms()
            is_active = segment is segments[-1]
            retained.append(RetainedSegment(segment.base_offset, end_offset, segment.size_bytes, timestamp, is_active))
        return retained

    def delete_old_segments(self, now_ms: int) -> list[DeletedSegment]:
        """Delete what retention's rules say, oldest first (spec E4, E5). When all may go, the active one is rolled.

        The log start offset is durable before the first file is renamed (rule 7); files are unlinked later, see
        ``deleted_files``. Publish afterwards. Thread: the writer.

        Raises:
            DiskFullError, PartitionOfflineError, PartitionFailedError.
        """
        with self._exclusive():
            self._check_online()
            return self._guarded(lambda: self._delete_old_segments(now_ms), "deleting segments")

    def _delete_old_segments(self, now_ms: int) -> list[DeletedSegment]:
        going = [entry for entry in self.retention_plan(now_ms) if entry.reason is not None]
        if not going:
            return []
        if len(going) == len(self._written.segments):
            self._roll(self._written.log_end.offset)
        doomed = self._written.segments[: len(going)]
        kept = self._written.segments[len(going) :]
        log_start_offset = max(self._written.log_start_offset, kept[0].base_offset)
        self._raise_log_start(log_start_offset)
        self._written = WrittenState(kept, log_start_offset, self._written.log_end)
        self._retire(doomed)
        return [
            DeletedSegment(entry.base_offset, segment.size_bytes, str(entry.reason))
            for entry, segment in zip(going, doomed, strict=True)
        ]

    def _retire(self, doomed: Iterable[Segment]) -> None:
        """Rename the segments' files, oldest first, and hand them over for unlinking."""
        for segment in doomed:
            paths = segment.mark_deleted()
            snapshot_path = self.producers.mark_snapshot_deleted(segment.base_offset)
            if snapshot_path is not None:
                paths.append(snapshot_path)
            self.deleted_files.add(paths, segment, self.config.file_delete_delay_ms)
        self._file_system.sync_directory(self.directory)

    def _raise_log_start(self, log_start_offset: Offset) -> None:
        if log_start_offset > self._written.log_start_offset:
            self._persist_log_start(self.name, log_start_offset)
            self.epochs.truncate_from_start(log_start_offset)

    def delete_records(self, offset: int) -> Offset:
        """Raise the log start offset to ``offset``, -1 for the high watermark; return it (spec E8).

        Durable on return. An offset at or below the log start changes nothing. Whole segments below it go with the
        next retention run. Publish afterwards. Thread: the writer.

        Raises:
            OffsetOutOfRangeError: above the high watermark.
            PolicyViolationError: the topic is only compacted.
            DiskFullError, PartitionOfflineError, PartitionFailedError.
        """
        with self._exclusive():
            self._check_online()
            if not self.config.deletes:
                raise PolicyViolationError(f"cleanup.policy of {self.name.topic} is {self.config.cleanup_policy}")
            snapshot = self.snapshot
            target = snapshot.high_watermark if offset == -1 else Offset(offset)
            if target > snapshot.high_watermark or target < 0:
                raise OffsetOutOfRangeError(
                    f"offset {offset} is not between {snapshot.log_start_offset} and the high watermark "
                    f"{snapshot.high_watermark}",
                    offset=offset,
                    log_start_offset=snapshot.log_start_offset,
                    log_end_offset=snapshot.high_watermark,
                )
            if target > self._written.log_start_offset:
                self._guarded(lambda: self._raise_log_start(target), "deleting records")
                self._written = WrittenState(self._written.segments, target, self._written.log_end)
            return self._written.log_start_offset

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at ``offset``, or where the batch that holds it begins... and goes on there.

        A batch that reaches over ``offset`` goes whole, and the log end is ``offset`` even so (spec E21). Publish
        afterwards. Thread: the writer, with no reader of a snapshot that shows what is cut.

        Raises:
            ValueError: negative.
            DiskFullError, PartitionOfflineError, PartitionFailedError.
        """
        if offset < 0:
            raise ValueError(f"a log cannot be truncated to offset {offset}")
        with self._exclusive(), self._flushing:
            self._check_online()
            if offset >= self._written.log_end.offset:
                self.epochs.truncate_from_end(Offset(offset))
                return
            self._guarded(lambda: self._truncate(Offset(offset)), "truncating")

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is one empty segment at ``offset`` (spec E21). As ``truncate_to`` otherwise."""
        if offset < 0:
            raise ValueError(f"a log cannot start at offset {offset}")
        with self._exclusive(), self._flushing:
            self._check_online()
            self._guarded(lambda: self._start_at(Offset(offset)), "truncating")

    def _truncate(self, offset: Offset) -> None:
        segments = self._written.segments
        if offset < segments[0].base_offset:
            self._start_at(offset)
            return
        kept = tuple(segment for segment in segments if segment.base_offset <= offset)
        log_start_offset = min(self._written.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._retire(segments[len(kept) :])
        kept[-1].truncate_to(offset)
        self._end_at(kept, log_start_offset, offset)

    def _start_at(self, offset: Offset) -> None:
        self.recovery_point = min(self.recovery_point, offset)
        self._persist_log_start(self.name, offset)
        self._retire(self._written.segments)
        self.producers.truncate_fully()
        fresh = self._create_segment(offset)
        self._file_system.sync_directory(self.directory)
        self._end_at((fresh,), offset, offset)

    def _end_at(self, segments: tuple[Segment, ...], log_start_offset: Offset, offset: Offset) -> None:
        log_end = LogOffsetMetadata(offset, segments[-1].base_offset, Position(segments[-1].size_bytes))
        self._written = WrittenState(segments, log_start_offset, log_end)
        self.epochs.truncate_from_end(offset)
        replay_producers(self.producers, segments, log_start_offset, offset)
        if self._durable_end.offset > offset:
            self._durable_end = log_end
        high_watermark = self.snapshot.high_watermark_metadata
        if high_watermark.offset >= offset or high_watermark.segment_base_offset > log_end.segment_base_offset:
            high_watermark = log_end
        self.snapshot = self._make_snapshot(self._written, high_watermark)

    # Settings and the end

    def update_config(self, config: TopicConfig) -> None:
        """Take other settings from now on; what is written keeps its form. Thread: the writer."""
        self.config = config

    def take_offline(self, reason: str) -> None:
        """Refuse appends from now on; what was written before stays readable to who holds a snapshot."""
        if self.offline_reason is None:
            self.offline_reason = reason

    def close(self) -> bool:
        """Flush, write the producer snapshot, trim the files; whether that was all done, so that nothing need be
        recovered. Thread: the writer, last of all."""
        if self._closed:
            return True
        with self._exclusive():
            self._closed = True
            if self.offline_reason is not None:
                return False
            try:
                self.flush()
                self.producers.take_snapshot(self._written.log_end.offset)
                self._written.active.seal()
                self._file_system.sync_directory(self.directory)
            except (OSError, StorageError) as error:
                _logger.error("%s could not be closed cleanly: %s", self.name, error)
                return False
            self.offline_reason = "the log is closed"
            return True

    # Failing

    def _exclusive(self) -> _OneWriter:
        return _OneWriter(self._writing, self.name)

    def _check_online(self) -> None:
        if self.offline_reason is not None:
            raise PartitionOfflineError(f"{self.name} takes no appends: {self.offline_reason}")

    def _guarded(self, work: Callable[[], AnswerT], doing: str) -> AnswerT:
        try:
            return work()
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                raise self._no_room(error) from error
            raise self._fail(error, doing) from error

    def _no_room(self, error: OSError) -> DiskFullError:
        return DiskFullError(f"the disk of {self.name} takes no more: {error.strerror}")

    def _fail(self, error: OSError, doing: str) -> PartitionFailedError:
        """Take the partition offline after a disk failure (invariant 10)."""
        self.take_offline(f"{doing} failed: {error.strerror or error}")
        _logger.error("%s is offline: %s failed: %s", self.name, doing, error)
        return PartitionFailedError(f"{self.name}: {doing} failed: {error.strerror or error}")


class _OneWriter:
    """Refuses a second writer instead of waiting for the first: two are a bug (invariant 1)."""

    def __init__(self, lock: threading.Lock, name: PartitionName) -> None:
        self._lock = lock
        self._name = name

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(f"{self._name} has a second writer")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def replay_producers(
    producers: ProducerState, segments: Sequence[Segment], log_start_offset: Offset, log_end_offset: Offset
) -> None:
    """Restore the producers from their newest snapshot and the batches after it (spec E20)."""
    first = max(segments[0].base_offset, Offset(0))
    restored = producers.load(first, log_end_offset)
    for segment in segments:
        if segment is not segments[-1] and _next_base(segments, segment) <= restored:
            continue
        for batch in segment.walk(0, segment.size_bytes):
            if batch.header.base_offset >= max(restored, log_start_offset) and not batch.header.is_control:
                producers.update(batch.header)


def _next_base(segments: Sequence[Segment], segment: Segment) -> Offset:
    return segments[segments.index(segment) + 1].base_offset
