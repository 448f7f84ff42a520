from __future__ import annotations

import random

import pytest

from client.tests.sample_records import random_records, with_right_crc
from rollway.records import (
    HEADER_BYTES,
    BrokenBatchError,
    Codec,
    RecordBatch,
    RecordFormatError,
    TimestampType,
    UnknownCodecError,
    UnsupportedMagicError,
    columns_from_records,
    encode_batch,
    parse_header,
    split_batches,
    stamp,
)


@pytest.fixture
def batch() -> bytes:
    return encode_batch(
        columns_from_records(random_records(1, 4)),
        base_offset=10,
        leader_epoch=3,
        producer_id=77,
        producer_epoch=2,
        base_sequence=5,
        transactional=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        codec=Codec.GZIP,
    )


def test_header_fields_and_what_they_mean(batch: bytes) -> None:
    header = parse_header(batch)
    timestamps = [record.timestamp for record in random_records(1, 4)]
    assert header.base_offset == 10
    assert header.last_offset == 13
    assert header.next_offset == 14
    assert header.size_bytes == len(batch) == header.batch_length + 12
    assert (header.partition_leader_epoch, header.magic) == (3, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 2, 5)
    assert (header.base_timestamp, header.max_timestamp) == (timestamps[0], max(timestamps))
    assert (header.record_count, header.last_offset_delta) == (4, 3)
    assert header.codec is Codec.GZIP
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header._replace(attributes=0x40).has_delete_horizon
    assert header._replace(attributes=0x20).is_control


def test_header_in_the_middle_of_a_buffer(batch: bytes) -> None:
    assert parse_header(b"12345" + batch, 5) == parse_header(batch)
    # The batch may reach beyond the buffer, the header may not.
    assert parse_header(batch[:HEADER_BYTES]) == parse_header(batch)
    with pytest.raises(BrokenBatchError, match="60 bytes at byte 5"):
        parse_header(b"12345" + batch[:60], 5)


@pytest.mark.parametrize("size", range(0, 61, 5))
def test_header_cut_off(batch: bytes, size: int) -> None:
    with pytest.raises(BrokenBatchError):
        parse_header(batch[:size])


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_magics(batch: bytes, magic: int) -> None:
    old = bytearray(batch)
    old[16] = magic
    for reader in (parse_header, split_batches, RecordBatch):
        with pytest.raises(UnsupportedMagicError, match=f"magic {magic} "):
            reader(bytes(old))
    # A message of the old formats may be shorter than a batch's header.
    with pytest.raises(UnsupportedMagicError):
        parse_header(bytes(old[:26]))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_lengths_no_batch_has(batch: bytes, length: int) -> None:
    wrong = bytearray(batch)
    wrong[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(BrokenBatchError, match="at least 49"):
        parse_header(wrong)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codec(batch: bytes, number: int) -> None:
    with pytest.raises(UnknownCodecError, match=str(number)):
        _ = parse_header(batch)._replace(attributes=number).codec


def test_v_1_stamping_changes_bytes_0_to_7_and_12_to_15_only(batch: bytes) -> None:
    """Spec E16."""
    buffer = bytearray(b"before" + batch + b"after")
    stamp(buffer, 6, 2**40, 9)
    stamped = bytes(buffer[6:-5])
    assert (buffer[:6], buffer[-5:]) == (b"before", b"after")
    assert {place for place in range(len(batch)) if stamped[place] != batch[place]} <= {*range(8), *range(12, 16)}
    RecordBatch(stamped).check_crc()
    header = parse_header(stamped)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (2**40, 2**40 + 3, 9)
    stamp(memoryview(buffer), 6, 10, 3)
    assert bytes(buffer[6:-5]) == batch


def test_v_5_every_flipped_bit_from_byte_21_on_breaks_the_crc(batch: bytes) -> None:
    for place in range(21, len(batch)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[place] ^= 1 << bit
            with pytest.raises(BrokenBatchError, match="CRC"):
                RecordBatch(flipped).check_crc()


def test_v_5_bits_before_the_crc_that_the_log_owns_leave_it_valid(batch: bytes) -> None:
    for place in (*range(8), *range(12, 16)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[place] ^= 1 << bit
            RecordBatch(flipped).check_crc()
    for place in range(17, 21):
        flipped = bytearray(batch)
        flipped[place] ^= 1
        with pytest.raises(BrokenBatchError, match="CRC"):
            RecordBatch(flipped).check_crc()
    RecordBatch(with_right_crc(flipped)).check_crc()


def test_split_cuts_whole_batches_without_copying(batch: bytes) -> None:
    other = encode_batch(columns_from_records(random_records(2, 1)))
    buffer = bytearray(batch + other + batch)
    batches = split_batches(buffer)
    assert [bytes(part.buffer) for part in batches] == [batch, other, batch]
    assert [bytes(part.body) for part in batches] == [batch[61:], other[61:], batch[61:]]
    stamp(buffer, len(batch), 500, 0)
    assert parse_header(batches[1].buffer).base_offset == 500
    assert split_batches(b"") == []


def test_split_names_the_byte_where_a_batch_is_cut_off(batch: bytes) -> None:
    for kept in (1, 60, 61, len(batch) - 1):
        with pytest.raises(BrokenBatchError, match=f"at byte {len(batch)}"):
            split_batches(batch + batch[:kept])


def test_a_batch_is_exactly_its_buffer(batch: bytes) -> None:
    for wrong in (batch + b"\x00", batch[:-1]):
        with pytest.raises(BrokenBatchError):
            RecordBatch(wrong)


def test_random_bytes_are_refused_with_typed_errors() -> None:
    random_ = random.Random(5)
    for _ in range(2000):
        noise = bytearray(random_.randbytes(random_.randrange(200)))
        if len(noise) > 16 and random_.random() < 0.8:
            noise[16] = 2
        with pytest.raises(RecordFormatError):
            split_batches(noise or b"\x00")
