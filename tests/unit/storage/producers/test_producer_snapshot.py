"""Producer snapshots, to the byte."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from log_model.errors import CorruptionError
from log_model.offsets import Offset
from storage.disk.file_system import LocalFileSystem
from storage.producers.producer_snapshot import (
    CorruptSnapshotError,
    ProducerRecord,
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
)
from tests.support.recording_file_system import RecordingFileSystem

FILE_SYSTEM = LocalFileSystem()
RECORD = ProducerRecord(
    producer_id=4711,
    producer_epoch=3,
    last_sequence=14,
    last_offset=1499,
    offset_delta=4,
    timestamp=1_700_000_000_000,
    coordinator_epoch=-1,
    current_txn_first_offset=-1,
)


def with_crc(version: int, body: bytes) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def test_the_empty_state_is_ten_bytes():
    """on-disk: version 1, CRC-32C of four zero bytes (0x48674bc7), count 0."""
    assert encode_snapshot([]) == bytes.fromhex("0001 48674bc7 00000000")
    assert decode_snapshot(bytes.fromhex("0001 48674bc7 00000000")) == []


def test_a_record_is_46_bytes():
    """on-disk: the order and width of every field; the checksum covers byte 6 to the end."""
    content = encode_snapshot([RECORD])
    body = bytes.fromhex(
        "00000001"  # count
        "0000000000001267"  # producer id
        "0003"  # epoch
        "0000000e"  # last sequence
        "00000000000005db"  # last offset
        "00000004"  # offset delta
        "0000018bcfe56800"  # timestamp
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # first offset of the open transaction
    )
    assert len(content) == 10 + 46
    assert content == with_crc(1, body)
    assert decode_snapshot(content) == [RECORD]


def test_every_cut_and_every_flipped_bit_is_noticed():
    """RC-11: half a file, an empty one, bit rot."""
    content = encode_snapshot([RECORD, RECORD._replace(producer_id=9)])
    for length in range(len(content)):
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(content[:length])
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(flipped))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (with_crc(2, bytes(4)), "version 2"),
        (with_crc(0, bytes(4)), "version 0"),
        (with_crc(1, struct.pack(">i", 1)), "cannot hold exactly 1"),
        (with_crc(1, struct.pack(">i", -1)), "cannot hold exactly -1"),
        (with_crc(1, struct.pack(">i", 2**31 - 1) + bytes(46)), "cannot hold exactly 2147483647"),
        (with_crc(1, struct.pack(">i", 0) + bytes(46)), "cannot hold exactly 0"),
        (with_crc(1, struct.pack(">i", 1) + bytes(47)), "cannot hold exactly 1"),
    ],
)
def test_a_right_checksum_over_nonsense_is_refused_too(content, says):
    with pytest.raises(CorruptSnapshotError, match=says):
        decode_snapshot(content)


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=120), version=st.integers(-1, 2), right_crc=st.booleans())
def test_any_bytes_are_read_or_refused(content, version, right_crc):
    whole = with_crc(version, content) if right_crc else content
    try:
        records = decode_snapshot(whole)
    except CorruptSnapshotError:
        return
    assert encode_snapshot(records) == whole


def test_a_file_is_written_in_one_durable_step_and_read(tmp_path):
    disk = RecordingFileSystem()
    path = ProducerSnapshots(disk, tmp_path).write(Offset(1500), [RECORD])
    assert path == tmp_path / "00000000000000001500.snapshot"
    assert [operation for operation, _name in disk.operations] == [
        "create",
        "write",
        "sync",
        "rename",
        "sync_directory",
    ]
    assert read_snapshot(disk, path) == [RECORD]


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "00000000000000001500.snapshot"
    path.write_bytes(b"")
    with pytest.raises(CorruptSnapshotError, match=r"00000000000000001500\.snapshot: 0 bytes") as caught:
        read_snapshot(FILE_SYSTEM, path)
    assert isinstance(caught.value, CorruptionError)


def test_a_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / "00000000000000001500.snapshot"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptSnapshotError, match="longer than"):
        read_snapshot(FILE_SYSTEM, path)


def test_a_missing_file_is_not_corrupt(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_snapshot(FILE_SYSTEM, tmp_path / "00000000000000001500.snapshot")
