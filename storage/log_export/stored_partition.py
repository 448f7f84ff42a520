"""The segments of a partition as a stopped service left them, and a walk over their batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from log_model.errors import CorruptionError
from log_model.names import PartitionName
from rollway.records import HEADER_BYTES, BatchHeader, RecordFormatError, parse_header
from storage.disk.file_names import LOG_SUFFIX, SWAP_SUFFIX, parse_offset_file_name
from storage.disk.file_system import File, FileSystem

PIECE_BYTES = 4 << 20
"""Bytes that are read at once. A larger batch takes as much memory as it is long."""

_CRC_BEGINS_AT = 21
_RELATIVE_OFFSET_MAX = 2**31 - 1


class DamagedLogError(CorruptionError):
    """A segment has something else than whole batches with rising offsets. The message names the file and the byte."""


class StoredSegment(NamedTuple):
    """One ``.log`` file."""

    base_offset: int
    path: Path
    size_bytes: int


class StoredPartition(NamedTuple):
    """The segments of a partition that reach to the log start offset or beyond it, in order."""

    name: PartitionName
    directory: Path
    log_start_offset: int
    segments: tuple[StoredSegment, ...]
    may_have_gaps: bool
    """Whether offsets may be missing between batches, as compaction leaves them."""
    noted_gaps: frozenset[tuple[int, int]]
    """Other ranges of offsets that are known to be missing."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def fingerprint(self) -> str:
        """Return a text that is another one after records were appended or deleted. Reads no file."""
        facts = [(segment.base_offset, segment.size_bytes) for segment in self.segments]
        return blake2b(repr((self.log_start_offset, facts)).encode(), digest_size=16).hexdigest()


class Piece(NamedTuple):
    """Whole batches that were read at once. The views lead into one buffer, which the holder may change."""

    buffer: memoryview
    batches: list[tuple[BatchHeader, memoryview]]


def find_partition(
    file_system: FileSystem,
    directory: Path,
    name: PartitionName,
    log_start_offset: int,
    *,
    may_have_gaps: bool,
    noted_gaps: frozenset[tuple[int, int]],
) -> StoredPartition:
    """Find the segments of a partition. The log starts at the first segment if ``log_start_offset`` lies below it.

    Raises:
        DamagedLogError: there is no segment, or a replacement of segments is not finished.
        OSError: the disk refused.
    """
    segments = []
    for file_name in file_system.list_directory(directory):
        found = parse_offset_file_name(file_name)
        if found is None or found.suffix != LOG_SUFFIX or found.state not in ("", SWAP_SUFFIX):
            continue
        if found.state:
            raise DamagedLogError(f"{directory} has files of a replacement that was not finished: start Rollway once")
        path = directory / file_name
        segments.append(StoredSegment(found.offset, path, file_system.size(path)))
    if not segments:
        raise DamagedLogError(f"{directory} has no segment")
    segments.sort()
    first = max([0, *(at for at, segment in enumerate(segments) if segment.base_offset <= log_start_offset)])
    kept = tuple(segments[first:])
    start = max(log_start_offset, kept[0].base_offset)
    return StoredPartition(name, directory, start, kept, may_have_gaps, noted_gaps)


class PartitionWalk:
    """Reads the batches of a partition once, from its first segment to its last.

    Attributes:
        end_offset: the offset behind the last batch so far; the log end offset after the last segment.
    """

    def __init__(self, file_system: FileSystem, partition: StoredPartition) -> None:
        self.end_offset = partition.segments[0].base_offset
        self._file_system = file_system
        self._partition = partition

    def pieces(self, segment: StoredSegment) -> Iterator[Piece]:
        """Yield the batches of the next segment. Their framing, offsets and CRCs are right.

        A preallocated file ends with zeros, which are no batches.

        Raises:
            DamagedLogError: they are not.
            OSError: the disk refused.
        """
        self._reach(segment.base_offset, str(segment.path))
        with contextlib.closing(self._file_system.open(segment.path, writable=False)) as file:
            position = 0
            while position < segment.size_bytes:
                piece = self._read(file, segment, position)
                if piece is None:
                    return
                yield piece
                position += len(piece.buffer)

    def _read(self, file: File, segment: StoredSegment, position: int) -> Piece | None:
        """Read the whole batches from ``position`` on, at least one; ``None`` if there are only zeros."""
        piece = _whole_batches(file.read(position, min(PIECE_BYTES, segment.size_bytes - position)))
        if not piece.batches:
            try:
                header = parse_header(file.read(position, HEADER_BYTES))
            except RecordFormatError as error:
                if _is_zero(file, position, segment.size_bytes):
                    return None
                raise DamagedLogError(f"{segment.path}, byte {position}: {error}") from error
            left = segment.size_bytes - position
            if header.size_bytes <= left:
                piece = _whole_batches(file.read(position, header.size_bytes))
        if not piece.batches:
            raise DamagedLogError(f"{segment.path}, byte {position}: the last batch is cut off, {left} bytes are left")
        for found in piece.batches:
            self._check(segment, *found)
        return piece

    def _reach(self, offset: int, what: str) -> None:
        """Note that ``what`` begins at ``offset``. Compaction leaves gaps; any other must be noted."""
        if offset < self.end_offset:
            raise DamagedLogError(f"{what} begins at offset {offset}, but the log before it ends at {self.end_offset}")
        is_gap = offset > self.end_offset and not self._partition.may_have_gaps
        if is_gap and (self.end_offset, offset) not in self._partition.noted_gaps:
            raise DamagedLogError(f"{what} begins at offset {offset}: offsets from {self.end_offset} on are missing")
        self.end_offset = offset

    def _check(self, segment: StoredSegment, header: BatchHeader, batch: memoryview) -> None:
        last = header.last_offset
        self._reach(header.base_offset, f"{segment.path}: a batch")
        if last < header.base_offset:
            raise DamagedLogError(f"{segment.path}: the batch at offset {header.base_offset} ends below it")
        if last - segment.base_offset > _RELATIVE_OFFSET_MAX:
            raise DamagedLogError(f"{segment.path}: offset {last} is too far from the first one of the segment")
        if crc32c(batch[_CRC_BEGINS_AT:]) != header.crc:
            raise DamagedLogError(f"{segment.path}: the batch at offset {header.base_offset} does not match its CRC")
        self.end_offset = last + 1


def _whole_batches(content: bytes) -> Piece:
    """Find the whole batches at the beginning of ``content``: up to the first that is cut off or has no header."""
    buffer = memoryview(bytearray(content))
    batches: list[tuple[BatchHeader, memoryview]] = []
    position = 0
    with contextlib.suppress(RecordFormatError):
        while position < len(buffer):
            header = parse_header(buffer, position)
            end = position + header.size_bytes
            if end > len(buffer):
                break
            batches.append((header, buffer[position:end]))
            position = end
    return Piece(buffer[:position], batches)


def _is_zero(file: File, start: int, end: int) -> bool:
    while start < end:
        piece = file.read(start, min(PIECE_BYTES, end - start))
        if not piece or piece.count(0) != len(piece):
            return False
        start += len(piece)
    return True
