"""Kafka's cases TX: transactions in one partition, as the engine keeps them."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from log_model.batches.batch_validation import validate_batches
from log_model.errors import OffsetOutOfRangeError
from log_model.offsets import Offset
from log_model.reads import Isolation
from log_model.transactions import TransactionMarker
from rollway.records import (
    ControlRecord,
    ControlType,
    RecordBatch,
    decode_batch,
    decode_control_record,
)
from storage.log.partition_log import AppendRequest
from tests.cases.logs import CaseLog, batch_of, kafka_code_of, refused
from tests.cases.transactional import MIXED_ENTRIES, Producer, committed, last_stable, mixed, stored_aborted

NewLog = Callable[..., CaseLog]


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
    assert kafka_code_of(second) == 48


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


def test_several_transactions_of_one_producer_in_one_group(new_log: NewLog) -> None:
    """E22: the second begins behind the marker of the first, all written together."""
    log = new_log()
    producer, other = Producer(log, 1), Producer(log, 2)
    config, now_ms = log.partition.config, log.clock.now_ms()

    def data(body: bytes) -> AppendRequest:
        return AppendRequest(tuple(validate_batches(body, config, now_ms)))

    def end(producer_id: int, *, commit: bool) -> AppendRequest:
        return AppendRequest.marker(TransactionMarker(producer_id, 0, 0, commit))

    group = [
        data(producer.batch(2) + producer.batch(1)),
        data(other.batch()),
        end(1, commit=False),
        data(producer.batch(3)),
        data(batch_of(2)),
        end(1, commit=False),
        data(producer.batch()),
        end(2, commit=True),
        end(1, commit=True),
        data(producer.batch()),
    ]
    answers = log.partition.append(group)
    assert [getattr(answer, "base_offset", answer) for answer in answers] == [0, 3, 4, 5, 8, 10, 11, 12, 13, 14]
    log.partition.publish()
    assert stored_aborted(log) == [(1, 0, 4, 3), (1, 5, 10, 3)]
    assert last_stable(log) == 14
    assert log.partition.producers.entries[1].current_txn_first_offset == 14
    assert log.aborted() == [(1, 0, 4, 3), (1, 5, 10, 3)]


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("lost", [(), (".snapshot",), (".txnindex",), (".txnindex", ".snapshot", ".index")])
def test_tx_6_everything_is_there_after_a_restart(new_log: NewLog, clean: bool, lost: tuple[str, ...]) -> None:
    """TX-6: after kill -9, with .txnindex and .snapshot deleted, the same entries and the same last stable offset."""
    log = new_log()
    mixed(log)
    entries = {base: stored_aborted(log, base) for base in log.base_offsets}
    before = last_stable(log), log.partition.producers.entries, log.aborted(), log.offsets(0, Isolation.LAST_STABLE)
    assert (before[0], entries) == (16, MIXED_ENTRIES)
    directory = log.directory
    if clean:
        log.stop()
    else:
        log.kill()
    for path in directory.iterdir():
        if path.suffix in lost:
            path.unlink()
    log.start()
    after = last_stable(log), log.partition.producers.entries, log.aborted(), log.offsets(0, Isolation.LAST_STABLE)
    assert {base: stored_aborted(log, base) for base in log.base_offsets} == entries
    assert (after[0], *after[2:]) == (before[0], *before[2:])
    assert {number: entry.current_txn_first_offset for number, entry in after[1].items()} == {
        1: -1,
        2: -1,
        3: -1,
        4: 16,
    }
    log.end_transaction(4, commit=False)
    assert last_stable(log) == log.end_offset
    assert stored_aborted(log, 13) == [*MIXED_ENTRIES[13], (4, 16, 20, 21)]


@pytest.mark.parametrize("damage", ["cut", "version", "order", "too long"])
def test_tx_6_a_bad_index_is_made_anew_though_the_stop_was_clean(new_log: NewLog, damage: str) -> None:
    """E20."""
    log = new_log()
    mixed(log)
    path = log.file(9, ".txnindex")
    log.stop()
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[-1:]
    elif damage == "version":
        content[1] = 1
    elif damage == "order":
        content = content[34:] + content[:34]
    else:
        content += struct.pack(">hqqqq", 0, 9, 9, 1000, 1001)
    path.write_bytes(content)
    log.start()
    assert {base: stored_aborted(log, base) for base in log.base_offsets} == MIXED_ENTRIES
    assert last_stable(log) == 16


@pytest.mark.parametrize("offset", range(20))
def test_tx_8_a_fetch_lists_the_aborted_transactions_it_touches(new_log: NewLog, offset: int) -> None:
    """E23: from any offset on, of any size: all that overlap what is returned, in the order of their markers."""
    log = new_log()
    mixed(log)
    everything = [entry for entries in MIXED_ENTRIES.values() for entry in entries]
    for max_bytes in (1, 200, 500, 1 << 20):
        fetched = log.snapshot.read(Offset(offset), max_bytes, isolation=Isolation.LAST_STABLE)
        expected = [entry for entry in everything if entry[2] >= offset and entry[1] < fetched.next_offset]
        assert list(fetched.aborted or ()) == (expected if fetched.slices else [])
        assert fetched.next_offset <= max(offset, 16)


def test_tx_9_only_aborted_data(new_log: NewLog) -> None:
    """TX-9: the bytes come, with the list; a filtering consumer gets nothing and goes on."""
    log = new_log()
    producer = Producer(log, 1)
    for _ in range(3):
        producer.send(4)
        producer.abort()
    fetched = log.snapshot.read(Offset(0), 1 << 20, isolation=Isolation.LAST_STABLE)
    assert fetched.size_bytes == log.snapshot.size_bytes
    assert (fetched.next_offset, committed(log)) == (15, [])
    assert [entry.first_offset for entry in fetched.aborted or ()] == [0, 5, 10]


def test_tx_9_committed_records_of_a_mixed_log(new_log: NewLog) -> None:
    log = new_log()
    mixed(log)
    assert committed(log) == [11]
    log.end_transaction(4, commit=True)
    assert committed(log) == [11, 16, 17, 18, 19]
    assert committed(log, 12) == [16, 17, 18, 19]


def test_f_15_offsets_by_isolation(new_log: NewLog) -> None:
    """F-15: three records open: latest 3, committed 0; no committed record by time until the marker."""
    log = new_log()
    producer = Producer(log, 1)
    producer.send(3)
    snapshot = log.snapshot
    assert snapshot.bound(Isolation.HIGH_WATERMARK).offset == 3
    assert snapshot.bound(Isolation.LAST_STABLE).offset == 0
    assert snapshot.offset_for_timestamp(0, Isolation.LAST_STABLE) is None
    assert snapshot.max_timestamp(Isolation.LAST_STABLE) is None
    assert snapshot.available_bytes(Offset(0), Isolation.LAST_STABLE) == 0
    found = snapshot.offset_for_timestamp(0)
    assert found is not None
    assert found.offset == 0
    producer.commit()
    assert log.snapshot.bound(Isolation.LAST_STABLE).offset == 4
    assert log.snapshot.offset_for_timestamp(0, Isolation.LAST_STABLE) == found
    assert log.snapshot.available_bytes(Offset(0), Isolation.LAST_STABLE) == log.snapshot.size_bytes


def test_d12_a_read_ends_before_the_open_transaction(new_log: NewLog) -> None:
    """D12: log end and high watermark 10, last stable offset 3."""
    log = new_log()
    log.send(batch_of(3))
    Producer(log, 1).send(1)
    log.send(batch_of(6))
    assert (log.end_offset, log.snapshot.high_watermark, last_stable(log)) == (10, 10, 3)
    assert log.offsets(0, Isolation.LAST_STABLE) == [0, 1, 2]
    assert log.offsets(3, Isolation.LAST_STABLE) == []
    assert log.offsets(5, Isolation.LAST_STABLE) == []
    with pytest.raises(OffsetOutOfRangeError):
        log.read(11, Isolation.LAST_STABLE)
