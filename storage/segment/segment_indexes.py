"""Opening a segment's indexes: checked against the log, and rebuilt from it if they are missing or wrong.

An index has no checksum. The log confirms the result of each look-up (``Segment``). This module checks only the end of
an index.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from log_model.errors import CorruptionError
from log_model.offsets import Offset, OffsetPosition, Position
from storage.disk.file_system import FileSystem
from storage.index.batch_walk import StoredBatch
from storage.index.index_builder import IndexBuilder, IndexSettings, write_offset_index, write_time_index
from storage.index.lazy_index import LazyIndex
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from storage.segment.segment_file import SegmentFile

_MISSING_MAX = 16
"""Due entries that an index may lack at its end, as after a change of ``index.interval.bytes``."""

IndexT = TypeVar("IndexT", OffsetIndex, TimeIndex)


def open_offset_index(file_system: FileSystem, log: SegmentFile, settings: IndexSettings, path: Path) -> OffsetIndex:
    """Open the offset index of ``log``, writable unless the segment is sealed.

    Raises:
        OSError: the disk refused.
        CorruptionError: the log itself is damaged.
    """

    def check(index: OffsetIndex) -> None:
        last = index.last_entry
        if last is not None and log.find_batch(last, log.size_bytes) is None:
            raise CorruptionError(f"{path}: the last entry points at byte {last.position}, where no such batch is")
        if _lacks_entries(index, log, settings):
            raise CorruptionError(f"{path} has lost its end")

    is_lost = bool(log.size_bytes or log.sealed) and not file_system.exists(path)
    return _open_or_rebuild(OffsetIndex, write_offset_index, check, file_system, log, settings, path, is_lost=is_lost)


def _lacks_entries(index: OffsetIndex, log: SegmentFile, settings: IndexSettings) -> bool:
    """Return whether many entries are due behind the last one, because another process has cut the index.

    Look-ups would stay right, but each would walk through that part of the log.
    """
    position = 0 if index.last_entry is None else index.last_entry.position
    builder, missing = IndexBuilder(log.base_offset, settings.interval_bytes), 0
    # A reader of a damaged part of the log receives the error.
    with contextlib.suppress(CorruptionError):
        for batch in log.walk(position, log.size_bytes):
            header = batch.header
            missing += builder.add(Offset(header.last_offset), header.max_timestamp, header.size_bytes)
            if missing > _MISSING_MAX:
                return True
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

    def check(index: TimeIndex) -> None:
        # ``ask`` and not ``get``: this look-up does not leave the other index open.
        _check_last_time_entry(index, log, lambda offset: offset_index.ask(lambda offsets: offsets.lookup(offset)))

    is_lost = bool(log.size_bytes or log.sealed) and not (file_system.exists(path) and file_system.size(path))
    return _open_or_rebuild(TimeIndex, write_time_index, check, file_system, log, settings, path, is_lost=is_lost)


def _open_or_rebuild(
    index_class: type[IndexT],
    write: Callable[[FileSystem, Path, Offset, IndexSettings, Iterator[StoredBatch]], None],
    check: Callable[[IndexT], None],
    file_system: FileSystem,
    log: SegmentFile,
    settings: IndexSettings,
    path: Path,
    *,
    is_lost: bool,
) -> IndexT:
    """Open an index and check it against the log; rebuild it first if it is lost, and once more if a check fails."""

    def rebuild() -> None:
        write(file_system, path, log.base_offset, settings, log.walk(0, log.size_bytes))

    def open_checked() -> IndexT:
        index = index_class.open(
            file_system, path, log.base_offset, max_bytes=settings.max_bytes, writable=not log.sealed
        )
        index.sanity_check()
        check(index)
        return index

    if is_lost:
        rebuild()
    try:
        return open_checked()
    except CorruptionError:
        rebuild()
        return open_checked()


def _check_last_time_entry(index: TimeIndex, log: SegmentFile, look_up: Callable[[Offset], OffsetPosition]) -> None:
    """Check that the last entry is a batch's and that no later batch is newer, because an index may have lost its end.

    If timestamps rise, the entry belongs to the last batch, and the walk ends there.
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
    """Return ``entry`` if the log confirms it, otherwise the beginning of the segment."""
    if entry.position != 0 and log.find_batch(entry, limit) is None:
        return OffsetPosition(log.base_offset, Position(0))
    return entry
