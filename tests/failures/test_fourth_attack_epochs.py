"""A leader epoch that was written down although the system refused to make it durable."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import DiskFullError, PartitionFailedError, PartitionOfflineError, TooManyOpenFilesError
from storage.disk.file_system import LocalFileSystem
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.support.writers import append_request


class FailingDisk(LocalFileSystem):
    """Refuses to make the names in one directory durable, so many times behind so many that it lets be."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: Path | None = None
        self.error = 0
        self.passed = 0
        self.count = 0

    def sync_directory(self, path: Path) -> None:
        if path == self.refused and self.passed:
            self.passed -= 1
        elif path == self.refused and self.count:
            self.count -= 1
            raise OSError(self.error, "refused", str(path))
        super().sync_directory(path)


def append(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append([append_request(log, b"value")])
    log.flush()
    log.publish()


def opened(directory: Path, disk: LocalFileSystem) -> tuple[LogManager, PartitionLog]:
    manager = LogManager.open(directory, file_system=disk, clock=ManualClock(), ballast_bytes=4096)
    return manager, manager.topic("events").partitions[0]


def check(directory: Path, end_offset: int) -> None:
    manager, log = opened(directory, LocalFileSystem())
    assert (log.damage, log.snapshot.log_end_offset) == ((), end_offset)
    append(log, 1)
    manager.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC])
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_a_refused_epoch_takes_no_record(tmp_path: Path, error: int, count: int) -> None:
    """The file had the new epoch, records went on with the old one, and the start after a kill cut them off."""
    disk = FailingDisk()
    manager = LogManager.open(tmp_path, file_system=disk, clock=ManualClock(), ballast_bytes=4096)
    (log,) = manager.create_topic("events", 1)[0].partitions
    append(log, 3)
    disk.refused, disk.error, disk.count = log.directory, error, count
    end = 3
    with contextlib.suppress(DiskFullError, TooManyOpenFilesError, PartitionFailedError):
        log.promote()
    disk.refused = None
    try:
        append(log, 4)
        end += 4
    except PartitionOfflineError:
        assert count == 1000
    manager._lock.release()
    check(tmp_path, end)


def test_an_epoch_that_a_start_cannot_begin_takes_no_record(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = LogManager.open(tmp_path, file_system=disk, clock=ManualClock(), ballast_bytes=0)
    append(manager.create_topic("events", 1)[0].partitions[0], 3)
    manager._lock.release()
    directory = tmp_path / "logs" / "events-0"
    starts = 0
    for passed in range(6):
        disk = FailingDisk()
        disk.refused, disk.error, disk.passed, disk.count = directory, errno.ENOSPC, passed, 1
        try:
            manager, log = opened(tmp_path, disk)
        except OSError:
            continue
        starts += 1
        append(log, 1)
        end = log.snapshot.log_end_offset
        manager._lock.release()
        check(tmp_path, end)
        manager, log = opened(tmp_path, LocalFileSystem())
        append(log, 1)
        manager._lock.release()
    assert starts > 1


def test_records_behind_a_truncation_of_all_are_kept(tmp_path: Path) -> None:
    """The log had no epoch then. The next one counted as its start after a kill, and all below it was removed."""
    manager = LogManager.open(tmp_path, clock=ManualClock(), ballast_bytes=4096)
    (log,) = manager.create_topic("events", 1)[0].partitions
    append(log, 1)
    log.truncate_to(0)
    append(log, 2)
    log.promote()
    manager._lock.release()
    manager, log = opened(tmp_path, LocalFileSystem())
    snapshot = log.snapshot
    assert (log.damage, snapshot.log_start_offset, snapshot.log_end_offset) == ((), 0, 2)
    manager.close()
