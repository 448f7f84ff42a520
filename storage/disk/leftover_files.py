"""Files of unfinished work in a partition's directory, removed or completed before anything is read (spec E20)."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from log_model.offsets import Offset
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
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_file, write_file_atomically

_ENTRIES = {OFFSET_INDEX_SUFFIX: struct.Struct(">i4x"), TIME_INDEX_SUFFIX: struct.Struct(">8xi")}
_PIECE_ENTRIES = 8192
# Layout of a transaction index entry; the field is the offset of the marker.
_ABORTED = struct.Struct(">18xq8x")


class LostSegment(NamedTuple):
    """A segment without its log file, and the end offset that its indexes show."""

    base_offset: Offset
    end_offset: Offset


def find_lost_segments(file_system: FileSystem, directory: Path, log_start: Offset) -> list[LostSegment]:
    """Return the segments above all log files, and at or above the log start, that have index entries but no log file.

    A crash never leaves such a segment. The name of the log file is durable before the first index entry is written.
    Deletion from the end keeps the ``.deleted`` log file until the indexes are gone.
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
    """Return the largest relative offset in an index plus 1; ``None`` if the index has no entries."""
    if not file_system.exists(path):
        return None
    with contextlib.closing(file_system.open(path, writable=False)) as file:
        end, size = None, file.size() - file.size() % layout.size
        for position in range(0, size, _PIECE_ENTRIES * layout.size):
            piece = file.read(position, min(_PIECE_ENTRIES * layout.size, size - position))
            if piece.count(0) == len(piece):
                continue
            for number, (relative,) in enumerate(layout.iter_unpack(piece)):
                if any(piece[number * layout.size : (number + 1) * layout.size]):
                    end = max(end or 0, relative + 1)
        return end


def clear_leftovers(
    file_system: FileSystem, directory: Path, *, clean: bool, witnesses: Collection[Offset] = ()
) -> list[str]:
    """Complete swaps, and remove deleted, temporary and cleaned files and indexes without a log file.

    A ``.swap`` log is complete. It replaces the segments whose base offsets lie in its range, from its base to its end.
    The remaining files of those segments are removed first. Example: segments 0, 5, 10, 15 and a ``0.log.swap`` with
    the offsets 0, 8 and 14 become segments 0 and 15. Two kinds of swaps are dropped instead. A swap at or above a
    ``.cleaned`` file belongs to an unfinished change. A damaged swap is dropped if its segment still exists.

    Indexes of ``witnesses`` (lost segments) stay, so that the loss is found again until an operator repairs it.

    Return a sentence for each unusual change.

    Durable: on return. After an unclean stop this includes names that a killed process made and never synced.
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
            # Its log was renamed earlier.
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
    """Rename ``.swap`` logs to their final names; return whether files changed, and a sentence for each unusual change.

    The indexes keep the ending ``.swap``; the caller renames them afterwards.
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
            notes.append(f"the replacement of segment {base} is damaged and dropped; the segment stays as it is")
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
            # The log goes last: indexes alone look like a lost segment.
            remove_segment_files(file_system, directory, Offset(offset), tuple(reversed(SEGMENT_SUFFIXES)))
        if base in logs:
            # These indexes belong to the log that is replaced.
            remove_segment_files(file_system, directory, Offset(base), tuple(SEGMENT_SUFFIXES[1:]))
        if replaced:
            notes.append(
                f"segments {', '.join(map(str, sorted(replaced)))} are removed: segment {base}, which an interrupted "
                "change left ready, replaces them"
            )
    if completed:
        # Before the first rename: beside the segments it replaces, the new log would look like damage.
        file_system.sync_directory(directory)
    for base in completed:
        path = directory / offset_file_name(base, LOG_SUFFIX)
        file_system.rename(path.with_name(path.name + SWAP_SUFFIX), path)
    if completed:
        # Before the indexes are renamed: indexes of a log that is still a .swap would be removed with the old log's.
        file_system.sync_directory(directory)
    return bool(completed or dropped or unfinished), notes


def _keep_aborted(file_system: FileSystem, directory: Path, base: int, end: int, replaced: Collection[int]) -> None:
    """Give a swap without a transaction index the aborted transactions of the segments it replaces, within its range.

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
    """Return the end offset of the valid batches at the start of a log, and whether the log holds nothing else.

    A log without batches counts as not whole, because a replacement log is never empty.
    """
    with contextlib.closing(file_system.open(path, writable=False)) as file:
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


def _remove_half_deleted(file_system: FileSystem, directory: Path) -> None:
    """Remove the indexes of logs marked as deleted before the mark is removed: see ``find_lost_segments``."""
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
    """Unlink a segment's files, or only the given ``suffixes``. Durable: after a sync of the directory."""
    for suffix in suffixes:
        path = directory / offset_file_name(base_offset, suffix)
        if file_system.exists(path):
            file_system.unlink(path)
