"""One partition's log: its one writer, its flushes, and the snapshots its readers hold."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from log_model.batches.append_request import AppendRequest, AppendResult
from log_model.config import TopicConfig
from log_model.epochs import EpochEntry
from log_model.errors import (
    NO_ROOM_ERRNOS,
    NO_ROOM_ERRORS,
    DiskFailedError,
    OffsetOutOfRangeError,
    PartitionFailedError,
    PartitionOfflineError,
    PolicyViolationError,
    StorageError,
)
from log_model.names import PartitionName
from log_model.offsets import LeaderEpoch, Offset
from log_model.producers import ProducerBatch
from log_model.retention import DeletedSegment, RetentionEntry, RetentionReason
from log_model.transactions import NOTHING_UNSTABLE, TransactionMarker
from rollway.records import BatchHeader
from storage.log.copied_append import CopiedAppend
from storage.log.deleted_files import DeletedFiles
from storage.log.files_at_rest import begin_change, leave_at_rest
from storage.log.leader_epochs import LeaderEpochs
from storage.log.log_snapshot import LogSnapshot
from storage.log.log_truncation import LogTruncation
from storage.log.log_writer import LogWriter
from storage.log.one_writer import OneWriter
from storage.log.retention import find_reasons, plan_retention, retained_segments
from storage.log.written_log import LogParts, first_high_watermark
from storage.producers.producer_state import ProducerState
from storage.segment.segment import Segment

__all__ = ["AppendRequest", "AppendResult", "DeletedSegment", "PartitionLog", "TransactionMarker"]

_logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class PartitionLog:
    """The log of one partition: ordered segments, one writer, any number of readers.

    The writer calls ``append`` and the other methods that change the log. Readers take ``snapshot`` once and never
    wait. ``flush`` may run in another thread beside an append. Bytes are written first, then index entries, and
    ``publish`` shows them, in one assignment (invariants 1 to 4).

    After a disk failure the log is offline (``offline_reason``): appends are refused, reads go on.

    ``append_c`` appends beside ``append``, under the same lock. For it alone ``writer``, ``writing`` (the lock) and
    ``fail`` are public.
    """

    def __init__(self, parts: LogParts) -> None:
        """Take over a log as recovery or creation left it: everything up to the log end is durable."""
        self._file_system = parts.file_system
        self._clock = parts.clock
        self.writer = LogWriter(parts)
        self.due_writeback = self.writer.due_writeback
        self._truncation = LogTruncation(self.writer)
        self._copied = CopiedAppend(self.writer, self._truncation)
        self.name: PartitionName = parts.name
        self.topic_id: str = parts.topic_id
        self.directory: Path = parts.directory
        self.damage = parts.damage
        self.replicas = parts.replicas
        self.replicas.min_insync_replicas = parts.config.min_insync_replicas
        self.offline_reason: str | None = None
        self.writing = threading.Lock()
        self._exclusive = OneWriter(self.writing, parts.name)
        self._closed = False
        if parts.damage:
            ranges = ", ".join(f"{damaged.start} to {damaged.end}" for damaged in parts.damage)
            hint = "" if parts.damage_hint is None else f"; {parts.damage_hint}"
            self.offline_reason = f"offsets {ranges} are damaged on disk; the partition is read-only{hint}"
        self.snapshot = self.writer.written.shown(first_high_watermark(parts, self.writer), self.damage)
        self.writer.high_watermark = self.snapshot.high_watermark

    # State

    @property
    def config(self) -> TopicConfig:
        """The settings of the topic that this log applies."""
        return self.writer.config

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the written batches."""
        return self.writer.epochs

    @property
    def producers(self) -> ProducerState:
        """The idempotent producers of the written batches."""
        return self.writer.producers

    @property
    def deleted_files(self) -> DeletedFiles:
        """Files of deleted segments that wait to be unlinked."""
        return self.writer.deleted_files

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch stamped into batches."""
        return self.writer.leader_epoch

    @property
    def recovery_point(self) -> Offset:
        """The offset below which all is durable. The checkpoint has the ``fsynced_end`` of segments (spec E25)."""
        return self.writer.recovery_point

    @property
    def written_end_offset(self) -> Offset:
        """The offset of the next record. It is ahead of the snapshot's log end while a group is being written."""
        return self.writer.written.log_end.offset

    @property
    def durable_end_offset(self) -> Offset:
        """The offset below which everything survives a power cut."""
        return self.writer.durable_end.offset

    @property
    def unflushed_count(self) -> int:
        """The records that no fsync has covered yet."""
        return max(0, self.written_end_offset - self.durable_end_offset)

    @property
    def unflushed_bytes(self) -> int:
        """The bytes of the active segment that no fsync has covered yet."""
        end, durable = self.writer.written.log_end, self.writer.durable_end
        return end.position - (durable.position if end.segment_base_offset == durable.segment_base_offset else 0)

    # Publishing

    def publish(self) -> LogSnapshot:
        """Show readers the written log end and, up to the high watermark, the records that all copies in sync have.

        With ``flush.policy=group`` the local copy counts as far as fsyncs have covered it (spec E24).

        Thread: one at a time, the same that reads ``snapshot`` to decide about waiting (invariant 7).
        """
        writer = self.writer
        written = writer.written
        end = bound = written.log_end
        if writer.config.flush_policy == "group" and writer.durable_end.offset < end.offset:
            bound = writer.durable_end
        current = self.snapshot.high_watermark_metadata
        if current.offset <= end.offset:
            bound = self.replicas.high_watermark(bound, current, self._clock.elapsed_ms)
        if bound is end and written.unstable is NOTHING_UNSTABLE:  # common: readers may see all that is written
            start = written.log_start_offset
            self.snapshot = LogSnapshot(written.segments, written.base_offsets, start, end, end, end, self.damage)
        else:
            self.snapshot = written.shown(bound, self.damage)
        writer.high_watermark = self.snapshot.high_watermark
        return self.snapshot

    def copied_offset(self) -> Offset:
        """Return the offset up to which all copies in sync have the log. The local copy counts up to its written end.

        Thread: any.
        """
        snapshot = self.snapshot
        copied = self.replicas.high_watermark(
            snapshot.log_end_metadata, snapshot.high_watermark_metadata, self._clock.elapsed_ms
        )
        return copied.offset

    # Appending

    def append(self, group: Sequence[AppendRequest]) -> list[AppendResult | StorageError]:
        """Give the batches of each request consecutive offsets and write them; one answer per request, in order.

        All batches of one request or none of them: a refused request, or one for which the disk had no room, gets
        its error as its answer and the next requests go on. The active segment is rolled first when a roll condition
        holds (spec E6). Readers see the group when the caller publishes it.

        Thread: the partition's writer only; a second caller is a bug and is refused.
        Durable: no, except as ``flush.messages`` asks. ``flush`` makes it so; the high watermark waits for it.

        Raises:
            PartitionOfflineError: the partition is offline; nothing was written.
            PartitionFailedError: the disk refused; what reached it is unknown, and the partition is offline now.
        """
        with self._exclusive:
            self._check_online()
            try:
                self._guarded(lambda: None, "opening its files")
            except (*NO_ROOM_ERRORS, DiskFailedError) as error:
                return [error for _ in group]
            try:
                answers = self.writer.append(group)
            except OSError as error:
                raise self.fail(error, "appending") from error
        if self.unflushed_count >= self.config.flush_messages:
            self.flush()
        return answers

    def appends_without_waiting(self, request: AppendRequest) -> bool:
        """Return whether ``append`` of this request alone would not roll, flush or read. Thread: the writer."""
        writer = self.writer
        return (
            self.offline_reason is None
            and not self.writing.locked()
            and self.unflushed_count + request.record_count < writer.config.flush_messages
            and writer.appends_without_waiting(request)
        )

    def append_copied(self, content: bytes) -> Offset:
        """Append batches as this partition's leader stored them. Return the log end (spec E18).

        The batches have offsets and epochs, the first offset at the log end or above it. An empty log restarts at a
        batch that reaches over its start. Publish afterwards. Thread: the writer. Durable: no, see ``flush``.

        Raises:
            CorruptBatchError: not whole batches with rising offsets. Nothing was written.
            UnexpectedAppendOffsetError: the first batch lies below the log end. Nothing was written.
            DiskFullError, TooManyOpenFilesError, PartitionOfflineError, PartitionFailedError.
        """
        with self._exclusive:
            self._check_online()
            self._guarded(lambda: self._copied.append(content), "appending")
            return self.written_end_offset

    # Leading

    def promote(self) -> EpochEntry:
        """Begin a new leader epoch at the log end; return it. Durable: on return, and so are all batches before.

        Publish afterwards. Thread: the writer.

        Raises:
            DiskFullError, TooManyOpenFilesError, PartitionOfflineError, PartitionFailedError.
        """
        with self._exclusive:
            self._check_online()
            self.flush()
            entry = EpochEntry(LeaderEpoch(self.leader_epoch + 1), self.written_end_offset)
            self._guarded(lambda: self.writer.begin_epoch(entry), "beginning a leader epoch")
            self.replicas.begin_epoch(self._clock.elapsed_ms())
            return entry

    # Rolling

    def roll(self) -> None:
        """Seal the active segment, durably, and begin another at the log end. Change nothing if it is empty.

        Thread: the writer. Publish afterwards.

        Raises:
            DiskFullError, TooManyOpenFilesError, PartitionOfflineError, PartitionFailedError.
        """
        with self._exclusive:
            self._check_online()
            self._guarded(lambda: self.writer.roll(self.written_end_offset), "rolling")

    def roll_due(self) -> bool:
        """Return whether the active segment is older than ``segment.ms`` by elapsed time. An empty one never is."""
        active = self.writer.written.active
        age_ms = self._clock.elapsed_ms() - active.created_ms
        return active.size_bytes > 0 and age_ms > self.config.segment_ms - active.jitter_ms

    # Flushing

    def flush(self, *, to_segment: bool = False) -> Offset:
        """Make all batches that are written so far durable; return the new recovery point.

        One fsync for all appends before it (group commit); ``to_segment`` also covers what the journal made durable.

        Thread: any; one at a time, further calls wait for it. May run beside an append.

        Raises:
            PartitionFailedError: the fsync failed. It is never tried again: the partition is offline (disk rule 3).
        """
        with self.writer.flushing:
            writer = self.writer
            written = writer.written
            if is_due := written.log_end.offset > (writer.fsynced_end if to_segment else writer.durable_end.offset):
                if self.offline_reason is not None:
                    raise PartitionFailedError(f"{self.name} is offline: {self.offline_reason}")
                try:
                    written.active.flush(written.log_end.position)
                except OSError as error:
                    raise self.fail(error, "fsync") from error
                if self.offline_reason is not None:
                    raise PartitionFailedError(f"{self.name} is offline: {self.offline_reason}")
            if self.offline_reason is None:
                if is_due or writer.journal is None:
                    writer.advance_durable_end(written.log_end)
                writer.last_flush_ms = self._clock.elapsed_ms()
            return writer.recovery_point

    def flush_due(self) -> bool:
        """Return whether ``flush.ms`` or ``flush.messages`` requires a flush now (spec B4)."""
        if self.unflushed_count == 0 or self.offline_reason is not None:
            return False
        waited_ms = self._clock.elapsed_ms() - self.writer.last_flush_ms
        return waited_ms >= self.config.flush_ms or self.unflushed_count >= self.config.flush_messages

    def check_files(self) -> None:
        """Take the log offline if another process cut or removed the file that appends go to. Thread: the writer."""
        with self._exclusive:
            if self.offline_reason is None:
                self._guarded(self.writer.check_files, "looking after its files", changes=False)

    # Producers

    def find_repeated(self, headers: Sequence[BatchHeader]) -> ProducerBatch | None:
        """Return the request in the log that these batches repeat, as if it were one batch. Thread: the writer."""
        return self.writer.find_repeated(headers)

    def expire_producers(self) -> int:
        """Forget producers that were idle for too long; return how many (spec E19, case PS-6). Thread: the writer."""
        with self._exclusive:
            return self.producers.expire()

    # Retention and deletion

    def retention_plan(self, now_ms: int) -> list[RetentionEntry]:
        """Return the segments that retention would delete, and why it keeps the rest. Changes nothing. Thread: any."""
        snapshot = self.snapshot
        return plan_retention(
            retained_segments(snapshot.segments, snapshot.log_end_offset),
            self.config,
            now_ms=now_ms,
            log_start_offset=snapshot.log_start_offset,
            high_watermark=snapshot.high_watermark,
        )

    def has_old_segments(self, now_ms: int) -> bool:
        """Return whether retention would delete any once all is durable. Changes and opens nothing. Thread: any."""
        shown = self.snapshot
        return bool(
            self._reasons(shown.segments, shown.log_start_offset, shown.log_end_offset, shown.log_end_offset, now_ms)
        )

    def _reasons(
        self, segments: Sequence[Segment], log_start: Offset, log_end: Offset, high_watermark: Offset, now_ms: int
    ) -> list[RetentionReason]:
        retained = retained_segments(segments, log_end)
        return find_reasons(
            retained, self.config, now_ms=now_ms, log_start_offset=log_start, high_watermark=high_watermark
        )

    def delete_old_segments(self, now_ms: int) -> list[DeletedSegment]:
        """Delete segments by retention's rules, oldest first (spec E4, E5). If all may go, roll the active one.

        The log start offset is durable before the first file is renamed (disk rule 7); files are unlinked later, see
        ``deleted_files``. Publish afterwards. Thread: the writer.

        Raises:
            DiskFullError, TooManyOpenFilesError, PartitionOfflineError, PartitionFailedError.
        """
        with self._exclusive:
            self._check_online()
            return self._guarded(lambda: self._delete_old_segments(now_ms), "deleting segments", changes=False)

    def _delete_old_segments(self, now_ms: int) -> list[DeletedSegment]:
        # The written log counts, not the snapshot: records that wait for their fsync hold the active segment.
        written = self.writer.written
        high_watermark = self.snapshot.high_watermark
        reasons = self._reasons(
            written.segments, written.log_start_offset, written.log_end.offset, high_watermark, now_ms
        )
        if not reasons:
            return []
        begin_change(self.writer)
        if len(reasons) == len(written.segments):
            # The new segment needs a little room before the deletion of the old ones frees theirs.
            self.writer.checkpoints.ballast.run(lambda: self.writer.roll(self.written_end_offset))
        doomed = self.writer.drop_oldest(len(reasons))
        return [
            DeletedSegment(segment.base_offset, segment.size_bytes, str(reason))
            for segment, reason in zip(doomed, reasons, strict=True)
        ]

    def delete_records(self, offset: int) -> Offset:
        """Raise the log start offset to ``offset``, -1 for the high watermark; return it (spec E8).

        Durable on return. An offset at or below the log start changes nothing. Whole segments below it go with the
        next retention run. Publish afterwards. Thread: the writer.

        Raises:
            OffsetOutOfRangeError: above the high watermark.
            PolicyViolationError: the topic is only compacted.
            DiskFullError, TooManyOpenFilesError, PartitionOfflineError, PartitionFailedError.
        """
        with self._exclusive:
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
            if target > snapshot.log_start_offset:
                self._guarded(lambda: self.writer.raise_log_start(target), "deleting records")
            return self.writer.written.log_start_offset

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Forget everything from ``offset`` on. Leave the log as it is if it ends below.

        A batch that reaches over ``offset`` goes whole, and the log end is ``offset`` even so, which may leave a gap
        (spec E21). Published on return. Thread: the writer, while no reader holds a snapshot with the records to cut.

        Raises:
            ValueError: negative.
            DiskFullError, TooManyOpenFilesError, PartitionOfflineError, PartitionFailedError.
        """
        if offset < 0:
            raise ValueError(f"a log cannot be truncated to offset {offset}")
        with self._exclusive, self.writer.flushing:
            self._check_online()
            if offset >= self.written_end_offset:
                self._guarded(lambda: self.writer.end_epochs_at(Offset(offset)), "truncating")
            else:
                self._guarded(lambda: self._truncation.truncate_to(Offset(offset)), "truncating")
                self._publish_shorter()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything. The log is one empty segment at ``offset`` then (spec E21). Otherwise as ``truncate_to``."""
        if offset < 0:
            raise ValueError(f"a log cannot start at offset {offset}")
        with self._exclusive, self.writer.flushing:
            self._check_online()
            self._guarded(lambda: self._truncation.start_at(Offset(offset)), "truncating")
            self._publish_shorter()

    def _publish_shorter(self) -> None:
        """Show a truncated log. Only here the high watermark falls (invariant 6)."""
        self.snapshot = self.writer.written.shown_shorter(self.snapshot.high_watermark_metadata, self.damage)
        self.writer.high_watermark = self.snapshot.high_watermark

    # Settings and the end

    def update_config(self, config: TopicConfig) -> None:
        """Apply other settings from now on. Batches that are written keep their form. Thread: the writer."""
        self.writer.config = config
        self.replicas.min_insync_replicas = config.min_insync_replicas

    def take_offline(self, reason: str) -> None:
        """Refuse appends from now on. Holders of a snapshot can still read the records before."""
        if self.offline_reason is None:
            self.offline_reason = reason

    def moved_to(self, directory: Path) -> None:
        """Note that the log's directory was renamed. Holders of a snapshot read on from ``directory``."""
        for segment in self.writer.written.segments:
            segment.moved_to(directory)

    def close_files(self) -> None:
        """Leave the files as a clean stop does, and close them until they are next used. Thread: the writer."""
        with self._exclusive:
            self._check_online()
            if not self.writer.is_untouched:
                self.flush(to_segment=True)
                self._guarded(lambda: leave_at_rest(self.writer), "closing its files", changes=False)
            for segment in self.writer.written.segments:
                segment.close_files()

    def close(self) -> bool:
        """Flush, write the producer snapshot, trim the files. Return whether all succeeded: then no recovery is due.
        Thread: the writer, as its last call.
        """
        if self._closed:
            return True
        with self._exclusive:
            self._closed = True
            if self.offline_reason is not None:
                return False
            if self.writer.is_untouched:
                self.offline_reason = "the log is closed"
                return True
            try:
                self.flush(to_segment=True)
                self.publish()
                leave_at_rest(self.writer)
            except (OSError, StorageError) as error:
                _logger.error("%s could not be closed cleanly: %s", self.name, error)
                return False
            self.offline_reason = "the log is closed"
            return True

    # Failing

    def _check_online(self) -> None:
        if self.offline_reason is not None:
            raise PartitionOfflineError(f"{self.name} takes no appends: {self.offline_reason}")

    def _guarded(self, work: Callable[[], AnswerT], doing: str, *, changes: bool = True) -> AnswerT:
        try:
            if changes:
                begin_change(self.writer)
            return work()
        except OSError as error:
            if error.errno in NO_ROOM_ERRNOS:
                raise self.writer.no_room(error) from error
            raise self.fail(error, doing) from error

    def fail(self, error: OSError, doing: str) -> PartitionFailedError:
        """Take the partition offline after a disk failure (invariant 10)."""
        self.writer.failed = True
        self.take_offline(f"{doing} failed: {error.strerror or error}")
        _logger.error("%s is offline: %s failed: %s", self.name, doing, error)
        return PartitionFailedError(f"{self.name}: {doing} failed: {error.strerror or error}")
