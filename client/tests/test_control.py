from __future__ import annotations

import pytest

from rollway.records import (
    BrokenRecordError,
    ControlRecord,
    ControlType,
    RecordBatch,
    decode_batch,
    decode_control_record,
    encode_control_batch,
)


@pytest.mark.parametrize("control_type", ControlType)
@pytest.mark.parametrize("timestamp", [0, -1, 2**62])
def test_control_batch_is_78_bytes_and_reads_back(control_type: ControlType, timestamp: int) -> None:
    batch = encode_control_batch(
        control_type,
        producer_id=2**40,
        producer_epoch=7,
        coordinator_epoch=2**31 - 1,
        timestamp=timestamp,
        base_offset=12,
        leader_epoch=5,
    )
    assert len(batch) == 78
    parsed = RecordBatch(batch)
    parsed.check_crc()
    header = parsed.header
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.partition_leader_epoch, header.record_count) == (12, 5, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 7, -1)
    assert header.base_timestamp == header.max_timestamp == timestamp
    columns = decode_batch(parsed)
    assert columns.timestamps.tolist() == [timestamp]
    assert decode_control_record(columns.keys[0], columns.values[0]) == ControlRecord(control_type, 2**31 - 1)


def test_bytes_of_a_control_record() -> None:
    batch = encode_control_batch(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=3, timestamp=0, base_offset=0
    )
    assert batch[61:].hex(" ") == "20 00 00 00 08 00 00 00 01 0c 00 00 00 00 00 03 00"


def test_later_versions_may_say_more() -> None:
    record = decode_control_record(b"\x00\x01\x00\x00more", b"\x00\x01\x00\x00\x00\x02more")
    assert record == ControlRecord(ControlType.ABORT, 2)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (bytes(4), None),
        (bytes(3), bytes(6)),
        (bytes(4), bytes(5)),
        (b"\xff\xff\x00\x00", bytes(6)),
        (bytes(4), b"\xff\xff\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x02", bytes(6)),
        (b"\x00\x00\xff\xff", bytes(6)),
    ],
)
def test_broken_control_records_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(BrokenRecordError):
        decode_control_record(key, value)
