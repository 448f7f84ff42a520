"""The journal: which logs it makes durable, what fails together, and when its files are free again."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from log_model.errors import PartitionFailedError
from storage.journal import journal as journal_module
from storage.journal.entries import BLOCK_BYTES
from storage.journal.journal_files import JournalFiles, JournalLimits
from storage.journal.pieces import PIECE_BYTES_MAX
from storage.log.partition_log import PartitionLog
from tests.crash.disk_faults import Fault, Operation
from tests.support.writers import record_batch
from tests.unit.storage.journal.journal_stand import (
    LARGE,
    META_PROPERTIES,
    SMALL,
    JournalStand,
    content_of,
    ends_after_power_cut,
)

# What is taken


def test_one_fsync_makes_the_appends_of_many_logs_durable() -> None:
    stand = JournalStand(partitions=5)
    stand.commit(*stand.logs)
    for log in stand.logs[:4]:
        stand.append(log, b"a", b"b")
    before = len(stand.disk.operations)
    assert stand.flush(*stand.logs) == [True] * 5
    kinds = [(each.kind, each.path.suffix) for each in stand.disk.operations[before:] if each.kind == "sync"]
    assert kinds == [("sync", ".journal")] * (1 + (kinds[0] != kinds[-1]) + (len(kinds) == 2))
    assert [log.durable_end_offset for log in stand.logs] == [3, 3, 3, 3, 1]
    assert [log.writer.fsynced_end for log in stand.logs] == [0] * 5
    assert ends_after_power_cut(stand) == [3, 3, 3, 3, 1]


def test_a_log_without_anything_new_needs_no_entry() -> None:
    stand = JournalStand()
    stand.commit(stand.logs[0])
    before = len(stand.disk.operations)
    assert stand.flush(*stand.logs) == [True] * 3
    assert stand.flush() == []
    assert len(stand.disk.operations) == before


def test_a_piece_has_everything_since_the_log_was_durable() -> None:
    stand = JournalStand()
    log = stand.logs[0]
    for number in range(5):
        stand.append(log, b"%d" % number)
    log.flush()
    for number in range(3):
        stand.append(log, b"%d" % number)
    assert stand.flush(log) == [True]
    assert ends_after_power_cut(stand)[0] == 8


@pytest.mark.parametrize(("excess", "answer"), [(0, True), (1, False)])
def test_a_piece_has_a_largest_size(excess: int, answer: bool) -> None:
    stand = JournalStand()
    log = stand.logs[0]
    overhead = len(record_batch(b"x" * 60_000)) - 60_000
    stand.append(log, b"x" * (PIECE_BYTES_MAX - overhead + excess))
    assert log.unflushed_bytes == PIECE_BYTES_MAX + excess
    assert stand.flush(log) == [answer]
    log.flush()
    assert log.durable_end_offset == 1
    assert ends_after_power_cut(stand)[0] == 1


def test_pieces_that_no_entry_has_room_for_are_left() -> None:
    """A small file also limits the entry; the logs behind are flushed by themselves."""
    stand = JournalStand(SMALL)
    for log in stand.logs:
        stand.append(log, b"x" * (BLOCK_BYTES + BLOCK_BYTES // 4))
    assert stand.flush(*stand.logs) == [True, True, False]
    assert ends_after_power_cut(stand) == [1, 1, 0]


def test_what_was_written_before_a_roll_is_durable_by_it() -> None:
    stand = JournalStand()
    log = stand.logs[0]
    stand.commit(stand.logs[1])
    stand.append(log, b"x")
    log.roll()
    before = len(stand.disk.operations)
    assert stand.flush(log) == [True]
    assert len(stand.disk.operations) == before
    stand.append(log, b"y")
    assert stand.flush(log) == [True]
    assert ends_after_power_cut(stand)[0] == 2


def test_a_log_that_is_flushed_by_another_thread_is_not_waited_for() -> None:
    stand = JournalStand()
    first, second, _ = stand.logs
    for log in (first, second):
        stand.append(log, b"x")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(first.writer.flushing.acquire).result()
        assert stand.flush(first, second) == [False, True]
        pool.submit(first.writer.flushing.release).result()
    assert stand.flush(first, second) == [True, True]


def test_a_flush_holds_logs_until_the_entry_is_durable_and_no_longer() -> None:
    """A truncation in between would cut what the entry has."""
    stand = JournalStand()
    log = stand.logs[0]
    stand.commit(log)
    stand.append(log, b"x")
    seen: list[bool] = []

    def try_flushing() -> bool:
        taken = log.writer.flushing.acquire(blocking=False)
        if taken:
            log.writer.flushing.release()
        return taken

    with ThreadPoolExecutor(1) as pool:

        def look(operation: Operation) -> None:
            if operation.kind == "sync":
                seen.append(pool.submit(try_flushing).result())

        stand.disk.before_operation = look
        stand.flush(log)
        stand.disk.before_operation = None
        assert set(seen) == {False}
        assert pool.submit(try_flushing).result()


def test_a_log_may_be_named_twice() -> None:
    stand = JournalStand()
    log = stand.logs[0]
    stand.append(log, b"x")
    assert stand.flush(log, log) == [True, True]
    assert ends_after_power_cut(stand)[0] == 1


def test_threads_take_turns() -> None:
    stand = JournalStand(JournalLimits(3, 64 * BLOCK_BYTES, BLOCK_BYTES), partitions=8)

    def work(log: PartitionLog) -> None:
        for _ in range(20):
            stand.append(log, b"x")
            if stand.journal.flush([log]) == [False]:
                log.flush()
            if stand.journal.needs_freeing:
                stand.journal.free()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, log) for log in stand.logs]:
            done.result(timeout=60)
    assert [log.durable_end_offset for log in stand.logs] == [20] * 8
    assert ends_after_power_cut(stand) == [20] * 8


def test_without_files_there_is_no_journal() -> None:
    stand = JournalStand(JournalLimits.of(0))
    log = stand.logs[0]
    stand.append(log, b"x")
    before = len(stand.disk.operations)
    assert not stand.journal.is_usable
    assert stand.flush(log) == [False]
    assert len(stand.disk.operations) == before
    log.flush()
    assert ends_after_power_cut(stand)[0] == 1
    assert not stand.is_marked()


def test_a_small_journal_keeps_every_promise() -> None:
    """Its files have room for one entry of many pieces, or for less."""
    stand = JournalStand(JournalLimits.of(1), partitions=20)
    for _ in range(8):
        for log in stand.logs:
            stand.append(log, b"x" * 60_000)
        for log, answer in zip(stand.logs, stand.flush(*stand.logs), strict=True):
            if answer is False:
                log.flush()
    assert ends_after_power_cut(stand) == [8] * 20
    stand.journal.free()
    assert ends_after_power_cut(stand) == [8] * 20


# Offline logs


def test_an_offline_log_fails_alone() -> None:
    stand = JournalStand()
    first, second, _ = stand.logs
    for log in (first, second):
        stand.append(log, b"x")
    first.take_offline("of the test")
    failure, answer = stand.flush(first, second)
    assert isinstance(failure, PartitionFailedError)
    assert "of the test" in str(failure)
    assert answer is True
    assert ends_after_power_cut(stand) == [0, 1, 0]


def test_a_log_whose_file_was_cut_fails_alone() -> None:
    stand = JournalStand()
    first, second, _ = stand.logs
    for log in (first, second):
        stand.append(log, b"x")
    first.writer.written.active.file.truncate(10)
    failure, answer = stand.flush(first, second)
    assert isinstance(failure, PartitionFailedError)
    assert first.offline_reason is not None
    assert answer is True


# Disk errors


def test_logs_that_share_a_failed_fsync_go_offline_and_the_others_go_on() -> None:
    """Disk rule 3: what did not reach the disk may be gone from memory, and another fsync would not say so."""
    stand = JournalStand()
    for _ in range(3):
        stand.commit(*stand.logs)
    first, second, third = stand.logs
    stand.append(first, b"x")
    stand.append(second, b"x")
    synced = stand.synced(".journal")
    stand.disk.fault = Fault(0, errno.EIO, lasting=True, kinds=frozenset({"sync"}))
    failures = stand.flush(first, second, third)
    assert [type(answer) for answer in failures] == [PartitionFailedError, PartitionFailedError, bool]
    assert [log.offline_reason is None for log in stand.logs] == [False, False, True]
    stand.disk.fault = None
    assert not stand.journal.is_usable
    stand.append(third, b"x")
    assert stand.flush(third) == [False]
    third.flush()
    assert stand.synced(".journal") == synced + 1, "an fsync was tried again"
    assert ends_after_power_cut(stand) == [3, 3, 4]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("kind", ["create", "extend", "write", "sync_directory", "make_directory", "rename"])
def test_a_disk_that_refuses_the_journal_takes_no_partition_offline(kind: str, error: int) -> None:
    """Whichever operation it refuses, from the folder of the first entry to the growth of the second file."""
    for at in range(100):
        stand = JournalStand(JournalLimits(2, 4 * BLOCK_BYTES, BLOCK_BYTES), partitions=1)
        log = stand.logs[0]
        stand.append(log, b"x")
        fault = stand.fail(kind, error, at=at)
        for _ in range(9):
            (answer,) = stand.flush(log)
            assert answer in (True, False)
            stand.disk.fault = None
            if answer is False:
                log.flush()
            stand.append(log, b"x")
            stand.disk.fault = fault
        stand.disk.fault = None
        assert log.offline_reason is None
        log.flush()
        assert ends_after_power_cut(stand) == [10]
        stand.journal.free()
        # A full disk may have room for the mark once the ballast is given up.
        assert not fault.hits or not stand.journal.is_usable or error == errno.ENOSPC
        assert stand.is_marked() == stand.journal.is_usable
        assert ends_after_power_cut(stand) == [10]
        if not fault.hits:
            break
    assert at > 0


def test_an_ended_journal_settles_its_logs_and_lowers_the_mark() -> None:
    stand = JournalStand()
    stand.commit(*stand.logs)
    stand.append(stand.logs[0], b"x")
    stand.fail("write", errno.ENOSPC)
    assert stand.flush(stand.logs[0]) == [False]
    assert stand.is_marked()
    assert stand.journal.needs_freeing
    stand.journal.free()
    assert not stand.is_marked()
    assert not stand.journal.needs_freeing
    assert ends_after_power_cut(stand) == [2, 1, 1]
    stand.logs[1].truncate_to(0)
    assert ends_after_power_cut(stand) == [2, 0, 1]


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_the_report_of_the_end_keeps_no_log_open(caplog: pytest.LogCaptureFixture, kind: str) -> None:
    """The frames of the disk's error have the logs, and with them the files of topics that are deleted later."""
    stand = JournalStand()
    stand.commit(*stand.logs)
    stand.append(stand.logs[0], b"x")
    stand.fail(kind, errno.ENOSPC)
    stand.flush(*stand.logs)
    (record,) = [record for record in caplog.records if record.name == journal_module.__name__]
    assert "No space left" in record.getMessage()
    assert record.exc_info is None
    assert [type(part) for part in record.args or ()] == [str]


