"""The journal of a directory that was not stopped cleanly: its entries, and the pieces of segments in them.

docs/reference/on-disk-format.md describes the files. The check refuses what a start refuses, and says where it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import crc32c

from storage.disk.file_system import File, FileSystem
from storage.log_inspection.findings import Findings

JOURNAL_FILE_SUFFIX = ".journal"
BLOCK_BYTES = 4096
ENTRY_BYTES_MAX = 8 << 20
ENTRY_HEADER = struct.Struct(">8sII22s2xQQI4x")
"""magic crc body_length journal_id sequence oldest piece_count: 64 bytes with the reserved ones."""
PIECE_DESCRIPTOR = struct.Struct(">22s2xiqqqI")
"""topic_id partition base_offset position end_offset length: 56 bytes with the reserved ones."""
ENTRY_CRC_START = 12

_MAGIC = b"RWJOURN1"
_FORGETS = -1
_BLOCKS_READ = 256


class JournalPiece(NamedTuple):
    """Bytes that belong to ``position`` of a segment; ``at`` is where they are in the journal's file."""

    file: File
    at: int
    base_offset: int
    position: int
    end_offset: int
    length: int

    @property
    def end(self) -> int:
        return self.position + self.length

    def read(self, start: int, length: int) -> bytes:
        return self.file.read(self.at + start, length)


