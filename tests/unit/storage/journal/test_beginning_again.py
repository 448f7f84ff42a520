"""A journal that a full disk has ended begins again once there is room; one that ended otherwise does not."""

from __future__ import annotations

import errno
import itertools
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage.journal import journal as journal_module
from storage.journal.entries import BLOCK_BYTES
from storage.journal.journal_files import JournalLimits
from tests.crash.disk_faults import FULL_DISK_KINDS, Fault
from tests.unit.storage.journal.journal_stand import (
    JOURNAL_DIRECTORY,
    META_PROPERTIES,
    SMALL,
    JournalStand,
    content_of,
    ends_after_power_cut,
)

ROOM = ["create", "extend", "write", "make_directory"]


class JournalFault(Fault):
    """A fault of operations of one kind on the files of the journal, and on its mark."""

    def strikes(self, kind: str, path: Path) -> bool:
        is_own = JOURNAL_DIRECTORY in (path, path.parent) or path in (JOURNAL_DIRECTORY.parent, META_PROPERTIES.parent)
        is_own = is_own or path.name.startswith(META_PROPERTIES.name)
        return is_own and kind in (self.kinds or ()) and super().strikes(kind, path)


TIGHT = JournalLimits(2, 4 * BLOCK_BYTES, BLOCK_BYTES)


def ended(kind: str = "write", error: int = errno.ENOSPC, *, written: float = 0.5) -> JournalStand:
    """A stand whose journal has ended with this error, after an entry of each log."""
    stand = JournalStand()
    stand.commit(*stand.logs)
    stand.append(stand.logs[0], b"refused")
    stand.fail(kind, error, written=written)
    stand.flush(stand.logs[0])
    stand.disk.fault = None
    assert not stand.journal.is_usable
    return stand


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_with_room_it_begins_again(error: int) -> None:
    stand = ended(error=error)
    first_id = stand.content(META_PROPERTIES)
    stand.journal.free()
    assert not stand.is_marked()
    stand.journal.begin_again()
    assert stand.journal.is_usable
    assert stand.is_marked()
    assert stand.content(META_PROPERTIES) != first_id
    stand.commit(*stand.logs)
    assert ends_after_power_cut(stand) == [3, 2, 2]
    stand.journal.free()
    assert stand.manager.close()
    assert not stand.is_marked()
    assert ends_after_power_cut(stand) == [3, 2, 2]


def test_it_does_not_begin_while_segments_need_its_entries() -> None:
    stand = ended()
    stand.journal.begin_again()
    assert not stand.journal.is_usable
    assert ends_after_power_cut(stand) == [1, 1, 1]
    stand.journal.free()
    stand.journal.begin_again()
    assert stand.journal.is_usable
    assert ends_after_power_cut(stand) == [2, 1, 1]


def test_an_entry_of_the_time_before_is_not_replayed() -> None:
    """The refused entry is whole on the disk, and its log was truncated since."""
    stand = ended(written=1)
    log = stand.logs[0]
    stand.journal.free()
    log.flush()
    stand.journal.begin_again()
    log.truncate_to(0)
    stand.append(log, b"new")
    assert stand.flush(log) == [True]
    log.publish()
    again = stand.after_power_cut().logs[0]
    assert content_of(again.snapshot) == content_of(log.snapshot)


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_after_another_error_it_stays_ended(kind: str, error: int) -> None:
    stand = ended(kind, error)
    stand.journal.free()
    stand.journal.begin_again()
    assert not stand.journal.is_usable


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("kind", [*ROOM, "sync", "sync_directory", "rename", "truncate"])
def test_whichever_operation_fails_only_missing_room_is_mended(kind: str, error: int) -> None:
    """Disk rule 3: a failed fsync is never tried again, although a full disk was its reason."""
    for at in itertools.count():
        stand = JournalStand(TIGHT, partitions=1)
        log = stand.logs[0]
        fault = stand.disk.fault = JournalFault(at, error, kinds=frozenset({kind}))
        for _ in range(9):
            stand.append(log, b"x")
            if stand.flush(log) == [False]:
                log.flush()
            if log.offline_reason is not None or not stand.journal.is_usable:
                break
        has_ended = not stand.journal.is_usable
        stand.disk.fault = None
        stand.journal.free()
        stand.journal.begin_again()
        if has_ended and error == errno.ENOSPC:
            assert stand.journal.is_usable == (kind in ROOM), fault.struck
        elif has_ended:
            assert not stand.journal.is_usable
        if log.offline_reason is None:
            stand.append(log, b"x")
            assert stand.flush(log) == [stand.journal.is_usable]
            log.flush()
            assert ends_after_power_cut(stand) == [log.written_end_offset]
        if not fault.hits:
            break


