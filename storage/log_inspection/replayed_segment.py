"""A segment as the next start will have written it: with the pieces that the journal holds of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from storage.disk.file_system import File
from storage.log_inspection.findings import Findings
from storage.log_inspection.stored_files import BATCH_HEADER, LOG_OVERHEAD_BYTES, StoredFileError, read_batches
from storage.log_inspection.stored_journal import JournalPiece

SEGMENT_OFFSETS_MAX = 2**31 - 1
_BASE_OFFSET_BYTES, _CRC_AT = 8, 17


class ReplayedSegment:
    """The bytes of a segment, and over them the pieces, which do not overlap and rise by their positions."""

    def __init__(self, segment: File, pieces: Sequence[JournalPiece]) -> None:
        self._segment = segment
        self._pieces = pieces
        self._starts = [piece.position for piece in pieces]

    def size(self) -> int:
        return max(self._segment.size(), self._pieces[-1].end if self._pieces else 0)

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes; fewer only where the segment ends."""
        stored = self._segment.read(position, length)
        if not self._pieces:
            return stored
        end = position + min(length, max(self._pieces[-1].end - position, len(stored)))
        read = bytearray(stored.ljust(end - position, b"\0"))
        for piece in self._pieces[max(bisect_right(self._starts, position) - 1, 0) :]:
            if piece.position >= end:
                break
            first, last = max(position, piece.position), min(end, piece.end)
            if first < last:
                read[first - position : last - position] = piece.read(first - piece.position, last - first)
        return bytes(read)


class Fit(NamedTuple):
    """The pieces that the next start writes to a segment, and how many of their bytes the segment lacks."""

    pieces: tuple[JournalPiece, ...]
    missing_bytes: int


def fit_pieces(segment: File, base_offset: int, pieces: Sequence[JournalPiece], findings: Findings) -> Fit:
    """Compare the journal's pieces with their segment, and report those that do not fit.

    A start refuses a segment that has other batches in the place of a piece. No piece is then returned.
    """
    missing_bytes = 0
    end = segment.size()
    written_end = 0
    for number, piece in enumerate(pieces):
        if piece.position > end:
            findings.damage(
                segment.path, f"the segment ends here, but the journal continues at position {piece.position}", end
            )
            return Fit(tuple(pieces[:number]), missing_bytes)
        content = piece.read(0, piece.length)
        problem = _content_problem(content, piece.end_offset)
        if problem is None and piece.position < written_end:
            problem = f"it begins at position {piece.position}, but the piece before it ends at {written_end}"
        if problem is not None:
            findings.damage(piece.file.path, f"a piece of the journal does not fit {segment.path}: {problem}", piece.at)
            return Fit((), missing_bytes)
        stored = segment.read(piece.position, piece.length)
        conflict = None if content.startswith(stored) else _find_conflict(segment, base_offset, piece, content)
        if conflict is not None:
            findings.damage(
                segment.path,
                f"the segment has another batch here than the journal at position {piece.at} of {piece.file.path}: "
                "another program has written to it",
                conflict,
            )
            return Fit((), missing_bytes)
        missing_bytes += piece.length - _common_bytes(content, stored)
        written_end = piece.end
        end = max(end, piece.end)
    return Fit(tuple(pieces), missing_bytes)


def count_missing_bytes(segment: File, pieces: Sequence[JournalPiece]) -> int:
    """Return how many bytes of the pieces the segment lacks or has otherwise, up to the end of each piece."""
    return sum(
        piece.length - _common_bytes(piece.read(0, piece.length), segment.read(piece.position, piece.length))
        for piece in pieces
    )


def _content_problem(content: bytes, end_offset: int) -> str | None:
    """Return why these bytes are not whole batches that end with ``end_offset``."""
    position = next_offset = 0
    while position + BATCH_HEADER.size <= len(content):
        fields = BATCH_HEADER.unpack_from(content, position)
        base_offset, length, last_offset_delta = fields[0], fields[1], fields[6]
        if length + LOG_OVERHEAD_BYTES < BATCH_HEADER.size:
            break
        next_offset = base_offset + last_offset_delta + 1
        position += length + LOG_OVERHEAD_BYTES
    if position != len(content):
        return f"its {len(content)} bytes are not whole batches"
    return None if next_offset == end_offset else f"it ends with offset {next_offset}, not with {end_offset}"


def _find_conflict(segment: File, base_offset: int, piece: JournalPiece, content: bytes) -> int | None:
    """Return where the segment has a whole batch that is not the piece's. Torn batches do not count."""
    next_offset = base_offset
    try:
        for batch in read_batches(segment, segment.size(), start=piece.position):
            start = batch.position - piece.position
            # No CRC covers the bytes before it: the base offset, the length and the leader epoch.
            is_possible = next_offset <= batch.base_offset <= batch.last_offset <= base_offset + SEGMENT_OFFSETS_MAX
            if start >= len(content) or not batch.is_crc_valid or not is_possible:
                return None
            stored, wanted = segment.read(batch.position, batch.size_bytes), content[start : start + batch.size_bytes]
            if stored[:_BASE_OFFSET_BYTES] != wanted[:_BASE_OFFSET_BYTES]:
                return None
            if stored[_CRC_AT:] != wanted[_CRC_AT:]:
                return batch.position
            next_offset = batch.last_offset + 1
    except StoredFileError:
        pass
    return None


def _common_bytes(content: bytes, stored: bytes) -> int:
    if content.startswith(stored):
        return len(stored)
    return next(number for number, (one, other) in enumerate(zip(content, stored, strict=False)) if one != other)
