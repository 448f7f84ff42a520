"""Transactions when the log is cut, restarted, damaged or out of room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.errors import CorruptionError, DiskFullError
from log_model.offsets import Offset
from log_model.reads import Isolation
from log_model.transactions import TransactionMarker
from storage.disk.file_system import LocalFileSystem
from storage.log.partition_log import AppendRequest
from storage.producers.producer_snapshot import read_snapshot
from tests.cases.logs import TOPIC, CaseLog, batch_of, refused
from tests.cases.transactional import MIXED_ENTRIES, Producer, committed, last_stable, mixed, stored_aborted
from tests.support.recording_file_system import RecordingFileSystem

NewLog = Callable[..., CaseLog]


def test_ps_6_a_producer_in_a_transaction_does_not_expire(new_log: NewLog) -> None:
    log = new_log()
    Producer(log, 1).send()
    Producer(log, 2).send()
    log.end_transaction(2, commit=True)
    log.clock.advance(10**10)
    assert log.partition.expire_producers() == 1
    assert set(log.partition.producers.entries) == {1}
    log.end_transaction(1, commit=True)
    log.clock.advance(10**10)
    assert log.partition.expire_producers() == 1


def test_rc_11_the_snapshot_keeps_the_open_transaction(new_log: NewLog) -> None:
    """RC-11, on-disk: currentTxnFirstOffset and the coordinator's epoch, at a roll and at a clean stop."""
    log = new_log()
    producer = Producer(log, 1)
    producer.send(2)
    log.end_transaction(1, commit=True, coordinator_epoch=4)
    producer.send(2)
    log.roll()
    record = read_snapshot(LocalFileSystem(), log.file(5, ".snapshot"))[0]
    assert (record.coordinator_epoch, record.current_txn_first_offset) == (4, 3)
    log.restart(clean=True)
    assert log.recovery.scanned_bytes == 0
    assert last_stable(log) == 3
    with refused(log, 52):
        log.end_transaction(1, commit=True, coordinator_epoch=3)
    log.end_transaction(1, commit=False, coordinator_epoch=4)
    assert stored_aborted(log, 5) == [(1, 3, 5, 6)]
    assert log.aborted(3) == [(1, 3, 5, 6)]


@pytest.mark.parametrize("target", range(20))
def test_tr_1_truncation_cuts_transactions_too(new_log: NewLog, target: int) -> None:
    """E21: entries at or above the target go; what their markers ended is open again."""
    log = new_log()
    mixed(log)
    log.truncate(target)
    log.partition.publish()
    kept = [entry for entries in MIXED_ENTRIES.values() for entry in entries if entry[2] < target]
    assert [entry for base in log.base_offsets for entry in stored_aborted(log, base)] == kept
    opened: dict[int, int] = {}
    for header in log.headers():
        if header.is_control:
            opened.pop(header.producer_id, None)
        elif header.is_transactional:
            opened.setdefault(header.producer_id, header.base_offset)
    assert last_stable(log) == min([*opened.values(), log.snapshot.high_watermark])
    log.restart(clean=False)
    assert last_stable(log) == min([*opened.values(), log.snapshot.high_watermark])
    assert [entry for base in log.base_offsets for entry in stored_aborted(log, base)] == kept


def test_e8_the_log_start_may_pass_an_open_transaction(new_log: NewLog) -> None:
    """E8, E22: the last stable offset is never below the log start."""
    log = new_log()
    producer = Producer(log, 1)
    producer.send(4)
    log.send(batch_of(4))
    assert log.delete_records(6) == 6
    assert (log.snapshot.log_start_offset, last_stable(log), log.snapshot.high_watermark) == (6, 6, 8)
    assert log.offsets(6, Isolation.LAST_STABLE) == []
    for clean in (True, False):
        log.restart(clean=clean)
        assert (log.snapshot.log_start_offset, last_stable(log)) == (6, 6)
    producer.abort()
    assert last_stable(log) == 9
    assert committed(log, 6) == [6, 7]


def test_e8_a_batch_that_the_log_start_cuts_keeps_its_transaction(new_log: NewLog) -> None:
    log = new_log()
    Producer(log, 1).send(4)
    log.delete_records(2)
    log.kill()
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    log.start()
    assert (log.snapshot.log_start_offset, last_stable(log), log.end_offset) == (2, 2, 4)


