"""The journal of a data directory: it makes the small appends of many logs durable with one fsync (ADR 23).

A *piece* is what a log has written since it was last durable. An *entry* has the pieces of one call of ``flush``. It
makes them durable at once; the segments' own files follow when ``free`` runs, or when a segment is sealed. After a
crash ``replay`` writes the pieces to their segments again.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from log_model.errors import PartitionFailedError
from log_model.names import PartitionName
from log_model.offsets import LogOffsetMetadata
from storage.disk.topic_metadata import new_topic_id
from storage.journal.entries import HEADER_BYTES, PIECE_OVERHEAD_BYTES, Piece, encode
from storage.journal.journal_files import JournalFile, JournalFiles, NoRoomError
from storage.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

PIECE_BYTES_MAX = 64 * 1024
"""A larger piece would be written twice for nothing: the fsync of its segment costs about as much."""


class _Taken(NamedTuple):
    log: PartitionLog
    end: LogOffsetMetadata
    piece: Piece


class Journal:
    """The one journal of a data directory. It begins with the first flush that needs it.

    A disk that refuses an entry ends the journal until the next start: nothing is tried twice (disk rule 3). Flushes
    then take the logs' own way.

    Thread: any. Writing an entry takes turns; ``free`` runs beside it.
    """

    def __init__(self, files: JournalFiles, mark: Callable[[str | None], None]) -> None:
        """``mark`` notes durably whose entries a start must replay, by the journal's id, or ``None``."""
        self._files = files
        self._mark = mark
        self._writing = threading.Lock()
        self._freeing = threading.Lock()
        self._id: str | None = None
        self._sequence = 0
        self._has_ended = files.is_off
        self._is_marked = False
        self._is_stuck = False

    @property
    def needs_freeing(self) -> bool:
        """Whether ``free`` has work. Thread: any."""
        if self._has_ended:
            return self._is_marked and not self._is_stuck
        return any(not file.is_stuck for file in self._files.full[:1])

    @property
    def is_usable(self) -> bool:
        """Whether ``flush`` may make logs durable: there is a journal, and the disk has not refused it."""
        return not self._has_ended

    def flush(self, logs: Sequence[PartitionLog]) -> list[bool | PartitionFailedError]:
        """Make what these logs have written durable, with one fsync for all. Publish them afterwards.

        Return one answer for each log: true, all that was written when the call began is durable; false, the log must
        be flushed by itself, for example because it has written much; or the error with which it failed. Each of the
        logs that share a failed fsync is offline.
        """
        answers: list[bool | PartitionFailedError] = [False] * len(logs)
        with self._writing:
            if self._has_ended:
                return answers
            taken: list[tuple[int, _Taken]] = []
            try:
                room_bytes = self._files.entry_bytes_max - HEADER_BYTES
                for place, log in enumerate(logs):
                    if not log.writer.flushing.acquire(blocking=False):
                        continue
                    found = _take(log)
                    if isinstance(found, _Taken) and len(found.piece.content) + PIECE_OVERHEAD_BYTES <= room_bytes:
                        room_bytes -= len(found.piece.content) + PIECE_OVERHEAD_BYTES
                        taken.append((place, found))
                        continue
                    log.writer.flushing.release()
                    if not isinstance(found, _Taken):
                        answers[place] = found
                if taken and self._can_write():
                    self._make_durable(taken, answers)
            finally:
                for _, each in taken:
                    each.log.writer.flushing.release()
        return answers

    def forget(self, name: PartitionName, topic_id: str) -> None:
        """Let a replay forget all pieces of a log so far. Durable: on return. The log's own files have them.

        Raises:
            OSError: the disk refused; a replay may still write them.
        """
        with self._writing:
            if not self._is_marked:
                return
            if not self._can_write():
                raise OSError(errno.EIO, "the journal has failed before")
            try:
                self._write([Piece.forgetting(topic_id, name.partition)], may_wait=False)
                self._files.sync()
                self._sequence += 1
            except OSError as error:
                self._end(error)
                raise

    def free(self) -> None:
        """Make the segments durable that need entries of full files, so that those files can be used again.

        A file whose logs cannot be flushed keeps its entries until the next start, and so do all files behind it.
        """
        with self._freeing:
            with self._writing:
                files = [file for file in self._files.full if not file.is_stuck]
                if self._has_ended and self._files.current is not None:
                    files.append(self._files.current)
                waiting = [(file, list(file.logs.items())) for file in files]
            are_free = [self._settle(logs) for _, logs in waiting]
            with self._writing:
                for (file, _), is_free in zip(waiting, are_free, strict=True):
                    file.is_stuck = not is_free
                    # Only the oldest: a replay needs every entry from the first of a file that is kept.
                    if is_free and file in self._files.full[:1]:
                        self._files.release(file)
                if self._has_ended:
                    self._is_stuck = bool(self._files.full) or not all(are_free)
                    if not self._is_stuck:
                        self._unmark()

    def end(self) -> None:
        """Note durably that no log needs the journal, for example after all were closed.

        Raises:
            OSError: the disk refused.
        """
        with self._writing:
            self._has_ended = True
            self._unmark()

    def _unmark(self) -> None:
        if self._is_marked:
            self._mark(None)
            self._is_marked = False

    # Writing: the caller holds ``_writing``

    def _can_write(self) -> bool:
        if self._has_ended:
            return False
        if self._id is None:
            journal_id = new_topic_id()
            try:
                self._files.prepare()
                # Even a mark that is not durable may be found by the next start.
                self._is_marked = True
                self._mark(journal_id)
            except OSError as error:
                self._end(error)
                return False
            self._id = journal_id
        return True

    def _make_durable(self, taken: Sequence[tuple[int, _Taken]], answers: list[bool | PartitionFailedError]) -> None:
        try:
            self._write([each.piece for _, each in taken])
        except NoRoomError:
            if self._files.full[0].is_stuck:
                self._end(OSError(errno.ENOSPC, "its oldest file is of a partition that the disk has refused"))
            return
        except OSError as error:
            # No log depends on this entry, but a replay may find it.
            for _, each in taken:
                each.log.writer.journal = self
            self._end(error)
            return
        try:
            self._files.sync()
        except OSError as error:
            self._end(error)
            for place, each in taken:
                failure = OSError(errno.EIO, f"fsync failed: {error.strerror}")
                answers[place] = each.log.fail(failure, "the journal's fsync")
            return
        self._sequence += 1
        file = self._files.current
        assert file is not None
        for place, each in taken:
            each.log.writer.note_journaled(each.end, self)
            file.logs[each.log] = each.end.offset
            answers[place] = True

    def _write(self, pieces: Sequence[Piece], *, may_wait: bool = True) -> None:
        """Write an entry; durable after a sync.

        Raises:
            NoRoomError: all files are full. Never without ``may_wait``: the current file then grows over its limit.
        """
        assert self._id is not None
        assert self._files.current is not None
        parts = encode(self._id, self._sequence + 1, self._oldest(), pieces)
        size_bytes = sum(map(len, parts))
        if not self._files.has_room(size_bytes):
            try:
                self._files.go_on(self._close_file)
            except NoRoomError:
                if may_wait:
                    raise
            # The entry that closed a file has taken the sequence.
            parts = encode(self._id, self._sequence + 1, self._oldest(), pieces)
        self._files.put(parts, size_bytes)
        current: JournalFile = self._files.current
        current.first = current.first or self._sequence + 1
        current.position += size_bytes

    def _close_file(self) -> None:
        assert self._id is not None
        parts = encode(self._id, self._sequence + 1, self._oldest(), ())
        self._files.put(parts, sum(map(len, parts)))
        self._files.sync()
        self._sequence += 1

    def _oldest(self) -> int:
        return self._files.oldest().first or self._sequence + 1

    def _end(self, error: OSError) -> None:
        self._has_ended = True
        # Handlers may keep the argument, and the frames of an error hold the logs of topics that are deleted.
        reason = str(error)
        _logger.error("the journal takes no more: %s. Each partition is flushed by itself until the next start", reason)

    # Freeing

    def _settle(self, logs: Sequence[tuple[PartitionLog, int]]) -> bool:
        """Make the logs' own files durable up to these ends; return whether nothing needs the journal for them."""
        waiting = [log for log, end in logs if log.writer.fsynced_end < end]
        for log in waiting:
            active = log.writer.written.active
            if active.log.opened is not None:
                active.log.opened.begin_writeback(0, active.size_bytes)
        is_free = True
        for log in waiting:
            try:
                log.flush(to_segment=True)
            except PartitionFailedError:
                # The records of a deleted topic need no journal.
                is_free = is_free and not log.writer.failed
        return is_free


def _take(log: PartitionLog) -> _Taken | bool | PartitionFailedError:
    """Return what a log has written since it was durable, or the answer of ``Journal.flush`` where nothing is taken.

    The caller holds the log's ``flushing``, until the piece is durable: no truncation may come between.
    """
    writer = log.writer
    written, start = writer.written, writer.durable_end
    end = written.log_end
    length = end.position - start.position
    if end.offset <= start.offset:
        return True
    if end.segment_base_offset != start.segment_base_offset or length > PIECE_BYTES_MAX:
        return False
    if log.offline_reason is not None:
        return PartitionFailedError(f"{log.name} is offline: {log.offline_reason}")
    active = written.active.log
    try:
        # Whether the file is still at its path is checked beside, each second (``PartitionLog.check_files``).
        content = active.file.read(start.position, length)
        if len(content) != length:
            raise OSError(errno.EIO, f"{active.path} was cut by another process")
    except OSError as error:
        return log.fail(error, "flushing")
    piece = Piece(log.topic_id, log.name.partition, end.segment_base_offset, start.position, end.offset, content)
    return _Taken(log, end, piece)
