"""Kafka's cases TX: transactions in one partition, as the engine keeps them."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from rollway.records import ControlRecord, ControlType, RecordBatch, decode_batch, decode_control_record
from storage.log_snapshot import Isolation
from tests.cases.logs import CaseLog, batch_of, refused

NewLog = Callable[..., CaseLog]


class Producer:
    """A transactional producer that counts its sequences."""

    def __init__(self, log: CaseLog, producer_id: int, epoch: int = 0) -> None:
        self.log = log
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def batch(self, count: int = 1, *, transactional: bool = True) -> bytes:
        """The next batch, not sent."""
        data = batch_of(
            count,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=transactional,
        )
        self.sequence += count
        return data

    def send(self, count: int = 1) -> int:
        """Append a transactional batch; return its first offset."""
        return self.log.send(self.batch(count)).base_offset

    def commit(self) -> int:
        return self.log.end_transaction(self.producer_id, commit=True, producer_epoch=self.epoch).base_offset

    def abort(self) -> int:
        return self.log.end_transaction(self.producer_id, commit=False, producer_epoch=self.epoch).base_offset


def last_stable(log: CaseLog) -> int:
    return log.snapshot.last_stable_offset


def stored_aborted(log: CaseLog, base_offset: int = 0) -> list[tuple[int, int, int, int]]:
    """The entries of a segment's .txnindex as the file has them: producer, first, last, last stable offset."""
    path = log.file(base_offset, ".txnindex")
    content = path.read_bytes() if path.exists() else b""
    entries = list(struct.iter_unpack(">hqqqq", content))
    assert all(entry[0] == 0 for entry in entries)
    return [entry[1:] for entry in entries]


def test_tx_1_the_last_stable_offset_waits_for_the_marker(new_log: NewLog) -> None:
    """TX-1: five records open, 0; the marker at 5 makes it 6."""
    log = new_log()
    producer = Producer(log, 1)
    producer.send(5)
    assert (last_stable(log), log.snapshot.high_watermark) == (0, 5)
    assert log.offsets(isolation=Isolation.LAST_STABLE) == []
    assert log.offsets() == [0, 1, 2, 3, 4]
    assert producer.commit() == 5
    assert (last_stable(log), log.snapshot.high_watermark, log.end_offset) == (6, 6, 6)
    assert log.offsets(isolation=Isolation.LAST_STABLE) == [0, 1, 2, 3, 4, 5]
    assert log.aborted() == []
    assert log.snapshot.read(log.snapshot.log_start_offset, 1000).aborted is None


def test_tx_1_a_marker_counts_when_the_high_watermark_is_above_it(new_log: NewLog) -> None:
    """TX-1: not while the high watermark is 5 or less, with the marker at 5."""
    log = new_log({"flush.policy": "group"})
    producer = Producer(log, 1)
    producer.send(5)
    assert (last_stable(log), log.snapshot.high_watermark) == (0, 0)
    log.flush()
    assert (last_stable(log), log.snapshot.high_watermark) == (0, 5)
    producer.abort()
    assert (last_stable(log), log.snapshot.high_watermark, log.end_offset) == (0, 5, 6)
    assert log.offsets(isolation=Isolation.LAST_STABLE) == []
    log.flush()
    assert (last_stable(log), log.snapshot.high_watermark) == (6, 6)
    assert log.aborted() == [(1, 0, 5, 6)]


def test_tx_1_the_marker_is_a_control_batch_of_78_bytes(new_log: NewLog) -> None:
    """E22: transactional and control, no sequence, the coordinator's epoch in its value."""
    log = new_log()
    Producer(log, 7, 3).send()
    log.end_transaction(7, commit=False, producer_epoch=3, coordinator_epoch=9)
    batch = RecordBatch(log.read(1))
    batch.check_crc()
    header = batch.header
    assert (header.size_bytes, header.base_offset, header.record_count) == (78, 1, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert (header.is_transactional, header.is_control, header.max_timestamp) == (True, True, log.clock.now_ms())
    columns = decode_batch(batch)
    record = decode_control_record(columns.keys.to_list()[0], columns.values.to_list()[0])
    assert record == ControlRecord(ControlType.ABORT, 9)


def test_tx_3_entries_name_the_next_open_transaction(new_log: NewLog) -> None:
    """TX-3: (1, 0, 29, 8) and (2, 8, 74, 36)."""
    log = new_log()
    one, two, three = Producer(log, 1), Producer(log, 2), Producer(log, 3)
    one.send(8)
    two.send(21)
    assert one.abort() == 29
    log.send(batch_of(6))
    three.send(38)
    assert two.abort() == 74
    assert stored_aborted(log) == [(1, 0, 29, 8), (2, 8, 74, 36)]
    assert last_stable(log) == 36


@pytest.mark.parametrize("with_data", [False, True])
def test_tx_4_fencing(new_log: NewLog, with_data: bool) -> None:
    """TX-4: an older epoch's marker is 47, an older coordinator's 52; a newer epoch begins at sequence 0."""
    log = new_log()
    producer = Producer(log, 1, epoch=5)
    producer.send(2)
    if not with_data:
        log.end_transaction(1, commit=True, producer_epoch=5, coordinator_epoch=1)
    with refused(log, 47):
        log.end_transaction(1, commit=True, producer_epoch=4, coordinator_epoch=9)
    log.end_transaction(1, commit=False, producer_epoch=6, coordinator_epoch=2)
    with refused(log, 52):
        log.end_transaction(1, commit=True, producer_epoch=6, coordinator_epoch=1)
    with refused(log, 47):
        log.send(producer.batch())
    newer = Producer(log, 1, epoch=6)
    newer.sequence = 2
    with refused(log, 45):
        log.send(newer.batch())
    newer.sequence = 0
    newer.send()
    log.end_transaction(1, commit=True, producer_epoch=6, coordinator_epoch=2)
    assert last_stable(log) == log.end_offset


def test_tx_5_a_batch_of_no_transaction_while_one_is_open(new_log: NewLog) -> None:
    """TX-5: 48; also inside one request and one group."""
    log = new_log()
    producer = Producer(log, 1)
    producer.send(3)
    plain = producer.batch(transactional=False)
    with refused(log, 48):
        log.send(plain)
    producer.commit()
    log.send(plain)
    begin = producer.batch()
    mixed = begin + producer.batch(transactional=False)
    with refused(log, 48):
        log.send(mixed)
    first, second = log.send_group(begin, mixed[len(begin) :])
    assert not isinstance(first, Exception)
    assert isinstance(second, Exception)
    assert second.kafka_code == 48


def test_tx_5_the_marker_of_nothing(new_log: NewLog) -> None:
    """TX-5: stored, but there is no entry, nor a file for it (C1)."""
    log = new_log()
    log.end_transaction(1, commit=False)
    log.end_transaction(1, commit=True)
    Producer(log, 2).send()
    log.end_transaction(2, commit=True)
    assert log.end_offset == last_stable(log) == 4
    log.restart(clean=True)
    assert log.file_names(".txnindex") == []
