"""The formats of Kafka 0.7: entries whose ids are byte positions, and the framing of fetch answers."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollway.records import (
    BrokenBatchError,
    BrokenFrameError,
    ByteEntry,
    MessageSetFrame,
    MultiFrame,
    decode_entries,
    decode_frame,
    decode_multi_frame,
    encode_entries,
    encode_frame,
    encode_multi_frame,
    frame_head,
    multi_frame_head,
    read_entries,
)

error_codes = st.integers(-(2**15), 2**15 - 1)
frames = st.builds(MessageSetFrame, error_codes, st.binary(max_size=50))


def test_b2_ids_are_byte_positions() -> None:
    stream = encode_entries([b"five!", b"", b"seven.."])
    read = decode_entries(stream)
    assert [entry.entry_id for entry in read.entries] == [0, 14, 23]
    assert (read.entries[-1].next_id, read.next_id, len(stream)) == (39, 39, 39)
    assert stream[:14] == struct.pack(">ibI", 10, 0, zlib.crc32(b"five!")) + b"five!"
    assert decode_entries(stream[14:], 14).entries == (ByteEntry(14, b""), ByteEntry(23, b"seven.."))


@given(st.lists(st.binary(max_size=30), max_size=6), st.integers(0, 200), st.integers(0, 2**62))
def test_b5_a_partial_last_entry_is_dropped(payloads: list[bytes], cut: int, first_id: int) -> None:
    stream = encode_entries(payloads)
    cut = min(cut, len(stream))
    read = decode_entries(stream[:cut], first_id)
    ends = [first_id + len(encode_entries(payloads[: count + 1])) for count in range(len(payloads))]
    whole_count = sum(end <= first_id + cut for end in ends)
    assert [entry.payload for entry in read.entries] == payloads[:whole_count]
    assert read.next_id == ([first_id, *ends][whole_count])


def test_b5_the_reader_doubles_its_buffer() -> None:
    """Spec B5: a message of 100,000 bytes is whole with 131,072."""
    stream = encode_entries([b"x" * 100_000, b"next"])
    asked: list[int] = []

    def fetch(entry_id: int, max_bytes: int) -> bytes:
        asked.append(max_bytes)
        return stream[entry_id : entry_id + max_bytes]

    read = read_entries(fetch, 0, max_bytes=16_384, max_bytes_limit=2**20)
    assert asked == [16_384, 32_768, 65_536, 131_072]
    assert [len(entry.payload) for entry in read.entries] == [100_000, 4]
    assert read_entries(fetch, read.next_id, max_bytes=1, max_bytes_limit=1).entries == ()
    with pytest.raises(BrokenBatchError):
        read_entries(fetch, 0, max_bytes=16_384, max_bytes_limit=100_000)
    assert asked[-1] == 100_000
    with pytest.raises(ValueError, match="0 bytes"):
        read_entries(fetch, 0, max_bytes=0, max_bytes_limit=10)


def test_b2_every_flipped_bit_of_a_payload_or_crc_is_found() -> None:
    stream = encode_entries([b"payload"])
    for bit in range(8 * 5, 8 * len(stream)):
        flipped = bytearray(stream)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BrokenBatchError):
            decode_entries(flipped)


@given(st.binary(max_size=60))
def test_b2_any_bytes_are_entries_or_an_error(content: bytes) -> None:
    try:
        read = decode_entries(content, 7)
    except BrokenBatchError:
        return
    assert 7 <= read.next_id <= 7 + len(content)


@given(frames)
def test_b9_single_frames(frame: MessageSetFrame) -> None:
    encoded = encode_frame(frame)
    assert encoded == struct.pack(">ih", 2 + len(frame.content), frame.error_code) + bytes(frame.content)
    assert encoded == frame_head(len(frame.content), frame.error_code) + bytes(frame.content)
    assert len(encoded) == frame.size_bytes
    assert decode_frame(encoded) == frame


@given(st.lists(frames, max_size=5), error_codes)
def test_b9_multi_frames(singles: list[MessageSetFrame], error_code: int) -> None:
    encoded = encode_multi_frame(singles, error_code)
    (total_length,) = struct.unpack_from(">i", encoded)
    assert total_length == len(encoded) - 4 == 2 + sum(frame.size_bytes for frame in singles)
    assert encoded[:6] == multi_frame_head([len(frame.content) for frame in singles], error_code)
    assert decode_multi_frame(encoded) == MultiFrame(error_code, tuple(singles))


@given(st.binary(max_size=60))
def test_b9_any_bytes_are_frames_or_an_error(content: bytes) -> None:
    try:
        multi = decode_multi_frame(content)
    except BrokenFrameError:
        return
    assert encode_multi_frame(multi.frames, multi.error_code) == content


def test_b9_lengths_that_lie() -> None:
    good = encode_multi_frame([MessageSetFrame(0, b"one"), MessageSetFrame(3, b"")])
    for wrong in (
        good[:-1],
        good + b"\0",
        b"",
        struct.pack(">ih", 1, 0),
        struct.pack(">ih", -1, 0),
        struct.pack(">ih", 2**31 - 1, 0),
        good[:6] + struct.pack(">i", 6) + good[10:],
        good[:6] + struct.pack(">i", 100) + good[10:],
    ):
        with pytest.raises(BrokenFrameError):
            decode_multi_frame(wrong)
    with pytest.raises(BrokenFrameError, match="more than 1 "):
        decode_multi_frame(good, frames_max=1)
    for content_bytes, error_code in ((2**31 - 2, 0), (0, 2**15)):
        with pytest.raises(ValueError, match="no frame"):
            frame_head(content_bytes, error_code)
