"""The entries of the journal: their bytes, and how they are read again.

Entry: a header, then a descriptor for each piece, then the bytes of the pieces, then zeros up to a whole block. All
numbers are big-endian.

====================  =====  ==================================================================
header                bytes
====================  =====  ==================================================================
magic                     8  ``RWJOURN1``
crc                       4  CRC-32C of everything behind it, without the zeros
body length               4  bytes of descriptors and pieces
journal id               24  22 characters, then zeros: entries of earlier journals do not count
sequence                  8  1 for the first entry of a journal, then one more for each
oldest                    8  the oldest sequence that a replay needs
piece count               4
reserved                  4  0
====================  =====  ==================================================================

====================  =====  ==================================================================
descriptor            bytes
====================  =====  ==================================================================
topic id                 24  22 characters, then zeros
partition                 4
base offset               8  of the segment
position                  8  of the piece in the segment's log file; -1 forgets all earlier pieces
end offset                8  the offset behind the piece
length                    4  of the piece
====================  =====  ==================================================================

An entry begins at a block, so that a torn write of one entry cannot harm the one before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import crc32c

BLOCK_BYTES = 4096
ENTRY_BYTES_MAX = 8 * 1024 * 1024
ID_LENGTH = 22

_MAGIC = b"RWJOURN1"
_HEADER = struct.Struct(">8sII22s2xQQI4x")
_CRC_FROM = 12
_PIECE = struct.Struct(">22s2xiqqqI")
_FORGETS = -1
_ZEROS = bytes(BLOCK_BYTES)

HEADER_BYTES = _HEADER.size
PIECE_OVERHEAD_BYTES = _PIECE.size


class Piece(NamedTuple):
    """Bytes of one segment: whole batches that end at ``end_offset``, to lie at ``position`` of its log file."""

    topic_id: str
    partition: int
    base_offset: int
    position: int
    end_offset: int
    content: bytes

    @classmethod
    def forgetting(cls, topic_id: str, partition: int) -> Piece:
        """Return the piece that lets a replay forget all earlier ones of this partition."""
        return cls(topic_id, partition, 0, _FORGETS, 0, b"")

    @property
    def forgets(self) -> bool:
        return self.position == _FORGETS


class EntryHeader(NamedTuple):
    """The header of an entry; nothing of it is checked yet but the magic and the journal's id."""

    crc: int
    body_bytes: int
    sequence: int
    oldest: int
    piece_count: int

    @property
    def size_bytes(self) -> int:
        """The length of the entry with its zeros."""
        return whole_blocks(HEADER_BYTES + self.body_bytes)


class StoredPiece(NamedTuple):
    """A piece of an entry that was read, with the place of its bytes in the entry's body."""

    topic_id: str
    partition: int
    base_offset: int
    position: int
    end_offset: int
    body_position: int
    length: int

    @property
    def forgets(self) -> bool:
        return self.position == _FORGETS


def whole_blocks(size_bytes: int) -> int:
    """Return the size of the blocks that hold ``size_bytes``."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def encode(journal_id: str, sequence: int, oldest: int, pieces: Sequence[Piece]) -> list[bytes]:
    """Return the bytes of an entry, in parts that are written one behind the other."""
    return encode_entry(journal_id, sequence, oldest, len(pieces), encode_body(pieces))


def encode_body(pieces: Sequence[Piece]) -> bytes:
    """Return the body of an entry: the descriptors of the pieces, and their bytes."""
    return b"".join(
        [
            *(
                _PIECE.pack(topic_id.encode(), partition, base_offset, position, end_offset, len(content))
                for topic_id, partition, base_offset, position, end_offset, content in pieces
            ),
            *(piece.content for piece in pieces),
        ]
    )


def encode_entry(journal_id: str, sequence: int, oldest: int, piece_count: int, body: bytes) -> list[bytes]:
    """Return the bytes of an entry with this body, as ``encode``."""
    header = _HEADER.pack(_MAGIC, 0, len(body), journal_id.encode(), sequence, oldest, piece_count)
    crc = crc32c.crc32c(body, crc32c.crc32c(header[_CRC_FROM:]))
    header = _HEADER.pack(_MAGIC, crc, len(body), journal_id.encode(), sequence, oldest, piece_count)
    size_bytes = HEADER_BYTES + len(body)
    return [header, body, _ZEROS[: whole_blocks(size_bytes) - size_bytes]]


def parse_header(block: bytes, journal_id: str) -> EntryHeader | None:
    """Return the header at the beginning of ``block``, ``None`` if there is none of this journal."""
    if len(block) < HEADER_BYTES:
        return None
    magic, crc, body_bytes, found_id, sequence, oldest, piece_count = _HEADER.unpack_from(block)
    if magic != _MAGIC or found_id != journal_id.encode() or HEADER_BYTES + body_bytes > ENTRY_BYTES_MAX:
        return None
    return EntryHeader(crc, body_bytes, sequence, oldest, piece_count)


def is_whole(header_bytes: bytes, body: bytes, header: EntryHeader) -> bool:
    """Return whether an entry arrived as it was written."""
    if len(body) != header.body_bytes or header.piece_count * _PIECE.size > header.body_bytes:
        return False
    found: int = crc32c.crc32c(body, crc32c.crc32c(header_bytes[_CRC_FROM:HEADER_BYTES]))
    return found == header.crc


def pieces_of(body: bytes, piece_count: int) -> Iterator[StoredPiece]:
    """Yield the pieces of a whole entry.

    Raises:
        ValueError: its parts do not fit together.
    """
    body_position = piece_count * _PIECE.size
    for number in range(piece_count):
        topic_id, partition, base_offset, position, end_offset, length = _PIECE.unpack_from(body, number * _PIECE.size)
        if position < _FORGETS or body_position + length > len(body):
            raise ValueError(f"piece {number} has position {position} and {length} bytes")
        yield StoredPiece(topic_id.decode(), partition, base_offset, position, end_offset, body_position, length)
        body_position += length
