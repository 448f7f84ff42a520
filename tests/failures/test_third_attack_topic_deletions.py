"""Topics whose deletion the disk refuses: half way, or when the decision shall be durable."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import (
    ChangeOutcomeUnknownError,
    DiskFailedError,
    PartitionOfflineError,
    UnknownTopicOrPartitionError,
)
from storage.disk.file_system import LocalFileSystem
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.support.writers import append_request

Refusal = Callable[[str, Path], bool]


class FailingDisk(LocalFileSystem):
    """Answers EIO to the operations that ``refuses``."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: Refusal = lambda operation, path: False

    def _check(self, operation: str, path: Path) -> None:
        if self.refuses(operation, path):
            raise OSError(errno.EIO, "Input/output error", str(path))

    def sync_directory(self, path: Path) -> None:
        self._check("sync", path)
        super().sync_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self._check("rename", source)
        super().rename(source, target)


def append(log: PartitionLog) -> None:
    log.append([append_request(log, b"acknowledged")])
    log.flush()
    log.publish()


def is_there(directory: Path) -> bool:
    manager = LogManager.open(directory)
    try:
        return "events" in manager.topics
    finally:
        manager.close()


def opened(directory: Path) -> tuple[FailingDisk, LogManager, PartitionLog]:
    disk = FailingDisk()
    manager = LogManager.open(directory, file_system=disk, clock=ManualClock())
    (log,) = manager.create_topic("events", 1)[0].partitions
    append(log)
    return disk, manager, log


@pytest.mark.parametrize("count", [1, 2])
def test_a_deletion_that_was_refused_takes_nothing_that_is_acknowledged_later(tmp_path: Path, count: int) -> None:
    """The topic's file said that it was deleted; the topic took appends, and the next start removed it."""
    disk, manager, log = opened(tmp_path)
    refused: list[Path] = []

    def refuses(operation: str, path: Path) -> bool:
        if operation == "sync" and path == manager.own_directory and len(refused) < count:
            refused.append(path)
            return True
        return False

    disk.refuses = refuses
    with pytest.raises(DiskFailedError if count == 1 else ChangeOutcomeUnknownError, match="could not be deleted"):
        manager.delete_topic("events")
    assert len(refused) == count
    if count == 1:
        append(log)
        manager.close()
        assert is_there(tmp_path)
    else:
        # Nobody knows what the next start finds.
        with pytest.raises(PartitionOfflineError, match="the next start may finish it"):
            append(log)
        manager.close()


def test_a_deletion_that_is_decided_goes_on_by_itself(tmp_path: Path) -> None:
    """It was answered as one that had not happened, the topic was gone, and its files stayed until a restart."""
    disk, manager, log = opened(tmp_path)
    directory = log.directory
    disk.refuses = lambda operation, path: path == directory
    manager.delete_topic("events")
    with pytest.raises(UnknownTopicOrPartitionError):
        manager.delete_topic("events")
    with pytest.raises(DiskFailedError, match="is not deleted yet"):
        manager.delete_due_files()
    disk.refuses = lambda operation, path: False
    assert directory.exists()
    manager.delete_due_files()
    assert not directory.exists()
    manager.close()
    assert not is_there(tmp_path)


def test_a_start_goes_on_with_a_deletion_that_the_disk_still_refuses(tmp_path: Path) -> None:
    disk, manager, log = opened(tmp_path)
    directory = log.directory
    disk.refuses = lambda operation, path: path == directory
    manager.delete_topic("events")
    manager.close()
    manager = LogManager.open(tmp_path, file_system=disk, clock=ManualClock())
    assert "events" not in manager.topics
    disk.refuses = lambda operation, path: False
    manager.delete_due_files()
    assert not directory.exists()
    manager.close()
