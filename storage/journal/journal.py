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

from log_model.errors import NO_ROOM_ERRNOS, PartitionFailedError
from log_model.names import PartitionName
from storage.disk.topic_metadata import new_topic_id
from storage.journal.entries import HEADER_BYTES, Piece, encode, encode_body, encode_entry, whole_blocks
from storage.journal.journal_files import JournalFile, JournalFiles, NoRoomError
from storage.journal.pieces import Answer, TakenPieces, note_journaled, take_pieces
from storage.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)


# A file system that was mounted read-only may have lost what it had taken.
_NO_ROOM_ERRNOS = NO_ROOM_ERRNOS - {errno.EROFS}


class JournalFlush:
    """A flush whose entry is written: it needs ``Journal.sync``, and then ``Journal.finish``.

    ``answers`` are those of ``Journal.flush``. ``taken`` has the pieces of the entry; ``None`` if no entry was written.
    """

    __slots__ = ("answers", "taken")

    def __init__(self, answers: list[Answer], taken: TakenPieces | None = None) -> None:
        self.answers = answers
        self.taken = taken


class Journal:
    """The one journal of a data directory. It begins with the first flush that needs it.

    A disk that refuses an entry ends the journal. Flushes then take the logs' own way. If only room was missing,
    another journal may begin once there is room (``begin_again``). Otherwise it has ended until the next start: a
    failed fsync is not tried twice (disk rule 3).

    ``has_ended`` says so to compiled code.

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
        self.has_ended = files.is_off
        self._lacks_room = False
        self._is_marked = False
        self._is_stuck = False

    @property
    def needs_freeing(self) -> bool:
        """Whether ``free`` has work. Thread: any."""
        if self.has_ended:
            return self._is_marked and not self._is_stuck
        return any(not file.is_stuck for file in self._files.full[:1])

    @property
    def is_usable(self) -> bool:
        """Whether ``flush`` may make logs durable: there is a journal, and the disk has not refused it."""
        return not self.has_ended

    def flush(self, logs: Sequence[PartitionLog]) -> list[Answer]:
        """Make what these logs have written durable, with one fsync for all. Publish them afterwards.

        Return one answer for each log: true, all that was written when the call began is durable; false, the log must
        be flushed by itself, for example because it has written much; or the error with which it failed. Each of the
        logs that share a failed fsync is offline.
        """
        flush = self.begin(logs)
        assert flush is not None
        failure = None
        try:
            if flush.taken is not None:
                self.sync()
        except OSError as error:
            failure = error
        except BaseException:
            self._let_go(flush)
            raise
        return self.finish(flush, failure)

    def begin(self, logs: Sequence[PartitionLog], *, may_wait: bool = True) -> JournalFlush | None:
        """Write the entry of a flush. Without ``may_wait``, return ``None`` where that needs a lock or an fsync.

        With an entry, the next calls are ``sync`` in any thread and ``finish`` in this one. Other flushes wait, and
        so do truncations of these logs.
        """
        if not self._writing.acquire(blocking=may_wait):
            return None
        flush = None
        try:
            flush = self._begin(logs, may_wait)
        finally:
            if flush is None or flush.taken is None:
                self._writing.release()
        return flush

    def sync(self) -> None:
        """Make the entry durable that ``begin`` wrote. It is never called again for the same entry (disk rule 3)."""
        self._files.sync()

    def descriptor_to_sync(self) -> int:
        """Return the descriptor whose ``fdatasync`` is what ``sync`` does; -1 if only ``sync`` can do it."""
        return self._files.descriptor_to_sync()

    def finish(self, flush: JournalFlush, failure: OSError | None) -> list[Answer]:
        """End a flush after ``sync``, or after its ``failure``; return the answers of ``flush``."""
        taken, answers = flush.taken, flush.answers
        if taken is None:
            return answers
        try:
            if failure is None:
                self._sequence += 1
                file = self._files.current
                assert file is not None
                note_journaled(taken, self, file)
                for place in taken.places:
                    answers[place] = True
            else:
                self._end(failure, is_final=True)
                for place, log in zip(taken.places, taken.logs, strict=True):
                    of_log = OSError(errno.EIO, f"fsync failed: {failure.strerror}")
                    answers[place] = log.fail(of_log, "the journal's fsync")
        finally:
            self._let_go(flush)
        return answers

    def _let_go(self, flush: JournalFlush) -> None:
        if flush.taken is not None:
            flush.taken.release()
            flush.taken = None
            self._writing.release()

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
                self._write(1, encode_body([Piece.forgetting(topic_id, name.partition)]), may_wait=False)
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
                if self.has_ended and self._files.current is not None:
                    files.append(self._files.current)
                waiting = [(file, [(log, each.offset) for log, each in file.logs.items()]) for file in files]
            are_free = [self._settle(logs) for _, logs in waiting]
            with self._writing:
                for (file, _), is_free in zip(waiting, are_free, strict=True):
                    file.is_stuck = not is_free
                    # Only the oldest: a replay needs every entry from the first of a file that is kept.
                    if is_free and file in self._files.full[:1]:
                        self._files.release(file)
                if self.has_ended:
                    self._is_stuck = bool(self._files.full) or not all(are_free)
                    if not self._is_stuck:
                        self._unmark()

    def end(self) -> None:
        """Note durably that no log needs the journal, for example after all were closed.

        Raises:
            OSError: the disk refused.
        """
        with self._writing:
            self.has_ended, self._lacks_room = True, False
            self._unmark()

    def begin_again(self) -> None:
        """Begin another journal if this one ended only because the disk was full, and there is room now.

        Thread: any but the loop's; it may write and fsync a few MiB.
        """
        if not self._lacks_room or not self._freeing.acquire(blocking=False):
            return
        try:
            with self._writing:
                # Until the mark is lowered, a start replays the entries of the journal that ended.
                if self._lacks_room and not self._is_marked and self._begin_journal(self._files.prepare_again):
                    self._sequence = 0
                    self.has_ended = self._lacks_room = False
                    _logger.info("the journal takes entries again: the disk has room")
        finally:
            self._freeing.release()

    def _unmark(self) -> None:
        if self._is_marked:
            self._mark(None)
            self._is_marked = False

    # Writing: the caller holds ``_writing``

    def _can_write(self) -> bool:
        return not self.has_ended and (self._id is not None or self._begin_journal(self._files.prepare))

    def _begin_journal(self, prepare: Callable[[], None]) -> bool:
        """Begin a journal with an id of its own, so that no replay takes earlier entries."""
        journal_id = new_topic_id()
        try:
            prepare()
        except OSError as error:
            self._end(error)
            return False
        # Even a mark that is not durable may be found by the next start.
        self._is_marked = True
        try:
            self._mark(journal_id)
        except OSError as error:
            self._end(error, is_final=True)
            return False
        self._id = journal_id
        return True

    def _begin(self, logs: Sequence[PartitionLog], may_wait: bool) -> JournalFlush | None:
        """Write an entry as ``begin``. Only if the result has pieces, their logs are still held."""
        answers: list[Answer] = [False] * len(logs)
        if self.has_ended:
            return JournalFlush(answers)
        if self._id is None and not may_wait:
            return None
        taken = take_pieces(logs, answers, self._files.entry_bytes_max - HEADER_BYTES)
        is_written = False
        try:
            if not taken.logs or not self._can_write():
                return JournalFlush(answers)
            if not may_wait and not self._files.takes_at_once(whole_blocks(HEADER_BYTES + len(taken.body))):
                return None
            is_written = self._write_taken(taken)
            return JournalFlush(answers, taken if is_written else None)
        finally:
            if not is_written:
                taken.release()

    def _write_taken(self, taken: TakenPieces) -> bool:
        """Write the entry with these pieces. Return false if the disk or the limits refuse it."""
        try:
            self._write(len(taken.logs), taken.body)
        except NoRoomError:
            if self._files.full[0].is_stuck:
                error = OSError(errno.ENOSPC, "its oldest file is of a partition that the disk has refused")
                self._end(error, is_final=True)
            return False
        except OSError as error:
            # No log depends on this entry, but a replay may find it.
            for log in taken.logs:
                log.writer.journal = self
            self._end(error)
            return False
        return True

    def _write(self, piece_count: int, body: bytes, *, may_wait: bool = True) -> None:
        """Write an entry; durable after a sync.

        Raises:
            NoRoomError: all files are full. Never without ``may_wait``: the current file then grows over its limit.
        """
        assert self._id is not None
        assert self._files.current is not None
        parts = encode_entry(self._id, self._sequence + 1, self._oldest(), piece_count, body)
        size_bytes = sum(map(len, parts))
        if not self._files.has_room(size_bytes):
            try:
                self._files.go_on(self._close_file)
            except NoRoomError:
                if may_wait:
                    raise
            # The entry that closed a file has taken the sequence.
            parts = encode_entry(self._id, self._sequence + 1, self._oldest(), piece_count, body)
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

    def _end(self, error: OSError, *, is_final: bool = False) -> None:
        was_lacking = self._lacks_room
        self.has_ended = True
        self._lacks_room = not is_final and not self._files.has_failed_sync and error.errno in _NO_ROOM_ERRNOS
        if was_lacking and self._lacks_room:
            return
        # Handlers may keep the argument, and the frames of an error hold the logs of topics that are deleted.
        reason = f"{error}. Each partition is flushed by itself until " + (
            "the disk has room" if self._lacks_room else "the next start"
        )
        _logger.error("the journal takes no more: %s", reason)

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
