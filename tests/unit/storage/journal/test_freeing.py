"""When files of the journal are free again, and what the journal forgets."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from log_model.errors import DiskFullError, PartitionFailedError
from storage.log.partition_log import PartitionLog
from tests.crash.disk_faults import Operation
from tests.unit.storage.journal.journal_stand import SMALL, JournalStand, ends_after_power_cut

# Freeing


def fill(stand: JournalStand, log: PartitionLog, files: int) -> None:
    """Commit until this many files are full."""
    while len(stand.journal._files.full) < files:
        stand.commit(log)


def test_a_full_file_is_freed_once_its_segments_are_fsynced() -> None:
    stand = JournalStand(SMALL)
    fill(stand, stand.logs[0], 1)
    end = stand.logs[0].written_end_offset
    assert stand.journal.needs_freeing
    stand.journal.free()
    assert not stand.journal.needs_freeing
    assert stand.logs[0].writer.fsynced_end == end
    for _ in range(3):
        fill(stand, stand.logs[0], 1)
        stand.journal.free()
    assert len(stand.journal_names()) <= 3
    assert ends_after_power_cut(stand)[0] == stand.logs[0].written_end_offset


def test_without_a_free_file_logs_are_flushed_by_themselves() -> None:
    stand = JournalStand(SMALL)
    log = stand.logs[0]
    fill(stand, log, 2)
    stand.append(log, b"x")
    while stand.flush(log) == [True]:
        stand.append(log, b"x")
    assert stand.journal.is_usable
    log.flush()
    stand.journal.free()
    stand.commit(log)
    assert ends_after_power_cut(stand)[0] == log.written_end_offset


def test_a_log_that_was_fsynced_already_is_not_fsynced_again() -> None:
    stand = JournalStand(SMALL)
    fill(stand, stand.logs[0], 1)
    stand.logs[0].flush(to_segment=True)
    synced = stand.synced(".log")
    stand.journal.free()
    assert stand.synced(".log") == synced
    assert not stand.journal.needs_freeing


def test_files_are_freed_in_their_order() -> None:
    """A log that cannot be flushed keeps its file, and all behind it: a replay needs every entry from there on."""
    stand = JournalStand(SMALL)
    broken, healthy, other = stand.logs
    stand.commit(broken, healthy)
    broken.fail(OSError(errno.EIO, "of the test"), "appending")
    fill(stand, healthy, 1)
    stand.journal.free()
    assert not stand.journal.needs_freeing
    fill(stand, healthy, 2)
    stand.journal.free()
    while stand.journal.is_usable:
        stand.append(healthy, b"x")
        if stand.flush(healthy) == [False]:
            healthy.flush()
    assert stand.journal.needs_freeing
    stand.journal.free()
    assert not stand.journal.needs_freeing
    assert stand.is_marked()
    stand.append(other, b"x")
    assert stand.flush(other) == [False]
    other.flush()
    assert ends_after_power_cut(stand) == [1, healthy.written_end_offset, 1]
    assert not stand.manager.close()
    assert ends_after_power_cut(stand) == [1, healthy.written_end_offset, 1]


def test_a_failed_fsync_in_freeing_keeps_the_file() -> None:
    stand = JournalStand(SMALL)
    fill(stand, stand.logs[0], 1)
    end = stand.logs[0].written_end_offset
    stand.fail("sync")
    stand.journal.free()
    assert stand.logs[0].offline_reason is not None
    assert len(stand.journal._files.full) == 1
    assert not stand.journal.needs_freeing
    assert ends_after_power_cut(stand)[0] == end


def test_a_deleted_topic_keeps_no_file() -> None:
    stand = JournalStand(SMALL)
    fill(stand, stand.logs[0], 1)
    stand.manager.delete_topic("t")
    stand.journal.free()
    assert not stand.journal._files.full


def test_a_deleted_log_that_is_still_held_keeps_no_file() -> None:
    stand = JournalStand(SMALL)
    log = stand.logs[0]
    fill(stand, log, 1)
    stand.append(log, b"x")
    stand.manager.delete_topic("t")
    stand.journal.free()
    assert not stand.journal._files.full
    assert log.offline_reason is not None


def test_flushes_go_on_beside_a_freeing() -> None:
    stand = JournalStand(SMALL)
    fill(stand, stand.logs[0], 1)
    reached, go_on = threading.Event(), threading.Event()

    def hold(operation: Operation) -> None:
        if operation.kind == "sync" and operation.path.suffix == ".log":
            reached.set()
            assert go_on.wait(30)

    stand.disk.before_operation = hold
    with ThreadPoolExecutor(1) as pool:
        freeing = pool.submit(stand.journal.free)
        assert reached.wait(30)
        stand.append(stand.logs[0], b"x")
        assert stand.flush(stand.logs[0]) == [False], "its segment is being fsynced"
        stand.commit(stand.logs[1])
        go_on.set()
        freeing.result(timeout=30)
    stand.disk.before_operation = None
    assert ends_after_power_cut(stand)[1] == 1


# Forgetting


def test_a_truncated_log_is_forgotten() -> None:
    stand = JournalStand()
    log = stand.logs[0]
    for _ in range(3):
        stand.commit(log)
    log.truncate_to(1)
    assert ends_after_power_cut(stand)[0] == 1
    stand.append(log, b"other")
    assert stand.flush(log) == [True]
    assert ends_after_power_cut(stand)[0] == 2
    log.truncate_fully_and_start_at(10)
    assert ends_after_power_cut(stand)[0] == 10


def test_a_truncation_needs_no_room() -> None:
    """A full journal must not keep what was truncated."""
    stand = JournalStand(SMALL)
    log = stand.logs[0]
    fill(stand, log, 2)
    size_bytes = None
    for target in range(5, 0, -1):
        log.truncate_to(target)
        assert ends_after_power_cut(stand)[0] == target
        current = stand.journal._files.current
        assert current is not None
        assert size_bytes is None or current.written_bytes >= size_bytes
        size_bytes = current.written_bytes
        stand.append(log, b"x")
        stand.flush(log)
        log.flush()
        log.writer.journal = stand.journal
    stand.journal.free()
    stand.commit(log)
    assert ends_after_power_cut(stand)[0] == log.written_end_offset


def test_a_log_that_the_journal_never_had_is_truncated_without_it() -> None:
    stand = JournalStand()
    stand.commit(stand.logs[0])
    log = stand.logs[1]
    stand.append(log, b"x")
    log.flush()
    synced = stand.synced(".journal")
    log.truncate_to(0)
    assert stand.synced(".journal") == synced
    assert ends_after_power_cut(stand) == [1, 0, 0]


@pytest.mark.parametrize(
    ("kind", "error", "expected"),
    [
        ("write", errno.EIO, PartitionFailedError),
        ("extend", errno.ENOSPC, DiskFullError),
        ("sync", errno.EIO, PartitionFailedError),
    ],
)
def test_a_truncation_that_the_journal_cannot_note_is_refused(kind: str, error: int, expected: type[Exception]) -> None:
    stand = JournalStand()
    log = stand.logs[0]
    stand.commit(log)
    log.flush(to_segment=True)
    stand.fail("write" if kind == "extend" else kind, error)
    with pytest.raises(expected):
        log.truncate_to(0)
    assert not stand.journal.is_usable
    assert ends_after_power_cut(stand)[0] == 1