def test_a_mark_that_cannot_be_lowered_stays_and_is_tried_again() -> None:
    stand = JournalStand()
    stand.commit(stand.logs[0])
    stand.append(stand.logs[0], b"x")
    stand.fail("write", errno.ENOSPC)
    stand.flush(stand.logs[0])
    stand.disk.fault = Fault(0, errno.EIO, lasting=True, kinds=frozenset({"rename"}))
    with pytest.raises(OSError, match="Input/output"):
        stand.journal.free()
    assert stand.journal.needs_freeing
    assert stand.is_marked()
    stand.disk.fault = None
    stand.journal.free()
    assert not stand.is_marked()
    assert ends_after_power_cut(stand)[0] == 2


def test_an_entry_that_was_refused_is_not_replayed_over_later_records() -> None:
    """Its bytes may have reached the disk all the same."""
    stand = JournalStand()
    log = stand.logs[0]
    stand.commit(stand.logs[1])
    stand.append(log, b"cut")
    stand.fail("write", errno.EIO, written=1)
    assert stand.flush(log) == [False]
    log.flush()
    with pytest.raises(PartitionFailedError):
        log.truncate_to(0)
    assert ends_after_power_cut(stand)[0] == 1
    stand.journal.free()
    after = JournalStand(disk=stand.disk.killed())
    log = after.logs[0]
    log.truncate_to(0)
    after.append(log, b"new")
    log.flush()
    log.publish()
    again = after.after_kill().logs[0]
    assert content_of(again.snapshot) == content_of(log.snapshot)


