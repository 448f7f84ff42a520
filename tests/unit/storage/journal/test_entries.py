"""Entries of the journal: every one that was written is read, and no other."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.disk.topic_metadata import new_topic_id
from storage.journal.entries import (
    BLOCK_BYTES,
    ENTRY_BYTES_MAX,
    HEADER_BYTES,
    PIECE_OVERHEAD_BYTES,
    EntryHeader,
    Piece,
    StoredPiece,
    encode,
    is_whole,
    parse_header,
    pieces_of,
    whole_blocks,
)

JOURNAL_ID = "BdouUs8URounMxV6TIXe3w"
OTHER_ID = "YfncLB0XTv-17LyyY53IZQ"
TOPIC_IDS = st.builds(new_topic_id)
OFFSETS = st.integers(0, 2**63 - 1)
PIECES = st.builds(Piece, TOPIC_IDS, st.integers(0, 2**31 - 1), OFFSETS, OFFSETS, OFFSETS, st.binary(max_size=9000))
FORGETTING = st.builds(Piece.forgetting, TOPIC_IDS, st.integers(0, 2**31 - 1))
SEQUENCES = st.integers(0, 2**64 - 1)


def read(content: bytes, journal_id: str = JOURNAL_ID) -> tuple[EntryHeader, bytes] | None:
    """The entry at the beginning of ``content`` as a replay reads it."""
    header = parse_header(content[:HEADER_BYTES], journal_id)
    if header is None:
        return None
    body = content[HEADER_BYTES : HEADER_BYTES + header.body_bytes]
    return (header, body) if is_whole(content[:HEADER_BYTES], body, header) else None


def restored(body: bytes, pieces: list[StoredPiece]) -> list[Piece]:
    return [Piece(*piece[:5], body[piece.body_position : piece.body_position + piece.length]) for piece in pieces]


@given(SEQUENCES, SEQUENCES, st.lists(PIECES | FORGETTING, max_size=5))
@settings(max_examples=60, deadline=None)
def test_what_was_written_is_read(sequence: int, oldest: int, pieces: list[Piece]) -> None:
    content = b"".join(encode(JOURNAL_ID, sequence, oldest, pieces))
    found = read(content)
    assert found is not None
    header, body = found
    assert (header.sequence, header.oldest, header.piece_count) == (sequence, oldest, len(pieces))
    assert header.size_bytes == len(content)
    assert len(content) % BLOCK_BYTES == 0
    stored = list(pieces_of(body, header.piece_count))
    assert restored(body, stored) == pieces
    assert [piece.forgets for piece in stored] == [piece.forgets for piece in pieces]
    size_bytes = HEADER_BYTES + len(pieces) * PIECE_OVERHEAD_BYTES + sum(len(piece.content) for piece in pieces)
    assert len(content) == whole_blocks(size_bytes)


SMALL = b"".join(
    encode(
        JOURNAL_ID,
        7,
        3,
        [
            Piece(OTHER_ID, 5, 10, 20, 30, b"some bytes"),
            Piece.forgetting(JOURNAL_ID, 0),
            Piece(OTHER_ID, 6, 0, 0, 1, b""),
        ],
    )
)


def used_bytes(content: bytes) -> int:
    header = parse_header(content, JOURNAL_ID)
    assert header is not None
    return HEADER_BYTES + header.body_bytes


def test_every_flipped_bit_is_noticed() -> None:
    for place in range(used_bytes(SMALL)):
        for bit in range(8):
            content = bytearray(SMALL)
            content[place] ^= 1 << bit
            assert read(bytes(content)) is None, f"byte {place}, bit {bit}"


def test_every_cut_is_noticed() -> None:
    used = used_bytes(SMALL)
    for length in range(used):
        assert read(SMALL[:length]) is None
        assert read(SMALL[:length] + bytes(len(SMALL) - length)) is None
    assert read(SMALL[:used]) is not None


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_other_bytes_are_no_entry(content: bytes) -> None:
    assert read(content) is None


def test_an_entry_of_another_journal_is_none() -> None:
    assert read(SMALL, OTHER_ID) is None


def test_a_length_over_the_limit_is_refused_before_anything_is_read() -> None:
    content = bytearray(SMALL)
    content[12:16] = struct.pack(">I", ENTRY_BYTES_MAX - HEADER_BYTES + 1)
    assert parse_header(bytes(content), JOURNAL_ID) is None
    content[12:16] = struct.pack(">I", ENTRY_BYTES_MAX - HEADER_BYTES)
    assert parse_header(bytes(content), JOURNAL_ID) is not None


@pytest.mark.parametrize("count", [2, 2**31])
def test_more_descriptors_than_bytes_are_refused(count: int) -> None:
    """The CRC may be right, if the writer was wrong."""
    header = EntryHeader(0, PIECE_OVERHEAD_BYTES, 1, 1, count)
    assert not is_whole(bytes(HEADER_BYTES), bytes(PIECE_OVERHEAD_BYTES), header)


@pytest.mark.parametrize(("position", "length"), [(-2, 0), (0, 11), (0, 2**32 - 1)])
def test_pieces_that_do_not_fit_are_refused(position: int, length: int) -> None:
    descriptor = struct.pack(">22s2xiqqqI", OTHER_ID.encode(), 0, 0, position, 1, length)
    with pytest.raises(ValueError, match="piece 0"):
        list(pieces_of(descriptor + b"0123456789", 1))


@pytest.mark.parametrize(
    ("size_bytes", "expected"), [(0, 0), (1, 4096), (4095, 4096), (4096, 4096), (4097, 8192), (2**20 + 1, 2**20 + 4096)]
)
def test_whole_blocks(size_bytes: int, expected: int) -> None:
    assert whole_blocks(size_bytes) == expected
