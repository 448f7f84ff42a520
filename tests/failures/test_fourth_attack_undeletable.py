"""Deleted partitions that are no plain directories of files, and files that the disk keeps, beside others."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from storage.disk.file_system import LocalFileSystem
from storage.manager.log_manager import LogManager
from tests.support.writers import append_request


class FailingDisk(LocalFileSystem):
    """Does not unlink what is called so."""

    def __init__(self) -> None:
        super().__init__()
        self.undeletable = ""

    def unlink(self, path: Path) -> None:
        if self.undeletable and self.undeletable in str(path):
            raise OSError(errno.EIO, "Input/output error", str(path))
        super().unlink(path)


def made(directory: Path, disk: FailingDisk | None = None) -> LogManager:
    manager = LogManager.open(
        directory, file_system=disk or FailingDisk(), clock=ManualClock(), topic_defaults={"file.delete.delay.ms": 0}
    )
    for name in ("first", "second"):
        (log,) = manager.create_topic(name, 1)[0].partitions
        log.append([append_request(log, b"value")])
        log.flush()
    return manager


def link(partition: Path) -> Path:
    """As an operator moves a partition to another disk."""
    elsewhere = partition.parent.parent.parent / "elsewhere"
    shutil.move(partition, elsewhere)
    partition.symlink_to(elsewhere)
    return elsewhere


def subdirectory(partition: Path) -> Path:
    """As a tool leaves one, and a link in it to something that is not ours."""
    kept = partition.parent.parent.parent / "kept"
    (kept / "within").mkdir(parents=True)
    (kept / "file").write_bytes(b"not ours")
    (partition / "copies" / "old").mkdir(parents=True)
    (partition / "copies" / "link").symlink_to(kept)
    (partition / "link").symlink_to(kept)
    return partition


@pytest.mark.parametrize("change", [link, subdirectory])
def test_the_space_of_deleted_topics_comes_back(tmp_path: Path, change: Callable[[Path], Path]) -> None:
    """One that could not be removed kept all that were deleted later, for good."""
    data = tmp_path / "data"
    made(data).close()
    left = change(data / "logs" / "first-0")
    manager = LogManager.open(data, clock=ManualClock(), topic_defaults={"file.delete.delay.ms": 0})
    manager.delete_topic("first")
    manager.delete_topic("second")
    assert manager.delete_due_files() == 2
    assert [path.name for path in (data / "logs").iterdir() if path.is_dir() or path.is_symlink()] == []
    assert not left.exists() or list(left.iterdir()) == []
    assert change is link or (tmp_path / "kept" / "file").read_bytes() == b"not ours"
    manager.close()


def test_one_that_the_disk_keeps_does_not_keep_the_others(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = made(tmp_path, disk)
    disk.undeletable = "first-0."
    manager.delete_topic("first")
    manager.delete_topic("second")
    with pytest.raises(OSError, match="Input/output error"):
        manager.delete_due_files()
    assert [path.name.partition(".")[0] for path in (tmp_path / "logs").glob("*-delete")] == ["first-0"]
    disk.undeletable = ""
    assert manager.delete_due_files() > 0
    assert list((tmp_path / "logs").glob("*/*.deleted")) == []
    manager.close()


def test_a_file_that_the_disk_keeps_does_not_keep_the_others(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = made(tmp_path, disk)
    (first,), (second,) = (manager.topic(name).partitions for name in ("first", "second"))
    for log in (first, second):
        for _ in range(2):
            log.roll()
            log.append([append_request(log, b"value")])
            log.flush()
        log.publish()
        log.delete_records(log.snapshot.high_watermark)
        log.delete_old_segments(0)
    disk.undeletable = f"first-0/{0:020d}.log"
    manager.create_topic("third", 1)
    manager.delete_topic("third")
    with pytest.raises(OSError, match="Input/output error"):
        manager.delete_due_files()
    left = {(path.parent.name, path.name[:20]) for path in (tmp_path / "logs").glob("*/*.deleted")}
    assert left == {("first-0", f"{0:020d}")}
    assert list((tmp_path / "logs").glob("*-delete")) == []
    disk.undeletable = ""
    assert manager.delete_due_files() > 0
    assert list((tmp_path / "logs").glob("*/*.deleted")) == []
    manager.close()
