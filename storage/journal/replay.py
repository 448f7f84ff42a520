"""The replay of a journal after a crash: the segments get what they lack, byte for byte.

A piece that the journal holds was durable, whatever its segment lost. It is written to its place again, even if the
segment shows it: the bytes may only be in the page cache, and an earlier fsync may have failed (disk rule 4). After a
second crash the replay begins again; nothing else has changed the segments.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from log_model.errors import CorruptionError
from log_model.offsets import Offset
from storage.disk.file_names import LOG_SUFFIX, offset_file_name
from storage.disk.file_system import File, FileSystem
from storage.index.batch_walk import read_batch, walk_batches
from storage.journal.entries import (
    BLOCK_BYTES,
    HEADER_BYTES,
    EntryHeader,
    StoredPiece,
    is_whole,
    parse_header,
    pieces_of,
)
from storage.journal.journal_files import FILE_SUFFIX

_logger = logging.getLogger(__name__)

_REMEDY = "restore it, or give up what only the journal holds: make the folder empty, and start again"
_BLOCKS_READ = 256
_BASE_OFFSET_BYTES, _CRC_AT = 8, 17


class _Entry(NamedTuple):
    file: File
    position: int
    header: EntryHeader


class JournalReplay:
    """Replays one journal; used once.

    Raises (from ``run``):
        CorruptionError: entries are missing that partitions may need, or a segment has other batches.
        OSError: the disk refused.
    """

    def __init__(self, file_system: FileSystem, directory: Path, journal_id: str) -> None:
        self._file_system = file_system
        self._directory = directory
        self._id = journal_id
        self.replayed_bytes = 0

    def run(self, find_directory: Callable[[str, int], Path | None]) -> dict[tuple[str, int], Offset]:
        """Write all pieces to the segments that exist, durably.

        ``find_directory`` returns the directory of a partition, by the id of its topic; ``None`` if there is none.
        Return the end offset of each partition with pieces: everything below was durable.
        """
        with contextlib.ExitStack() as opened:
            pieces = self._needed_pieces(self._entries(opened))
            ends: dict[tuple[str, int], Offset] = {}
            for (topic_id, partition), found in pieces.items():
                directory = find_directory(topic_id, partition)
                if directory is not None:
                    self._write(directory, found)
                    ends[topic_id, partition] = Offset(found[-1][1].end_offset)
            return ends

    # Reading

    def _entries(self, opened: contextlib.ExitStack) -> list[_Entry]:
        """Return all entries that a replay needs, in their order."""
        if not self._file_system.is_directory(self._directory):
            raise CorruptionError(f"{self._directory} is missing, and the service was not stopped cleanly: {_REMEDY}")
        names = [name for name in self._file_system.list_directory(self._directory) if name.endswith(FILE_SUFFIX)]
        if not names:
            _logger.warning("%s is empty: what only the journal held is given up", self._directory)
        found: dict[int, _Entry] = {}
        ends = []
        for name in names:
            file = opened.enter_context(
                contextlib.closing(self._file_system.open(self._directory / name, writable=False))
            )
            entries, end = self._chain(file)
            found.update({entry.header.sequence: entry for entry in entries})
            ends.append((file, end))
        newest = max(found, default=0)
        oldest = found[newest].header.oldest if found else 1
        missing = next((sequence for sequence in range(oldest, newest) if sequence not in found), None)
        if missing is None and self._has_later(ends, newest):
            missing = newest + 1
        if missing is not None:
            raise CorruptionError(f"entry {missing} of the journal in {self._directory} is damaged: {_REMEDY}")
        return [found[sequence] for sequence in range(oldest, newest + 1)] if found else []

    def _chain(self, file: File) -> tuple[list[_Entry], int]:
        """Return the whole entries at the beginning of a file whose sequences rise by one, and where they end."""
        entries: list[_Entry] = []
        position = 0
        while True:
            head = file.read(position, HEADER_BYTES)
            header = parse_header(head, self._id)
            if header is None or not _follows(header, entries):
                break
            if not is_whole(head, file.read(position + HEADER_BYTES, header.body_bytes), header):
                break
            entries.append(_Entry(file, position, header))
            position += header.size_bytes
        return entries, position

    def _has_later(self, ends: list[tuple[File, int]], newest: int) -> bool:
        """Return whether an entry stands behind the end of a file's entries that is newer than all of them.

        An entry is written once the one before is durable, so the end of the journal was damaged later.
        """
        return any(header.sequence > newest + 1 for file, end in ends for header in self._headers(file, end))

    def _headers(self, file: File, position: int) -> Iterator[EntryHeader]:
        """Yield whatever looks like the header of an entry from a block on."""
        size_bytes = file.size()
        while position < size_bytes:
            blocks = file.read(position, _BLOCKS_READ * BLOCK_BYTES)
            for start in range(0, len(blocks), BLOCK_BYTES):
                header = parse_header(blocks[start : start + HEADER_BYTES], self._id)
                if header is not None:
                    yield header
            position += _BLOCKS_READ * BLOCK_BYTES

    def _needed_pieces(self, entries: list[_Entry]) -> dict[tuple[str, int], list[tuple[_Entry, StoredPiece]]]:
        """Return the pieces of each partition that were not forgotten, in their order."""
        pieces: dict[tuple[str, int], list[tuple[_Entry, StoredPiece]]] = {}
        for entry in entries:
            body = entry.file.read(entry.position + HEADER_BYTES, entry.header.body_bytes)
            try:
                for piece in pieces_of(body, entry.header.piece_count):
                    key = piece.topic_id, piece.partition
                    if piece.forgets:
                        pieces.pop(key, None)
                    else:
                        pieces.setdefault(key, []).append((entry, piece))
            except ValueError as error:
                raise CorruptionError(f"{entry.file.path} at byte {entry.position}: {error}") from error
        return pieces

    # Writing

    def _write(self, directory: Path, pieces: list[tuple[_Entry, StoredPiece]]) -> None:
        by_segment: dict[int, list[tuple[_Entry, StoredPiece]]] = {}
        for entry, piece in pieces:
            by_segment.setdefault(piece.base_offset, []).append((entry, piece))
        for base_offset, found in by_segment.items():
            path = directory / offset_file_name(base_offset, LOG_SUFFIX)
            # Retention has deleted the segment, or its loss is for recovery to find.
            if self._file_system.exists(path):
                with contextlib.closing(self._file_system.open(path)) as segment:
                    self._write_segment(segment, base_offset, found)

    def _write_segment(self, segment: File, base_offset: int, pieces: list[tuple[_Entry, StoredPiece]]) -> None:
        for entry, piece in pieces:
            if segment.size() < piece.position:
                # Bytes are missing that the segment's own fsync had covered. Recovery reports the loss.
                _logger.error("%s ends before byte %d, where the journal goes on", segment.path, piece.position)
                break
            content = entry.file.read(entry.position + HEADER_BYTES + piece.body_position, piece.length)
            self._check_conflict(segment, base_offset, piece.position, content)
            segment.write(piece.position, [content])
            self.replayed_bytes += len(content)
        segment.sync()

    def _check_conflict(self, segment: File, base_offset: int, position: int, content: bytes) -> None:
        """Refuse to write over whole batches that are not those of the piece: another program has written them."""
        if content.startswith(segment.read(position, len(content))):
            return
        for start, stored in _whole_batches(segment, base_offset, position):
            wanted = content[start : start + len(stored)]
            # A torn write may end in the first bytes of a batch, which no CRC covers.
            if stored[:_BASE_OFFSET_BYTES] != wanted[:_BASE_OFFSET_BYTES]:
                return
            if stored[_CRC_AT:] != wanted[_CRC_AT:]:
                raise CorruptionError(
                    f"{segment.path} has another batch at byte {position + start} than the journal in "
                    f"{self._directory}: another program has written it since the last stop; {_REMEDY}"
                )


def _follows(header: EntryHeader, entries: list[_Entry]) -> bool:
    """Return whether an entry is the next one. Behind the last one lie those of the file's earlier use."""
    return not entries or header.sequence == entries[-1].header.sequence + 1


def _whole_batches(segment: File, base_offset: int, position: int) -> Iterator[tuple[int, bytes]]:
    """Yield the batches from ``position`` on up to the first that is damaged, each with its distance from there."""
    try:
        for batch in walk_batches(segment, position, segment.size(), base_offset, has_gaps=True):
            yield batch.position - position, bytes(read_batch(segment, batch).buffer)
    except CorruptionError:
        return
