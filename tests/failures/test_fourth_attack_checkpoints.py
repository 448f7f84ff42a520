"""Checkpoints that were written although the disk said that it failed, and what is there under the names they know."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import StorageError
from log_model.names import PartitionName
from log_model.offsets import Offset
from storage.disk.ballast import Ballast
from storage.disk.directory_checkpoints import DirectoryCheckpoints
from storage.disk.file_system import LocalFileSystem
from storage.disk.whole_files import NotDurableError
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.support.writers import append_request

NAME = PartitionName("events", 0)


class FailingDisk(LocalFileSystem):
    """Refuses to make the names in one directory durable: what was renamed there is seen all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: Path | None = None
        self.error = errno.EIO
        self.count = 1_000

    def sync_directory(self, path: Path) -> None:
        if path == self.refused and self.count:
            self.count -= 1
            raise OSError(self.error, "refused", str(path))
        super().sync_directory(path)


def append(log: PartitionLog, count: int) -> None:
    for number in range(count):
        log.append([append_request(log, b"acknowledged %d" % number)])
    log.flush()
    log.publish()


def checkpoint(manager: LogManager) -> Path:
    with pytest.raises(NotDurableError):
        manager.checkpoint()
    return manager.logs_directory


def delete_records(manager: LogManager) -> Path:
    (log,) = manager.topic(NAME.topic).partitions
    with pytest.raises((OSError, StorageError)):
        log.delete_records(Offset(4))
    return manager.own_directory


@pytest.mark.parametrize("in_own", [False, True], ids=["a recovery point", "a log start"])
def test_a_topic_made_again_is_not_judged_by_the_one_before(tmp_path: Path, in_own: bool) -> None:
    """The start after a kill went by the deleted topic's: it found damage, or removed all that was acknowledged."""
    disk = FailingDisk()
    manager = LogManager.open(tmp_path, file_system=disk, clock=ManualClock(), ballast_bytes=4096)
    append(manager.create_topic(NAME.topic, 1)[0].partitions[0], 5)
    disk.refused = manager.own_directory if in_own else manager.logs_directory
    (delete_records if in_own else checkpoint)(manager)
    disk.refused = None
    manager.delete_topic(NAME.topic)
    append(manager.create_topic(NAME.topic, 1)[0].partitions[0], 3)
    manager._lock.release()
    manager = LogManager.open(tmp_path, clock=ManualClock(), ballast_bytes=4096)
    (log,) = manager.topic(NAME.topic).partitions
    snapshot = log.snapshot
    assert (log.damage, snapshot.log_start_offset, snapshot.log_end_offset) == ((), 0, 3)
    manager.close()


@pytest.mark.parametrize("in_own", [False, True])
@pytest.mark.parametrize("count", [1, 1000])
def test_a_log_start_that_could_not_be_raised_takes_no_record(tmp_path: Path, in_own: bool, count: int) -> None:
    """A follower that starts anew above its log's end: the refusal left the log start in its file."""
    disk = FailingDisk()
    manager = LogManager.open(tmp_path, file_system=disk, clock=ManualClock(), ballast_bytes=4096)
    (log,) = manager.create_topic(NAME.topic, 1)[0].partitions
    append(log, 2)
    disk.refused = manager.own_directory if in_own else manager.logs_directory
    disk.error, disk.count = errno.EMFILE, count
    with contextlib.suppress(StorageError):
        log.truncate_fully_and_start_at(50)
    disk.refused = None
    end = log.written_end_offset
    if log.offline_reason is None:
        append(log, 3)
        end += 3
        manager._lock.release()
        manager = LogManager.open(tmp_path, clock=ManualClock(), ballast_bytes=4096)
        (log,) = manager.topic(NAME.topic).partitions
        assert (log.damage, log.snapshot.log_end_offset) == ((), end)
    manager.close()


def checkpoints_in(directory: Path, disk: LocalFileSystem) -> DirectoryCheckpoints:
    own = directory / "rollway"
    own.mkdir(exist_ok=True)
    (directory / "logs").mkdir(exist_ok=True)
    made = DirectoryCheckpoints(disk, directory / "logs", own / "log-start-offsets", Ballast(disk, own / "ballast", 0))
    made.read()
    return made


def recovery(checkpoints: DirectoryCheckpoints, offset: int) -> None:
    checkpoints.write_recovery_points(lambda: {NAME: Offset(offset)})


def high_watermark(checkpoints: DirectoryCheckpoints, offset: int) -> None:
    checkpoints.write_high_watermarks(lambda: {NAME: Offset(offset)})


def lower(checkpoints: DirectoryCheckpoints, offset: int) -> None:
    checkpoints.lower_recovery_point(NAME, Offset(offset))


def log_start(checkpoints: DirectoryCheckpoints, offset: int) -> None:
    checkpoints.set_log_start(NAME, Offset(offset))


@pytest.mark.parametrize(
    ("first", "then", "read"),
    [
        (recovery, recovery, lambda found: found.recovery_points),
        (recovery, lower, lambda found: found.recovery_points),
        (high_watermark, high_watermark, lambda found: found.high_watermarks),
        (log_start, log_start, lambda found: found.log_starts),
    ],
)
def test_what_may_have_been_written_is_written_again(
    tmp_path: Path,
    first: Callable[[DirectoryCheckpoints, int], None],
    then: Callable[[DirectoryCheckpoints, int], None],
    read: Callable[[DirectoryCheckpoints], dict[PartitionName, Offset]],
) -> None:
    """As long as nothing had moved since the write before, it was left out, and a truncation's too."""
    disk = FailingDisk()
    checkpoints = checkpoints_in(tmp_path, disk)
    first(checkpoints, 7)
    for refused in (tmp_path / "logs", tmp_path / "rollway"):
        disk.refused = refused
        with contextlib.suppress(NotDurableError):
            first(checkpoints, 32)
            continue
        disk.refused = None
        then(checkpoints, 7)
        assert read(checkpoints_in(tmp_path, disk))[NAME] == 7