class _Entry(NamedTuple):
    file: File
    position: int
    crc: int
    body_bytes: int
    sequence: int
    oldest: int
    piece_count: int

    @property
    def body_at(self) -> int:
        return self.position + ENTRY_HEADER.size

    @property
    def following(self) -> int:
        """The first block behind the entry."""
        return -(-(self.body_at + self.body_bytes) // BLOCK_BYTES) * BLOCK_BYTES

    def problem(self) -> str | None:
        """Return why the entry is not whole."""
        header, body = self.file.read(self.position, ENTRY_HEADER.size), self.file.read(self.body_at, self.body_bytes)
        if len(body) != self.body_bytes:
            return f"its body has {self.body_bytes} bytes, but the file ends after {len(body)} of them"
        if self.piece_count * PIECE_DESCRIPTOR.size > self.body_bytes:
            return f"{self.piece_count} pieces do not fit into its {self.body_bytes} bytes"
        crc = crc32c.crc32c(body, crc32c.crc32c(header[ENTRY_CRC_START:]))
        return None if crc == self.crc else f"its CRC is {self.crc:#010x}, but the bytes give {crc:#010x}"


class _Chain(NamedTuple):
    """The whole entries at the beginning of a file, and later headers behind their end, which is a position."""

    file: File
    entries: list[_Entry]
    end: int
    later: list[_Entry]

    @property
    def last(self) -> int:
        return self.entries[-1].sequence if self.entries else 0


class StoredJournal:
    """The pieces that the next start writes to segments, by (topic id, partition); found by ``read``.

    ``is_damaged``: the next start refuses this journal. ``pieces`` are then those of the entries that are whole.
    """

    def __init__(self, file_system: FileSystem, directory: Path, journal_id: str, findings: Findings) -> None:
        self.directory = directory
        self.pieces: dict[tuple[str, int], list[JournalPiece]] = {}
        self.is_damaged = False
        self._file_system = file_system
        self._id = journal_id.encode()
        self._findings = findings
        self._files: list[File] = []

    def close(self) -> None:
        for file in self._files:
            file.close()

    def read(self) -> None:
        """Read and check the whole journal.

        Raises:
            OSError: the disk refused to be read.
        """
        if not self._file_system.is_directory(self.directory):
            self._damage(self.directory, "the journal is missing, though the service was not stopped cleanly")
            return
        for name in self._file_system.list_directory(self.directory):
            if name.endswith(JOURNAL_FILE_SUFFIX):
                self._files.append(self._file_system.open(self.directory / name, writable=False))
        if not self._files:
            self._damage(self.directory, "the journal has no files, so what only the journal held is lost")
            return
        chains = [self._read_chain(file) for file in self._files]
        found = {entry.sequence: entry for chain in chains for entry in chain.entries}
        oldest, needed = _needed(found)
        self._check_sequences(chains, oldest, needed)
        if self.is_damaged:
            later = (entry for chain in chains for entry in chain.later)
            found.update({entry.sequence: entry for entry in later if entry.problem() is None})
            _, needed = _needed(found)
        for sequence in needed:
            self._take_pieces(found[sequence])

    def _damage(self, path: Path, message: str, position: int | None = None) -> None:
        self.is_damaged = True
        self._findings.damage(path, message, position)

    # Entries

    def _read_chain(self, file: File) -> _Chain:
        entries: list[_Entry] = []
        position = 0
        while True:
            entry = self._parse(file, position, file.read(position, ENTRY_HEADER.size))
            follows = entry is not None and (not entries or entry.sequence == entries[-1].sequence + 1)
            if entry is None or not follows or entry.problem() is not None:
                break
            entries.append(entry)
            position = entry.following
        last = entries[-1].sequence if entries else 0
        # Behind the newest entry are those of the file's earlier use.
        return _Chain(file, entries, position, [each for each in self._headers(file, position) if each.sequence > last])

    def _parse(self, file: File, position: int, header: bytes) -> _Entry | None:
        if len(header) < ENTRY_HEADER.size:
            return None
        magic, crc, body_bytes, found_id, *numbers = ENTRY_HEADER.unpack(header)
        if magic != _MAGIC or found_id != self._id or ENTRY_HEADER.size + body_bytes > ENTRY_BYTES_MAX:
            return None
        return _Entry(file, position, crc, body_bytes, *numbers)

    def _headers(self, file: File, position: int) -> Iterator[_Entry]:
        """Yield everything from a block on that looks like the header of an entry."""
        while blocks := file.read(position, _BLOCKS_READ * BLOCK_BYTES):
            for start in range(0, len(blocks), BLOCK_BYTES):
                entry = self._parse(file, position + start, blocks[start : start + ENTRY_HEADER.size])
                if entry is not None:
                    yield entry
            position += len(blocks)

    def _check_sequences(self, chains: Sequence[_Chain], oldest: int, needed: Sequence[int]) -> None:
        expected = oldest
        for sequence in needed:
            if sequence > expected:
                self._report_missing(chains, expected, sequence - 1)
            expected = sequence + 1
        later = [entry.sequence for chain in chains for entry in chain.later if entry.sequence > expected]
        if later:
            # An entry is written once the one before it is durable.
            self._report_missing(chains, expected, expected)
            return
        for chain in chains:
            for entry in chain.later:
                if entry.sequence == expected and entry.position == chain.end:
                    self._findings.note(
                        entry.file.path,
                        f"entry {expected} of the journal is unfinished, as a crash leaves the last one; the next "
                        "start ignores it",
                        entry.position,
                    )

    def _report_missing(self, chains: Sequence[_Chain], first: int, last: int) -> None:
        what = f"entry {first} of the journal"
        others = "" if last == first else f"; entries up to {last} are also missing"
        for entry in (entry for chain in chains for entry in chain.later):
            if entry.sequence == first:
                problem = entry.problem() or "it does not follow the entry before it"
                self._damage(entry.file.path, f"{what} is damaged: {problem}{others}", entry.position)
                return
        # It began where a file's whole entries end, before the later ones.
        for chain in chains:
            if chain.last in (0, first - 1) and any(entry.sequence > first for entry in chain.later):
                self._damage(chain.file.path, f"{what} should begin here{others}", chain.end)
                return
        for chain in chains:
            if chain.entries and chain.last == first - 1:
                self._damage(
                    chain.file.path, f"{what} is missing, here and at the beginning of another file{others}", chain.end
                )
                return
        self._damage(self.directory, f"{what} is in none of the files{others}")

    # Pieces

    def _take_pieces(self, entry: _Entry) -> None:
        descriptors = entry.file.read(entry.body_at, entry.piece_count * PIECE_DESCRIPTOR.size)
        at, end = entry.body_at + len(descriptors), entry.body_at + entry.body_bytes
        for number, fields in enumerate(PIECE_DESCRIPTOR.iter_unpack(descriptors)):
            topic_id, partition, base_offset, position, end_offset, length = fields
            if position < _FORGETS or at + length > end or not topic_id.isascii():
                self._damage(
                    entry.file.path,
                    f"piece {number} of entry {entry.sequence} has position {position} and {length} bytes, of which "
                    f"the entry has {end - at}",
                    entry.position,
                )
                return
            key = topic_id.decode(), partition
            if position == _FORGETS:
                self.pieces.pop(key, None)
            else:
                piece = JournalPiece(entry.file, at, base_offset, position, end_offset, length)
                self.pieces.setdefault(key, []).append(piece)
            at += length


def _needed(found: Mapping[int, _Entry]) -> tuple[int, list[int]]:
    """Return the oldest sequence that a start needs, and those from there on that were found, in their order."""
    oldest = found[max(found)].oldest if found else 1
    return oldest, sorted(sequence for sequence in found if sequence >= oldest)


def by_segment(pieces: Sequence[JournalPiece]) -> Mapping[int, list[JournalPiece]]:
    """Return the pieces of one partition by the base offsets of their segments, each in the journal's order."""
    found: dict[int, list[JournalPiece]] = {}
    for piece in pieces:
        found.setdefault(piece.base_offset, []).append(piece)
    return found