def test_e7_retention_takes_the_transaction_index_along(new_log: NewLog) -> None:
    """E7: renamed with the rest; who holds a snapshot reads on."""
    log = new_log({"retention.bytes": 1})
    mixed(log)
    before = log.snapshot
    log.run_retention()
    assert log.file_names(".txnindex") == ["00000000000000000013.txnindex"]
    assert [name for name in log.file_names(".txnindex.deleted") if int(name[:20]) < 13] == [
        "00000000000000000000.txnindex.deleted",
        "00000000000000000009.txnindex.deleted",
    ]
    log.clock.advance(100_000)
    log.manager.delete_due_files()
    assert log.file_names(".deleted") == []
    fetched = before.read(Offset(0), 1 << 20, isolation=Isolation.LAST_STABLE)
    assert list(fetched.aborted or ()) == [entry for entries in MIXED_ENTRIES.values() for entry in entries]


def test_e23_a_topic_deleted_under_a_reader_shows_it_no_aborted_records(new_log: NewLog) -> None:
    """E23: omission is not allowed; a list that is gone is not an empty one."""
    log = new_log({"file.delete.delay.ms": 0})
    mixed(log)
    log.restart(clean=True)
    before = log.snapshot
    # As a reader of everything had opened it, who needs no list of transactions.
    before.read(Offset(0), 1 << 20)
    log.manager.delete_topic(TOPIC)
    log.manager.delete_due_files()
    with pytest.raises(CorruptionError, match="gone"):
        before.read(Offset(0), 1 << 20, isolation=Isolation.LAST_STABLE)


@pytest.mark.parametrize("operation", ["create", "write"])
def test_c1_no_file_stays_of_an_entry_that_found_no_room(tmp_path: Path, operation: str) -> None:
    """An append that finds no room for its index entry is undone: bytes, entry, producers."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", file_system=disk)
    producer = Producer(log, 1)
    producer.send(2)
    before = log.log_files(), log.partition.producers.entries, log.file_names()
    disk.refuse, disk.refuse_suffix = {operation}, ".txnindex"
    for _ in range(2):
        (answer,) = log.partition.append([AppendRequest.marker(TransactionMarker(1, 0, 0, commit=False))])
        assert isinstance(answer, DiskFullError)
        log.partition.publish()
        assert (log.log_files(), log.partition.producers.entries, log.file_names()) == before
        assert last_stable(log) == 0
    disk.refuse = set()
    producer.abort()
    assert stored_aborted(log) == [(1, 0, 2, 3)]
    log.restart(clean=True)
    assert log.aborted() == [(1, 0, 2, 3)]


def test_a_damaged_checkpoint_of_transaction_indexes_costs_only_time(new_log: NewLog) -> None:
    """Every index is made anew from the log, and the checkpoint with them."""
    log = new_log()
    mixed(log)
    log.stop()
    checkpoint = log.directory / "transaction-index-checkpoint"
    content = checkpoint.read_text()
    checkpoint.write_text("nonsense")
    for base_offset in MIXED_ENTRIES:
        log.file(base_offset, ".txnindex").unlink(missing_ok=True)
    log.start()
    assert {base: stored_aborted(log, base) for base in log.base_offsets} == MIXED_ENTRIES
    log.stop()
    assert checkpoint.read_text() == content


def test_e20_an_abort_marker_that_is_damaged_is_still_known(new_log: NewLog) -> None:
    """Made anew from the log alone, the index would lose it, and the commit behind would show what was aborted."""
    log = new_log()
    producer = Producer(log, 1)
    producer.send(2)
    start = log.file().stat().st_size
    assert producer.abort() == 2
    end = log.file().stat().st_size
    producer.send(2)
    producer.commit()
    log.flush()
    log.manager.checkpoint()
    assert stored_aborted(log) == [(1, 0, 2, 3)]
    log.kill()
    content = bytearray(log.file().read_bytes())
    content[end - 1] ^= 0xFF
    assert start < end
    log.file().write_bytes(content)
    log.start()
    assert [(lost.start, lost.end) for lost in log.recovery.damage] == [(2, 3)]
    assert stored_aborted(log) == [(1, 0, 2, 3)]