@pytest.mark.parametrize("kind", ["extend", "write", "sync", "sync_directory", "rename", "create"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_whichever_operation_of_the_beginning_fails(kind: str, error: int) -> None:
    for at in itertools.count():
        stand = ended()
        stand.journal.free()
        fault = stand.disk.fault = JournalFault(at, error, kinds=frozenset({kind}))
        stand.journal.begin_again()
        assert ends_after_power_cut(stand) == [2, 1, 1]
        stand.disk.fault = None
        if not stand.journal.is_usable:
            stand.journal.free()
            stand.journal.begin_again()
            assert stand.journal.is_usable == (error == errno.ENOSPC and fault.struck.endswith("extend 0.journal"))
        for log in stand.logs:
            stand.append(log, b"x")
        assert stand.flush(*stand.logs) == [stand.journal.is_usable] * 3
        for log in stand.logs:
            log.flush()
        assert ends_after_power_cut(stand) == [3, 2, 2]
        if not fault.hits:
            break


def test_a_disk_that_is_still_full_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stand = ended()
    stand.journal.free()
    sizes = [len(stand.content(JOURNAL_DIRECTORY / name)) for name in stand.journal_names()]
    stand.disk.fault = Fault(0, errno.ENOSPC, lasting=True, kinds=FULL_DISK_KINDS)
    for _ in range(3):
        stand.journal.begin_again()
        assert not stand.journal.is_usable
        assert not stand.is_marked()
        assert [len(stand.content(JOURNAL_DIRECTORY / name)) for name in stand.journal_names()] == sizes
    stand.disk.fault = None
    stand.journal.begin_again()
    assert stand.journal.is_usable
    said = [record.getMessage() for record in caplog.records if record.name == journal_module.__name__]
    assert len(said) == 2
    assert said[0].endswith("until the disk has room")
    assert said[1] == "the journal takes entries again: the disk has room"


def test_a_journal_of_full_length_needs_no_more_room() -> None:
    stand = JournalStand(SMALL)
    log = stand.logs[0]
    stand.commit(log)
    while [len(stand.content(JOURNAL_DIRECTORY / name)) for name in stand.journal_names()] != [SMALL.file_bytes] * 3:
        stand.append(log, b"x")
        if stand.flush(log) == [False]:
            stand.journal.free()
    stand.journal.free()
    stand.append(log, b"x")
    stand.fail("write", errno.ENOSPC)
    assert stand.flush(log) == [False]
    stand.disk.fault = None
    stand.journal.free()
    before = len(stand.disk.operations)
    stand.journal.begin_again()
    assert stand.journal.is_usable
    stand.commit(log)
    assert ("extend", ".journal") not in [(each.kind, each.path.suffix) for each in stand.disk.operations[before:]]
    assert ends_after_power_cut(stand)[0] == log.written_end_offset


def test_it_may_end_and_begin_any_number_of_times() -> None:
    stand = JournalStand(TIGHT, partitions=1)
    log = stand.logs[0]
    for _ in range(12):
        for _ in range(3):
            stand.append(log, b"x")
            if stand.flush(log) == [False]:
                log.flush()
        stand.append(log, b"x")
        stand.fail("write", errno.ENOSPC)
        assert stand.flush(log) == [False]
        stand.disk.fault = None
        log.flush()
        stand.journal.free()
        stand.journal.begin_again()
        assert stand.journal.is_usable
        assert ends_after_power_cut(stand) == [log.written_end_offset]
    assert len(stand.journal_names()) <= 2


def test_a_file_that_is_kept_by_a_failed_log_ends_it_for_good() -> None:
    stand = JournalStand(SMALL)
    broken, healthy, _ = stand.logs
    stand.commit(broken, healthy)
    broken.fail(OSError(errno.EIO, "of the test"), "appending")
    while stand.journal.is_usable:
        stand.append(healthy, b"x")
        if stand.flush(healthy) == [False]:
            healthy.flush()
        stand.journal.free()
    stand.journal.begin_again()
    assert not stand.journal.is_usable
    assert stand.is_marked()


@pytest.mark.parametrize("stand", [JournalStand(JournalLimits.of(0)), JournalStand()], ids=["off", "never used"])
def test_a_journal_that_has_not_ended_does_nothing(stand: JournalStand) -> None:
    before = len(stand.disk.operations)
    stand.journal.begin_again()
    assert len(stand.disk.operations) == before


def test_after_the_stop_it_does_not_begin() -> None:
    stand = ended()
    stand.journal.free()
    assert stand.manager.close()
    before = len(stand.disk.operations)
    stand.journal.begin_again()
    assert len(stand.disk.operations) == before
    assert not stand.is_marked()


def test_it_does_not_wait_for_files_that_are_being_freed() -> None:
    stand = ended()
    reached, go_on = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        reached.set()
        assert go_on.wait(30)

    with ThreadPoolExecutor(1) as pool:
        stand.disk.before_operation = hold
        freeing = pool.submit(stand.journal.free)
        assert reached.wait(30)
        stand.journal.begin_again()
        assert not stand.journal.is_usable
        stand.disk.before_operation = None
        go_on.set()
        freeing.result(30)
    stand.journal.begin_again()
    assert stand.journal.is_usable
