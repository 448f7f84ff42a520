"""Division of a segment whose offsets are too far apart for its indexes, as old cleaners could make it (spec E20)."""

from __future__ import annotations

import contextlib
from pathlib import Path

from log_model.errors import CorruptionError
from log_model.offsets import ByteRange, Offset, Position
from log_model.transactions import AbortedTransaction
from rollway.records import HEADER_BYTES, RecordBatch, RecordFormatError, parse_header
from storage.disk.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from storage.disk.file_system import File, FileSystem
from storage.disk.leftover_files import clear_leftovers, remove_segment_files
from storage.index.index_file import RELATIVE_OFFSET_MAX
from storage.index.transaction_index import write_transaction_index
from storage.segment.segment import Segment

_COPY_BYTES = 1024 * 1024
_OFFSET_MAX = Offset(2**63 - 1)


def find_overflow(segment: Segment, known_end: Offset) -> tuple[Position, Offset] | None:
    """Return the position and base offset of the first batch that ends more than 2^31-1 above the segment's base.

    Only offsets below ``known_end``, the next segment or the recovery point, count: no CRC covers offsets, and a
    damaged offset must not look like a distant one.

    Raises:
        OSError: the disk refused.
    """
    if known_end - segment.base_offset <= RELATIVE_OFFSET_MAX or _is_walkable(segment):
        return None
    position, next_offset, found = 0, segment.base_offset, None
    while position < segment.size_bytes:
        try:
            header = parse_header(segment.file.read(position, min(HEADER_BYTES, segment.size_bytes - position)))
            RecordBatch(segment.file.read(position, header.size_bytes)).check_crc()
        except RecordFormatError:
            break
        if not next_offset <= header.base_offset <= header.last_offset < known_end:
            return None
        if found is None and header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            found = Position(position), Offset(header.base_offset)
        next_offset = Offset(header.last_offset + 1)
        position += header.size_bytes
    return found if found is not None and found[0] > 0 else None


def _is_walkable(segment: Segment) -> bool:
    try:
        for _ in segment.walk(0, segment.size_bytes):
            pass
    except CorruptionError:
        return False
    return True


def split_segment(file_system: FileSystem, segment: Segment, position: Position, base_offset: Offset) -> None:
    """Move the batches from ``position`` to a segment of their own, at ``base_offset``.

    Both parts are written to new files, which replace the segment once both are durable. A crash before that leaves the
    segment as it was; after a later crash the next start completes the change. Indexes are rebuilt from the logs.

    Durable: on return.

    Raises:
        OSError: the disk refused; the next start tries again.
    """
    directory = segment.directory
    aborted = _aborted(segment)
    parts = (
        (base_offset, ByteRange(position, Position(segment.size_bytes))),
        (segment.base_offset, ByteRange(Position(0), position)),
    )
    for base, part in parts:
        _copy(file_system, segment.file, part, _path(directory, base, LOG_SUFFIX + CLEANED_SUFFIX))
    below = [entry for entry in aborted if entry.last_offset < base_offset]
    if aborted:
        # Before the log exists, so that the log never lacks its index.
        above = [entry for entry in aborted if entry.last_offset >= base_offset]
        write_transaction_index(file_system, _path(directory, base_offset, TRANSACTION_INDEX_SUFFIX), above)
        cleaned = _path(directory, segment.base_offset, TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX)
        write_transaction_index(file_system, cleaned, below)
    file_system.sync_directory(directory)
    # The higher one first and durably: a swap counts only if no file at or below it is still ``.cleaned``.
    waiting = [(base_offset, LOG_SUFFIX), (segment.base_offset, LOG_SUFFIX)]
    if below:
        waiting.insert(1, (segment.base_offset, TRANSACTION_INDEX_SUFFIX))
    for base, suffix in waiting:
        file_system.rename(
            _path(directory, base, suffix + CLEANED_SUFFIX), _path(directory, base, suffix + SWAP_SUFFIX)
        )
        file_system.sync_directory(directory)
    segment.log.close()
    indexes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    remove_segment_files(file_system, directory, segment.base_offset, indexes)
    clear_leftovers(file_system, directory, clean=False)


def _aborted(segment: Segment) -> list[AbortedTransaction]:
    try:
        return segment.transactions.index.ask(lambda index: index.collect_aborted(Offset(0), _OFFSET_MAX).transactions)
    except CorruptionError:
        return []  # it is rebuilt, as every index that is not sound


def _path(directory: Path, base_offset: Offset, suffix: str) -> Path:
    return directory / offset_file_name(base_offset, suffix)


def _copy(file_system: FileSystem, source: File, part: ByteRange, path: Path) -> None:
    with contextlib.closing(file_system.open(path, create=True)) as target:
        for position in range(part.start, part.end, _COPY_BYTES):
            piece = source.read(position, min(_COPY_BYTES, part.end - position))
            target.write(position - part.start, [piece])
        target.sync()
