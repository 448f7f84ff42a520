"""What earlier work left half done in a partition's directory, cleared away before anything is read (spec E20)."""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from rollway.records import HEADER_BYTES, RecordBatch, RecordFormatError, parse_header
from storage.disk.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from storage.disk.file_system import FileSystem, read_file, write_file_atomically
from storage.offsets import Offset

_ENTRIES = {OFFSET_INDEX_SUFFIX: struct.Struct(">i4x"), TIME_INDEX_SUFFIX: struct.Struct(">8xi")}
_PIECE_ENTRIES = 8192
# Of an entry of a transaction index: the offset of its marker.
_ABORTED = struct.Struct(">18xq8x")


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
) -> list[str]:
    """Remove deleted, temporary and cleaned files and indexes without a log; complete swaps.

    A ``.swap`` is complete: it replaces the segments whose base offsets lie in its range, from its base to its end, and
    what is left of those goes first. So segments 0, 5, 10 and 15 and a ``0.log.swap`` with the offsets 0, 8 and 14
    become segments 0 and 15. Two kinds of swaps are dropped instead: those at or above a ``.cleaned``, which belong to
    a change that was not finished, and those that are damaged while the segment they should replace is still there.

    Indexes of ``witnesses``, lost segments, stay: the loss is to be noticed until somebody has decided what to do.

    Return what was done that is out of the ordinary, in sentences.

    Durable: on return. After an unclean stop the names that a killed process made and never synced are, too.
    """
    _remove_half_deleted(file_system, directory)
    changed, notes = _complete_swaps(file_system, directory)
    names = file_system.list_directory(directory)
    parsed_names = [parsed for parsed in map(parse_offset_file_name, names) if parsed is not None]
    logs = {name.offset for name in parsed_names if name.suffix == LOG_SUFFIX and not name.state}
    for file_name in names:
        parsed = parse_offset_file_name(file_name)
        path = directory / file_name
        if parsed is None:
            doomed = file_name.endswith((TEMPORARY_SUFFIX, DELETED_SUFFIX))
        elif parsed.state == SWAP_SUFFIX and parsed.offset in logs:
            # Its log was renamed before it.
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
    return notes


def _complete_swaps(file_system: FileSystem, directory: Path) -> tuple[bool, list[str]]:
    """Put logs that wait as ``.swap`` in their places; whether there were any, and what is to be told of it.

    Their indexes stay as ``.swap``, to be renamed after them.
    """
    files = [name for name in map(parse_offset_file_name, file_system.list_directory(directory)) if name is not None]
    cleaned = [name.offset for name in files if name.state == CLEANED_SUFFIX]
    swaps = sorted(name.offset for name in files if name.suffix == LOG_SUFFIX and name.state == SWAP_SUFFIX)
    logs = {name.offset for name in files if name.suffix == LOG_SUFFIX and not name.state}
    dropped = {base for base in swaps if cleaned and base >= min(cleaned)}
    unfinished = {
        name.offset for name in files if name.state == SWAP_SUFFIX and cleaned and name.offset >= min(cleaned)
    }
    notes: list[str] = []
    ends: dict[int, int] = {}
    for base in swaps:
        if base in dropped:
            continue
        ends[base], is_whole = _end_of_log(file_system, directory / offset_file_name(base, LOG_SUFFIX + SWAP_SUFFIX))
        if not is_whole and base in logs:
            notes.append(f"what should replace segment {base} is damaged and is dropped; the segment stays as it is")
            dropped.add(base)
    for base in dropped | unfinished:
        remove_segment_files(
            file_system, directory, Offset(base), tuple(suffix + SWAP_SUFFIX for suffix in SEGMENT_SUFFIXES)
        )
    completed = [base for base in swaps if base not in dropped]
    for base in completed:
        replaced = {name.offset for name in files if not name.state and name.suffix in SEGMENT_SUFFIXES}
        replaced = {offset for offset in replaced if base < offset < ends[base] and offset not in completed}
        _keep_aborted(file_system, directory, base, ends[base], {*replaced, *(logs & {base})})
        for offset in sorted(replaced):
            # Its log last: indexes alone would look like those of a log that was lost.
            remove_segment_files(file_system, directory, Offset(offset), tuple(reversed(SEGMENT_SUFFIXES)))
        if base in logs:
            # They are those of the log that goes.
            remove_segment_files(file_system, directory, Offset(base), tuple(SEGMENT_SUFFIXES[1:]))
        if replaced:
            notes.append(
                f"segments {', '.join(map(str, sorted(replaced)))} are removed: segment {base}, which an interrupted "
                "change left ready, replaces them"
            )
    if completed:
        # Before the first is in its place: beside what it replaces it would look like damage.
        file_system.sync_directory(directory)
    for base in completed:
        path = directory / offset_file_name(base, LOG_SUFFIX)
        file_system.rename(path.with_name(path.name + SWAP_SUFFIX), path)
    if completed:
        # Before its indexes are: those of a log that is still waiting would go as those of the log before it.
        file_system.sync_directory(directory)
    return bool(completed or dropped or unfinished), notes


def _keep_aborted(file_system: FileSystem, directory: Path, base: int, end: int, replaced: Collection[int]) -> None:
    """Let a swap that brings no transaction index have the entries of those that go, as far as they are of its range.

    Durable: on return.
    """
    path = directory / offset_file_name(base, TRANSACTION_INDEX_SUFFIX + SWAP_SUFFIX)
    if file_system.exists(path):
        return
    content = b""
    for offset in sorted(replaced):
        index = directory / offset_file_name(offset, TRANSACTION_INDEX_SUFFIX)
        if file_system.exists(index):
            entries = read_file(file_system, index, file_system.size(index))
            entries = entries[: len(entries) - len(entries) % _ABORTED.size]
            content += b"".join(
                entries[at : at + _ABORTED.size]
                for at in range(0, len(entries), _ABORTED.size)
                if base <= _ABORTED.unpack_from(entries, at)[0] < end
            )
    if content:
        write_file_atomically(file_system, path, content)


def _end_of_log(file_system: FileSystem, path: Path) -> tuple[int, bool]:
    """The offset after the last of the good batches that a log begins with, and whether there is nothing else in it.

    A log without batches is not whole: none is ever made to replace another.
    """
    file = file_system.open(path, writable=False)
    try:
        position, size = 0, file.size()
        parsed = parse_offset_file_name(path.name)
        end = parsed.offset if parsed is not None else 0
        while position < size:
            header = parse_header(file.read(position, min(HEADER_BYTES, size - position)))
            if header.base_offset < end or header.last_offset_delta < 0:
                return end, False
            RecordBatch(file.read(position, header.size_bytes)).check_crc()
            end, position = header.next_offset, position + header.size_bytes
        return end, size > 0
    except RecordFormatError:
        return end, False
    finally:
        file.close()


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
