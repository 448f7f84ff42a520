"""Opening a segment's indexes: checked against the log, and made anew from it where they are missing or wrong.

An index carries no checksum. What a lookup finds is confirmed by the log (``Segment``); here it is made sure that an
index ends where it should.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from storage.disk.file_system import FileSystem
from storage.errors import CorruptionError
from storage.index.index_builder import IndexBuilder, IndexSettings, write_offset_index, write_time_index
from storage.index.lazy_index import LazyIndex
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from storage.offsets import Offset, OffsetPosition, Position, TimestampOffset
from storage.segment.segment_file import SegmentFile

_MISSING_MAX = 16
"""Due entries that an index may lack at its end, as where ``index.interval.bytes`` was changed since."""


def open_offset_index(file_system: FileSystem, log: SegmentFile, settings: IndexSettings, path: Path) -> OffsetIndex:
    """Open the offset index of ``log``, writable unless the segment is sealed.

    Raises:
        OSError: the disk refused.
        CorruptionError: the log itself is damaged.
    """

    def rebuild() -> None:
        write_offset_index(file_system, path, log.base_offset, settings, log.walk(0, log.size_bytes))

    def open_checked() -> OffsetIndex:
        index = OffsetIndex.open(
            file_system, path, log.base_offset, max_bytes=settings.max_bytes, writable=not log.sealed
        )
        index.sanity_check()
        last = index.last_entry
        if last is not None and log.find_batch(last, log.size_bytes) is None:
            raise CorruptionError(f"{path}: the last entry points at byte {last.position}, where no such batch is")
        if _lacks_entries(index, log, settings):
            raise CorruptionError(f"{path} has lost its end")
        return index

    if (log.size_bytes or log.sealed) and not file_system.exists(path):
        rebuild()
    try:
        return open_checked()
    except CorruptionError:
        rebuild()
        return open_checked()


def _lacks_entries(index: OffsetIndex, log: SegmentFile, settings: IndexSettings) -> bool:
    """Whether the log goes on for many entries behind the last: another process has cut the index.

    No look-up would be wrong, but each would walk through all of that.
    """
    position = 0 if index.last_entry is None else index.last_entry.position
    builder, missing = IndexBuilder(log.base_offset, settings.interval_bytes), 0
    try:
        for batch in log.walk(position, log.size_bytes):
            header = batch.header
            missing += builder.add(Offset(header.last_offset), header.max_timestamp, header.size_bytes)
            if missing > _MISSING_MAX:
                return True
    except CorruptionError:
        # Whoever reads that part of the log is told.
        pass
    return False


def open_time_index(
    file_system: FileSystem,
    log: SegmentFile,
    settings: IndexSettings,
    offset_index: LazyIndex[OffsetIndex],
    path: Path,
) -> TimeIndex:
    """Open the time index of ``log``, writable unless the segment is sealed.

    Raises:
        OSError: the disk refused.
        CorruptionError: the log itself is damaged.
    """

    def rebuild() -> None:
        write_time_index(file_system, path, log.base_offset, settings, log.walk(0, log.size_bytes))

    def open_checked() -> TimeIndex:
        index = TimeIndex.open(
            file_system, path, log.base_offset, max_bytes=settings.max_bytes, writable=not log.sealed
        )
        index.sanity_check()
        # Asked only: a look at this index leaves the other one as it was.
        _check_last_time_entry(index, log, lambda offset: offset_index.ask(lambda offsets: offsets.lookup(offset)))
        return index

    if (log.size_bytes or log.sealed) and not (file_system.exists(path) and file_system.size(path)):
        rebuild()
    try:
        return open_checked()
    except CorruptionError:
        rebuild()
        return open_checked()


def peek_largest_timestamp(
    file_system: FileSystem, log: SegmentFile, settings: IndexSettings, offset_path: Path, time_path: Path
) -> TimestampOffset | None:
    """The largest timestamp of an active segment whose indexes are as a clean stop left them, ``None`` if they are not.

    They are read as they are and nothing stays open: retention asks every idle partition.

    Raises:
        OSError: the disk refused.
    """
    was_open = log.is_open
    try:
        with contextlib.ExitStack() as stack:
            max_bytes, base = settings.max_bytes, log.base_offset
            offsets = OffsetIndex.open(file_system, offset_path, base, max_bytes=max_bytes, writable=False)
            stack.callback(offsets.close)
            times = TimeIndex.open(file_system, time_path, base, max_bytes=max_bytes, writable=False)
            stack.callback(times.close)
            offsets.sanity_check()
            times.sanity_check()
            if not times.entry_count:
                return None
            _check_last_time_entry(times, log, offsets.lookup)
            return times.last_entry
    except (FileNotFoundError, CorruptionError):
        return None
    finally:
        if not was_open:
            log.close()


def _check_last_time_entry(index: TimeIndex, log: SegmentFile, look_up: Callable[[Offset], OffsetPosition]) -> None:
    """The last entry is that of a batch and no later batch is newer: an index that lost its end is as bad as none.

    Where timestamps rise, the entry is that of the last batch, and nothing is walked.
    """
    if not index.entry_count:
        return
    last = index.last_entry
    start = verified(look_up(last.offset), log, log.size_bytes)
    found = False
    for batch in log.walk(start.position, log.size_bytes):
        header = batch.header
        if header.last_offset == last.offset:
            found = header.max_timestamp == last.timestamp
        elif header.last_offset > last.offset and (not found or header.max_timestamp > last.timestamp):
            found = False
            break
    if not found:
        raise CorruptionError(f"{index.path} does not match the log at {last}")


def verified(entry: OffsetPosition, log: SegmentFile, limit: int) -> OffsetPosition:
    """``entry`` if the log confirms it, or the segment's beginning."""
    if entry.position != 0 and log.find_batch(entry, limit) is None:
        return OffsetPosition(log.base_offset, Position(0))
    return entry
