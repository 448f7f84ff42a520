"""A new segment that finds no room after its log file was made."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import DiskFullError, TooManyOpenFilesError
from storage.disk.file_system import File, LocalFileSystem
from storage.manager.log_manager import LogManager
from tests.support.writers import append_request

LOG, INDEX, TIME_INDEX = (f"{1:020d}.{suffix}" for suffix in ("log", "index", "timeindex"))


class FullDisk(LocalFileSystem):
    """Does not make the file that is called so, or whose directory shall be synced."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        self.error = 0

    def _check(self, path: Path) -> None:
        if path.name == self.refused:
            raise OSError(self.error, "refused", str(path))

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        if create:
            self._check(path)
        return super().open(path, create=create, writable=writable)

    def sync_directory(self, path: Path) -> None:
        self._check(path)
        super().sync_directory(path)


@pytest.mark.parametrize(
    ("refused", "error"), [(INDEX, errno.ENOSPC), (TIME_INDEX, errno.EMFILE), ("rolled-0", errno.EMFILE)]
)
def test_a_roll_that_found_no_room_leaves_no_segment(tmp_path: Path, refused: str, error: int) -> None:
    """A preallocated one was taken for damage by the start after a clean stop: the partition took no appends."""
    disk = FullDisk()
    manager = LogManager.open(tmp_path, file_system=disk, clock=ManualClock(), ballast_bytes=4096)
    (log,) = manager.create_topic("rolled", 1, {"preallocate": True, "segment.bytes": 4096})[0].partitions
    log.append([append_request(log, b"first")])
    log.flush()
    disk.refused, disk.error = refused, error
    with pytest.raises((DiskFullError, TooManyOpenFilesError)):
        log.roll()
    assert not (log.directory / LOG).exists()
    disk.refused = ""
    log.append([append_request(log, b"second")])
    log.flush()
    disk.refused = f"{2:020d}.index"
    with pytest.raises((DiskFullError, TooManyOpenFilesError)):
        log.roll()
    assert manager.close()
    manager = LogManager.open(tmp_path, clock=ManualClock(), ballast_bytes=4096)
    (log,) = manager.topic("rolled").partitions
    assert (log.damage, log.offline_reason, log.snapshot.log_end_offset) == ((), None, 2)
    log.append([append_request(log, b"third")])
    assert manager.close()
