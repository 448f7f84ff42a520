"""What earlier work left half done in a partition's directory, cleared away before anything is read (spec E20)."""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from storage.file_system import FileSystem
from storage.offsets import Offset

_ENTRIES = {OFFSET_INDEX_SUFFIX: struct.Struct(">i4x"), TIME_INDEX_SUFFIX: struct.Struct(">8xi")}
_PIECE_ENTRIES = 8192


class LostSegment(NamedTuple):
    """A segment whose log is gone, and the end of what its indexes tell of."""

    base_offset: Offset
    end_offset: Offset


def find_lost_segments(file_system: FileSystem, directory: Path, log_start: Offset) -> list[LostSegment]:
    """Segments above all others, at or above the log start, of which only indexes with entries are left.

    No crash leaves that: the name of the log is durable before the first entry is written, and who deletes segments
    from the end leaves ``.deleted`` behind until the indexes are gone as well.
    """
    names = [name for name in map(parse_offset_file_name, file_system.list_directory(directory)) if name is not None]
    logs = {name.offset for name in names if name.suffix == LOG_SUFFIX}
    lowest = max(log_start - 1, *(name.offset for name in names if name.suffix == LOG_SUFFIX and not name.state), -1)
    lost = []
    for base_offset in sorted({name.offset for name in names if name.offset > lowest and not name.state} - logs):
        ends = [
            _entries_end(file_system, directory / offset_file_name(base_offset, suffix), layout)
            for suffix, layout in _ENTRIES.items()
        ]
        if any(end is not None for end in ends):
            count = max(end for end in ends if end is not None)
            lost.append(LostSegment(Offset(base_offset), Offset(base_offset + max(count, 1))))
    return lost


def _entries_end(file_system: FileSystem, path: Path, layout: struct.Struct) -> int | None:
    """The largest relative offset of an index and 1; ``None`` without entries."""
    if not file_system.exists(path):
        return None
    file = file_system.open(path, writable=False)
    try:
        end, size = None, file.size() - file.size() % layout.size
        for position in range(0, size, _PIECE_ENTRIES * layout.size):
            piece = file.read(position, min(_PIECE_ENTRIES * layout.size, size - position))
            if piece.count(0) == len(piece):
                continue
            for number, (relative,) in enumerate(layout.iter_unpack(piece)):
                if any(piece[number * layout.size : (number + 1) * layout.size]):
                    end = max(end or 0, relative + 1)
        return end
    finally:
        file.close()


def clear_leftovers(
    file_system: FileSystem, directory: Path, *, clean: bool, witnesses: Collection[Offset] = ()
) -> None:
    """Remove deleted, temporary and cleaned files and indexes without a log; complete swaps.

    Indexes of ``witnesses``, lost segments, stay: the loss is to be noticed until somebody has decided what to do.

    Durable: on return. After an unclean stop the names that a killed process made and never synced are, too.
    """
    _remove_half_deleted(file_system, directory)
    names = file_system.list_directory(directory)
    parsed_names = [parsed for parsed in map(parse_offset_file_name, names) if parsed is not None]
    cleaned = [name.offset for name in parsed_names if name.state == CLEANED_SUFFIX]
    logs = {name.offset for name in parsed_names if name.suffix == LOG_SUFFIX and name.state in {"", SWAP_SUFFIX}}
    changed = False
    for file_name in names:
        parsed = parse_offset_file_name(file_name)
        path = directory / file_name
        if parsed is None:
            doomed = file_name.endswith((TEMPORARY_SUFFIX, DELETED_SUFFIX))
        elif parsed.state == SWAP_SUFFIX and not (cleaned and parsed.offset >= min(cleaned)):
            file_system.rename(path, directory / file_name.removesuffix(SWAP_SUFFIX))
            changed = True
            continue
        else:
            orphan = parsed.suffix in SEGMENT_SUFFIXES and parsed.offset not in {*logs, *witnesses}
            doomed = bool(parsed.state) or orphan
        if doomed:
            file_system.unlink(path)
            changed = True
    if changed or not clean:
        file_system.sync_directory(directory)


def _remove_half_deleted(file_system: FileSystem, directory: Path) -> None:
    """Remove the indexes of logs that are marked as deleted, before the mark goes: see ``find_lost_segments``."""
    names = [name for name in map(parse_offset_file_name, file_system.list_directory(directory)) if name is not None]
    deleted = {name.offset for name in names if name.suffix == LOG_SUFFIX and name.state == DELETED_SUFFIX}
    deleted -= {name.offset for name in names if name.suffix == LOG_SUFFIX and name.state != DELETED_SUFFIX}
    doomed = [name for name in names if name.offset in deleted and not name.state and name.suffix in SEGMENT_SUFFIXES]
    for name in doomed:
        file_system.unlink(directory / offset_file_name(name.offset, name.suffix))
    if doomed:
        file_system.sync_directory(directory)


def remove_segment_files(
    file_system: FileSystem, directory: Path, base_offset: Offset, suffixes: tuple[str, ...] = tuple(SEGMENT_SUFFIXES)
) -> None:
    """Unlink a segment's files, or those with some ``suffixes``. Durable: after the directory was synced."""
    for suffix in suffixes:
        path = directory / offset_file_name(base_offset, suffix)
        if file_system.exists(path):
            file_system.unlink(path)