# The mark


def test_the_mark_is_there_from_the_first_entry_to_the_clean_stop() -> None:
    stand = JournalStand()
    before = stand.content(META_PROPERTIES)
    assert not stand.is_marked()
    stand.commit(stand.logs[0])
    assert stand.is_marked()
    assert stand.manager.close()
    assert stand.content(META_PROPERTIES) == before
    after = JournalStand(disk=stand.disk.power_cut())
    assert after.manager.was_clean
    assert after.logs[0].written_end_offset == 1


def test_a_journal_that_was_never_used_leaves_no_trace() -> None:
    stand = JournalStand()
    stand.append(stand.logs[0], b"x")
    stand.logs[0].flush()
    assert stand.flush(*stand.logs) == [True] * 3
    assert stand.manager.close()
    assert not any("journal" in path for path in stand.disk.tree())


def test_a_stop_that_is_not_clean_keeps_the_mark() -> None:
    stand = JournalStand()
    stand.commit(*stand.logs)
    stand.logs[0].fail(OSError(errno.EIO, "of the test"), "appending")
    assert not stand.manager.close()
    assert stand.is_marked()
    assert ends_after_power_cut(stand) == [1, 1, 1]


def test_an_unexpected_error_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = JournalStand()
    log = stand.logs[0]
    stand.append(log, b"x")

    def fail(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(journal_module, "encode_entry", fail)
    with pytest.raises(ValueError, match="a defect"):
        stand.flush(log)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(log.writer.flushing.acquire, blocking=False).result()


def test_every_flush_that_is_answered_is_durable_by_one_sync_of_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = JournalStand(LARGE)
    calls = []
    sync = JournalFiles.sync
    monkeypatch.setattr(JournalFiles, "sync", lambda self: calls.append(1) or sync(self))  # type: ignore[func-returns-value]
    for count in range(1, 5):
        stand.commit(*stand.logs)
        assert len(calls) == count
