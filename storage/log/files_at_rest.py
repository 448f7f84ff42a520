"""The files of an unused log: as a clean stop leaves them, until the first change."""

from __future__ import annotations

from storage.log.written_log import WrittenLog


def begin_change(writer: WrittenLog) -> None:
    """Let it be known, durably, that the files change from now on, and make the active segment ready for appends.

    Raises:
        UnavailableError: that could not be noted. Nothing has changed.
        OSError: the files cannot be opened. The next call tries again.
    """
    if not writer.is_untouched:
        return
    writer.before_change(writer.topic_id, writer.name, writer.was_at_rest)
    active = writer.written.active
    active.unseal()
    _ = active.builder
    if writer.config.preallocate and not active.size_bytes:
        active.file.truncate(writer.config.segment_bytes)
    writer.is_untouched = False


def leave_at_rest(writer: WrittenLog) -> None:
    """Bring the files into the state that a clean stop leaves. The caller has flushed the segment.

    Raises:
        OSError: the disk refused. The log can go on as it is.
    """
    writer.producers.take_snapshot(writer.written.log_end.offset)
    writer.seal(writer.written.active)
    writer.sync_directory()
    writer.is_untouched = writer.was_at_rest = True
