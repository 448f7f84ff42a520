"""Truncation of a log. A crash on the way leaves it as before, shorter but whole, or as wanted (spec E21)."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from log_model.errors import NO_ROOM_ERRORS
from log_model.offsets import Offset
from storage.disk.truncation_gaps import TruncationGap
from storage.log.written_log import WrittenLog
from storage.segment.segment import Segment


class LogTruncation:
    """Makes a writer's log shorter, or makes it begin at another offset.

    Thread: the partition's writer only, with no reader of a snapshot that shows truncated offsets.

    Raises (from every method):
        DiskFullError, TooManyOpenFilesError: no space; the log is as before.
        OSError: the disk failed, or the truncation is half done; the next start finishes it or undoes it.
    """

    def __init__(self, writer: WrittenLog) -> None:
        self._writer = writer

    def truncate_to(self, offset: Offset) -> None:
        """End the log at ``offset``, below its current end. A batch that reaches over ``offset`` is removed whole."""
        writer = self._writer
        writer.leave_journal()
        segments = writer.written.segments
        if offset < segments[0].base_offset:
            self.start_at(offset)
            return
        kept = tuple(segment for segment in segments if segment.base_offset <= offset)
        kept_end = _end_below(kept[-1], offset)
        log_start_offset = min(writer.written.log_start_offset, offset)
        self._lower_recovery_point(kept_end)
        if log_start_offset < writer.written.log_start_offset:
            writer.checkpoints.set_log_start(writer.name, log_start_offset)
        if kept_end < offset:
            self.note_gap(kept_end, offset)
        with _whole_or_offline():
            self._retire_from_end(segments[len(kept) :])
            kept[-1].truncate_to(offset)
            writer.end_at(kept, log_start_offset, offset)
            if kept_end < offset:
                writer.roll(offset)
            gaps = writer.checkpoints.gaps
            gaps.keep(writer.name, [gap for gap in gaps.of(writer.name) if gap.end <= offset])

    def start_at(self, offset: Offset) -> None:
        """Remove everything; the log is one empty segment at ``offset``."""
        writer = self._writer
        writer.leave_journal()
        self._lower_recovery_point(offset)
        if offset > writer.written.log_start_offset:
            self._raise_log_start(offset)
        with _whole_or_offline():
            self._retire_from_end(writer.written.segments)
            # A lower log start comes last: segments that begin above it would look like the rest of a longer log.
            writer.checkpoints.set_log_start(writer.name, offset)
            writer.producers.truncate_fully()
            fresh = writer.create_segment(offset)
            writer.sync_directory()
            writer.end_at((fresh,), offset, offset)
            writer.checkpoints.gaps.keep(writer.name, ())

    def _raise_log_start(self, offset: Offset) -> None:
        """Write a log start above the log end. On failure restore the old one, because the next start of the process
        removes a log that ends below its log start."""
        writer = self._writer
        try:
            writer.checkpoints.set_log_start(writer.name, offset)
        except OSError:
            with _whole_or_offline():
                writer.checkpoints.set_log_start(writer.name, writer.written.log_start_offset)
            raise

    def skip_to(self, offset: Offset) -> None:
        """Continue the log at ``offset``, above its end, in a new segment. The offsets between have no records."""
        log_end = self._writer.written.log_end.offset
        if offset > log_end:
            self.note_gap(log_end, offset)
            self._writer.roll(offset)

    def note_gap(self, start: Offset, end: Offset) -> None:
        """Write a gap down before it exists; otherwise recovery would take it for damage. If the gap never comes into
        being, recovery forgets it."""
        self._writer.checkpoints.gaps.add(self._writer.name, TruncationGap(start, end))

    def _retire_from_end(self, doomed: Sequence[Segment]) -> None:
        """Delete the newest first and each durably, so that a crash leaves no hole."""
        for segment in reversed(doomed):
            self._writer.retire((segment,))

    def _lower_recovery_point(self, offset: Offset) -> None:
        # In memory first: a checkpoint that runs in between must not write the higher one again.
        self._writer.recovery_point = min(self._writer.recovery_point, offset)
        self._writer.fsynced_end = min(self._writer.fsynced_end, offset)
        self._writer.checkpoints.lower_recovery_point(self._writer.name, offset)


@contextmanager
def _whole_or_offline() -> Iterator[None]:
    """Turn a lack of space into EIO: a half-done truncation cannot be undone, so the partition goes offline."""
    try:
        yield
    except (OSError, *NO_ROOM_ERRORS) as error:
        raise OSError(errno.EIO, f"a truncation is half done: {error}") from error


def _end_below(segment: Segment, offset: Offset) -> Offset:
    """Return the end of the batches wholly below ``offset``: ``offset`` itself unless it is inside a batch or a gap."""
    before = segment.locate(Offset(offset - 1), segment.size_bytes)
    if before is not None and before.header.last_offset == offset - 1:
        return offset
    end = segment.base_offset
    for batch in segment.walk(0, segment.size_bytes):
        if batch.header.last_offset >= offset:
            break
        end = Offset(batch.header.last_offset + 1)
    return end
