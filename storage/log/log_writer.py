"""The writer's side of a log: giving offsets and writing batches, group by group."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from log_model.batches.append_request import AppendRequest, AppendResult, marker_batch
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import (
    NO_ROOM_ERRNOS,
    NO_ROOM_ERRORS,
    CorruptionError,
    DiskFullError,
    ExpectedOffsetMismatchError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    RefusedError,
    StorageError,
    TooManyOpenFilesError,
)
from log_model.offsets import NO_TIMESTAMP, LogOffsetMetadata, Offset, Position, TimestampOffset
from log_model.producers import ProducerBatch, add_sequence
from log_model.transactions import NOTHING_UNSTABLE, CompletedTransaction
from rollway.records import BatchHeader, ControlRecord, parse_header
from storage.index.index_file import RELATIVE_OFFSET_MAX
from storage.log.written_log import LogParts, WrittenLog, WrittenState
from storage.producers.producer_state import ProducerDraft, ProducerState
from storage.producers.repeated_requests import find_repeated

__all__ = ["AppendRequest", "AppendResult", "LogParts", "LogWriter", "WrittenState"]


# Tuples as their classes make them, without a call of a Python function for each.
_new_tuple = tuple.__new__


class _Pending(NamedTuple):
    """A request with stamped batches that waits for the write of its part of the group."""

    place: int
    batches: Sequence[ValidBatch]
    result: AppendResult


class _Waiting:
    """The requests that wait for one write, and the producers as they will be after it."""

    def __init__(self, producers: ProducerState) -> None:
        self.requests: list[_Pending] = []
        self.size_bytes = 0
        self.batch_count = 0
        self._producers = producers
        self.producers = producers.draft()

    def add(self, pending: _Pending, producers: ProducerDraft) -> None:
        self.requests.append(pending)
        self.size_bytes += sum(batch.size_bytes for batch in pending.batches)
        self.batch_count += len(pending.batches)
        self.producers.accept(producers)

    def clear(self) -> None:
        """Drop all requests, after they were written and their producers updated."""
        self.requests = []
        self.size_bytes = self.batch_count = 0
        self.producers = self._producers.draft()


class LogWriter(WrittenLog):
    """Appends to a log; see ``WrittenLog`` for the rest of what a writer does.

    Thread: the partition's writer only.

    Raises (from everything that touches the disk):
        DiskFullError, TooManyOpenFilesError: no room; the log is as before.
        OSError: the disk failed otherwise; what reached it is unknown.
    """

    # Appending

    def append(self, group: Sequence[AppendRequest]) -> list[AppendResult | StorageError]:
        """Give offsets to the batches of each request and write them. Return one answer per request, in order."""
        if len(group) == 1 and group[0].batch_count == 1 and group[0].expected_offset is None and group[0].batches:
            try:
                answer = self._append_alone(group[0].batches[0])
            except NO_ROOM_ERRORS as error:
                return [error]
            if answer is not None:
                return [answer]
        answers: list[AppendResult | StorageError] = []
        self._append_group(group, answers)
        return answers

    def _append_alone(self, batch: ValidBatch) -> AppendResult | None:
        """Write the batch of a single request that needs no roll, no producer and no transaction.

        For any other batch return ``None``, with nothing changed. ``_prepare`` and ``_write`` write such a batch the
        same way.
        """
        written, config, header = self.written, self.config, batch.header
        active = written.segments[-1]
        room = self.room
        if room is None or room.segment is not active or room.config is not config:
            room = self.find_room(active)
            if room is None:
                return None
        base_offset, position = written.log_end.offset, active.size_bytes
        end_offset = Offset(base_offset + header.last_offset_delta + 1)
        end_position = Position(position + batch.size_bytes)
        log_append_time = self.clock.now_ms() if room.stamps_time else NO_TIMESTAMP
        if (
            not active.is_ready
            or end_position > room.size_bytes_max
            or end_offset > room.end_offset_max
            or (batch.max_timestamp if log_append_time < 0 else log_append_time) > room.timestamp_max
            or room.entries_left <= 0
            or header.producer_id >= 0
            or written.unstable is not NOTHING_UNSTABLE
        ):
            return None
        if log_append_time >= 0:
            batch.set_log_append_time(log_append_time)
        batch.stamp(base_offset, self.epochs.current)
        max_timestamp = active.builder.max_timestamp
        try:
            if active.append_one(batch, Offset(end_offset - 1)):
                room.entries_left -= 1
        except OSError as error:
            self.undo_append(error, position, max_timestamp)
        if not position:
            self.room = None
        log_end = _new_tuple(LogOffsetMetadata, (end_offset, active.base_offset, end_position))
        segments, bases, start, unstable = (
            written.segments,
            written.base_offsets,
            written.log_start_offset,
            written.unstable,
        )
        self.written = _new_tuple(WrittenState, (segments, bases, start, log_end, unstable))
        count = header.record_count
        return _new_tuple(AppendResult, (base_offset, Offset(end_offset - 1), count, log_append_time, start, False))

    def appends_without_waiting(self, request: AppendRequest) -> bool:
        """Return whether ``append`` of this request alone would touch only memory and the page cache of open files."""
        active = self.written.segments[-1]
        if request.transaction_marker is not None or not request.batches or not active.is_ready or self.is_untouched:
            return False
        # The check whether several batches are repeated may read the log, and so may placing an open transaction.
        if len(request.batches) > 1 and request.batches[0].header.producer_id >= 0:
            return False
        first_open = self.written.unstable.first_open
        if first_open is not None and first_open.is_offset_only:
            return False
        return request.size_bytes <= self.config.segment_bytes and not self._must_roll(request, request.batches)

    def _append_group(self, group: Sequence[AppendRequest], answers: list[AppendResult | StorageError]) -> None:
        waiting = _Waiting(self.producers)
        for place, request in enumerate(group):
            answers.append(self._nothing())
            try:
                self._prepare(place, request, waiting, answers)
            except (*NO_ROOM_ERRORS, OSError) as failure:
                error = self._room_error(failure)
                # The other requests of the same write did not reach the disk either.
                for pending in waiting.requests:
                    answers[pending.place] = error
                waiting = _Waiting(self.producers)
                answers[place] = error
            except RefusedError as error:
                answers[place] = error
        try:
            self._write(waiting, answers)
        except NO_ROOM_ERRORS as error:
            for pending in waiting.requests:
                answers[pending.place] = error

    def append_copied(self, batch: ValidBatch, control: ControlRecord | None) -> None:
        """Write one batch as a leader stored it, at the log end. Offsets, epoch and producer are not checked here."""
        request, waiting = AppendRequest((batch,)), _Waiting(self.producers)
        header = batch.header
        if self._must_roll(request, (batch,), last_offset=Offset(header.last_offset)):
            self.roll(Offset(header.base_offset))
        active = self.written.active
        draft = waiting.producers.draft()
        if header.producer_id >= 0 and (control is not None or not header.is_control):
            place = LogOffsetMetadata(Offset(header.base_offset), active.base_offset, Position(active.size_bytes))
            draft.update(header, place=place, control=control)
        result = AppendResult(
            Offset(header.base_offset), Offset(header.last_offset), header.record_count, NO_TIMESTAMP, Offset(0)
        )
        waiting.add(_Pending(0, (batch,), result), draft)
        self._write(waiting, [result])

    def _room_error(
        self, failure: DiskFullError | TooManyOpenFilesError | OSError
    ) -> DiskFullError | TooManyOpenFilesError:
        """Return the error for callers when there is no room. Any other failure is raised again."""
        if not isinstance(failure, OSError):
            return failure
        if failure.errno not in NO_ROOM_ERRNOS:
            raise failure
        return self.no_room(failure)

    def _prepare(
        self, place: int, request: AppendRequest, waiting: _Waiting, answers: list[AppendResult | StorageError]
    ) -> None:
        """Check a request against the log, make room for it, stamp it and let it wait."""
        if not request.batch_count:
            return
        if request.size_bytes > self.config.segment_bytes and request.transaction_marker is None:
            raise RecordListTooLargeError(
                f"{request.size_bytes} bytes do not fit into a segment of {self.config.segment_bytes} bytes"
            )
        if self._may_repeat(request, waiting):
            # The check needs the waiting requests in the log.
            self._write(waiting, answers)
        duplicate = self._check_producers(request, waiting.producers)
        if duplicate is not None:
            answers[place] = duplicate
            return
        log_end = self._end_of(waiting)
        if request.expected_offset is not None and request.expected_offset != log_end:
            raise ExpectedOffsetMismatchError(request.expected_offset, log_end)
        if self._must_write_first(request, waiting):
            self._write(waiting, answers)
        batches = self._batches_of(request)
        if self._must_roll(request, batches, waiting):
            self._write(waiting, answers)
            self.roll(log_end)
        self._stamp(place, request, batches, waiting)

    def _nothing(self) -> AppendResult:
        return AppendResult(Offset(-1), Offset(-1), 0, NO_TIMESTAMP, self.written.log_start_offset)

    def _end_of(self, waiting: _Waiting) -> Offset:
        return waiting.requests[-1].result.end_offset if waiting.requests else self.written.log_end.offset

    def _may_repeat(self, request: AppendRequest, waiting: _Waiting) -> bool:
        """Return whether the request may repeat one that waits.

        It may if it is of the same producer, and not the next in sequence.
        """
        for batch in request.batches[:1]:
            entry = waiting.producers.changed.get(batch.header.producer_id)
            if entry is not None:
                return batch.header.base_sequence != add_sequence(entry.last_sequence, 1)
        return False

    def _check_producers(self, request: AppendRequest, known: ProducerDraft) -> AppendResult | None:
        """Return the first answer again if every batch of the request is in the log already (spec E19)."""
        if request.transaction_marker is not None:
            known.check_marker(request.transaction_marker)
            return None
        headers = [batch.header for batch in request.batches]
        repeated = self.find_repeated(headers, known)
        if repeated is not None:
            return self._first_answer(request, repeated, repeated)
        draft = known.draft()
        originals = []
        for header in headers:
            originals.append(draft.check(header))
            if originals[-1] is None:
                draft.update(header)
        stored = [original for original in originals if original is not None]
        if not stored:
            return None
        if len(stored) < len(originals):
            raise OutOfOrderSequenceError("some batches of the request are in the log already, others are not")
        return self._first_answer(request, stored[0], stored[-1])

    def find_repeated(self, headers: Sequence[BatchHeader], known: ProducerDraft | None = None) -> ProducerBatch | None:
        """Return the request in the log that these batches repeat; see ``repeated_requests.find_repeated``."""
        entry = (known or self.producers).find(headers[0].producer_id)
        return find_repeated(entry, headers, self._header_at, self.written.base_offsets[0])

    def _first_answer(self, request: AppendRequest, first: ProducerBatch, last: ProducerBatch) -> AppendResult:
        stamps_time = self.config.message_timestamp_type == "LogAppendTime"
        return AppendResult(
            first.first_offset,
            last.last_offset,
            request.record_count,
            first.timestamp if stamps_time else NO_TIMESTAMP,
            self.written.log_start_offset,
            duplicate=True,
        )

    def _header_at(self, offset: Offset) -> BatchHeader | None:
        """Return the header of the batch that holds ``offset``; ``None`` if there is none, or damage."""
        segment = self.written.segments[max(0, bisect_right(self.written.base_offsets, offset) - 1)]
        try:
            found = segment.locate(offset, segment.size_bytes)
        except CorruptionError:
            return None
        return None if found is None else found.header

    def _batches_of(self, request: AppendRequest) -> Sequence[ValidBatch]:
        if request.transaction_marker is None:
            return request.batches
        return (marker_batch(request.transaction_marker, self.clock.now_ms()),)

    def _stamp(self, place: int, request: AppendRequest, batches: Sequence[ValidBatch], waiting: _Waiting) -> None:
        """Give the batches their offsets and let them wait. Their producers are checked already."""
        marker, active = request.transaction_marker, self.written.active
        control = None if marker is None else ControlRecord(marker.control_type, marker.coordinator_epoch)
        draft = waiting.producers.draft()
        base_offset = self._end_of(waiting)
        position = active.size_bytes + waiting.size_bytes
        end_offset, log_append_time = self._stamp_batches(batches, base_offset)
        for batch in batches:
            if batch.header.producer_id >= 0:
                header = parse_header(batch.head)
                where = LogOffsetMetadata(Offset(header.base_offset), active.base_offset, Position(position))
                draft.update(header, place=where, control=control)
            position += batch.size_bytes
        result = AppendResult(
            base_offset, Offset(end_offset - 1), request.record_count, log_append_time, self.written.log_start_offset
        )
        waiting.add(_Pending(place, batches, result), draft)

    def _stamp_batches(self, batches: Sequence[ValidBatch], base_offset: Offset) -> tuple[Offset, int]:
        """Give batches their offsets from ``base_offset`` on. Return the offset after them, and their log append time.

        The time is ``NO_TIMESTAMP`` unless the topic stamps it.
        """
        log_append_time = NO_TIMESTAMP
        if self.config.message_timestamp_type == "LogAppendTime":
            log_append_time = self.clock.now_ms()
        leader_epoch = self.leader_epoch
        end_offset: int = base_offset
        for batch in batches:
            if log_append_time != NO_TIMESTAMP:
                batch.set_log_append_time(log_append_time)
            batch.stamp(Offset(end_offset), leader_epoch)
            end_offset += batch.header.last_offset_delta + 1
        return Offset(end_offset), log_append_time

    def _must_write_first(self, request: AppendRequest, waiting: _Waiting) -> bool:
        """Return whether the waiting requests may fill an index, so that they must be written before the check."""
        count = waiting.batch_count
        return count > 0 and self.written.active.index_room() <= count + request.batch_count

    def _must_roll(
        self,
        request: AppendRequest,
        batches: Sequence[ValidBatch],
        waiting: _Waiting | None = None,
        last_offset: Offset | None = None,
    ) -> bool:
        """Return whether the active segment must be rolled before an append (spec E6).

        ``last_offset`` is that of the request's last record if the batches have their offsets already. Otherwise they
        get the offsets from the log end on, one for each record.
        """
        active = self.written.segments[-1]
        if active.sealed:
            return True
        written_bytes = active.size_bytes
        size_bytes = written_bytes if waiting is None else written_bytes + waiting.size_bytes
        if size_bytes > self.config.segment_bytes - request.size_bytes:
            return True
        if active.index_room() <= 0 and (size_bytes > 0 or active.offset_index.get().entry_count > 0):
            return True
        if last_offset is None:
            log_end = self.written.log_end.offset if waiting is None else self._end_of(waiting)
            last_offset = Offset(log_end + request.record_count - 1)
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if size_bytes == 0:
            return False
        if self.config.message_timestamp_type == "LogAppendTime":
            newest = self.clock.now_ms()
        else:
            newest = batches[0].max_timestamp if len(batches) == 1 else max([batch.max_timestamp for batch in batches])
        first_timestamp = active.first_timestamp if written_bytes else NO_TIMESTAMP
        age_ms = self.clock.elapsed_ms() - active.created_ms
        waited_ms = newest - first_timestamp if first_timestamp >= 0 else age_ms
        return waited_ms > self.config.segment_ms - active.jitter_ms

    def _write(self, waiting: _Waiting, answers: list[AppendResult | StorageError]) -> None:
        """Write the stamped batches that wait, answer their requests, and leave none waiting.

        Raises:
            DiskFullError, TooManyOpenFilesError: there was no room. The log is as before, and the requests still wait.
            OSError: the disk failed otherwise.
        """
        if not waiting.requests:
            return
        completed = waiting.producers.completed
        self._write_batches([batch for pending in waiting.requests for batch in pending.batches], completed)
        self.producers.accept(waiting.producers)
        for pending in waiting.requests:
            answers[pending.place] = pending.result
        active = self.written.active
        log_end = LogOffsetMetadata(self._end_of(waiting), active.base_offset, Position(active.size_bytes))
        waiting.clear()
        # One assignment: no reader may see the new end without the transactions that begin below it.
        self.written = self.written.grown_to(log_end, self._unstable_after(completed))

    def _write_batches(self, batches: Sequence[ValidBatch], completed: Sequence[CompletedTransaction]) -> None:
        """Write stamped batches behind the last, all or none.

        Raises:
            DiskFullError, TooManyOpenFilesError: there was no room. The log is as before.
            OSError: the disk failed otherwise.
        """
        active = self.written.segments[-1]
        size_bytes, max_timestamp = active.size_bytes, active.builder.max_timestamp
        self.room = None
        try:
            active.append(batches)
            for transaction in completed:
                if transaction.is_aborted:
                    active.transactions.add(transaction.to_aborted())
        except OSError as error:
            self.undo_append(error, size_bytes, max_timestamp)

    def undo_append(self, error: OSError, size_bytes: int, max_timestamp: TimestampOffset) -> NoReturn:
        """Remove the bytes of an append that failed with ``error``, if there was no room. Always raises."""
        self.room = None
        if error.errno not in NO_ROOM_ERRNOS:
            raise error
        try:
            self.written.active.undo_append(size_bytes, self.written.log_end.offset, max_timestamp)
        except OSError as second:
            raise OSError(errno.EIO, "an append that found no room could not be undone") from second
        raise self.no_room(error) from error
