"""What earlier work left half done in a partition's directory, cleared away before anything is read (spec E20)."""

from __future__ import annotations

from pathlib import Path

from storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from storage.file_system import FileSystem
from storage.offsets import Offset


def clear_leftovers(file_system: FileSystem, directory: Path, *, clean: bool) -> None:
    """Remove deleted, temporary and cleaned files and indexes without a log; complete swaps.

    Durable: on return. After an unclean stop the names that a killed process made and never synced are, too.
    """
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
            orphan = parsed.suffix in SEGMENT_SUFFIXES and parsed.offset not in logs
            doomed = bool(parsed.state) or orphan
        if doomed:
            file_system.unlink(path)
            changed = True
    if changed or not clean:
        file_system.sync_directory(directory)


def remove_segment_files(
    file_system: FileSystem, directory: Path, base_offset: Offset, suffixes: tuple[str, ...] = tuple(SEGMENT_SUFFIXES)
) -> None:
    """Unlink a segment's files, or those with some ``suffixes``. Durable: after the directory was synced."""
    for suffix in suffixes:
        path = directory / offset_file_name(base_offset, suffix)
        if file_system.exists(path):
            file_system.unlink(path)
