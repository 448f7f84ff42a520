"""Topic changes that the disk refuses half way, whose undoing it refuses or a kill interrupts as well."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import ChangeOutcomeUnknownError, DiskFailedError, InvalidTopicError, TopicExistsError
from storage.disk.file_system import LocalFile, LocalFileSystem
from storage.manager.log_manager import LogManager
from tests.support.writers import append_request

REFUSED = (DiskFailedError, ChangeOutcomeUnknownError)
"""What a change raises that was taken back, and one that is still to be."""
STEP = 3
"""Every third change is refused, the last one always."""


class KilledError(BaseException):
    """The process is gone: nothing of it is done any more."""


class FailingDisk(LocalFileSystem):
    """Numbers the changes of names that are asked for once it is ``armed``; refuses some, and is killed at one."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.refused: range = range(0)
        self.killed_at = -1
        self.count = 0

    def _change(self, path: Path) -> None:
        if not self.armed:
            return
        number, self.count = self.count, self.count + 1
        if 0 <= self.killed_at <= number:
            raise KilledError
        if number in self.refused:
            raise OSError(errno.EIO, "Input/output error", str(path))

    def make_directory(self, path: Path) -> None:
        self._change(path)
        super().make_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self._change(source)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._change(path)
        super().unlink(path)

    def remove_directory(self, path: Path) -> None:
        self._change(path)
        super().remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        # Nobody cuts the power here, and an fsync takes its time.
        self._change(path)


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalFile, "sync", lambda _: None)


def create(manager: LogManager) -> None:
    manager.create_topic("events", 2)


def grow(manager: LogManager) -> None:
    manager.alter_topic("events", partition_count=2)


def opened(directory: Path, change: Callable[[LogManager], None]) -> tuple[FailingDisk, LogManager]:
    disk = FailingDisk()
    manager = LogManager.open(directory, file_system=disk, clock=ManualClock(), ballast_bytes=4_096)
    if change is grow:
        (log,) = manager.create_topic("events", 1)[0].partitions
        log.append([append_request(log, b"acknowledged")])
        log.flush()
        log.publish()
    disk.armed = True
    return disk, manager


def killed(manager: LogManager) -> None:
    manager._lock.release()


def partitions_after_start(directory: Path) -> int:
    manager = LogManager.open(directory, clock=ManualClock(), ballast_bytes=4_096)
    try:
        topic = manager.topics.get("events")
        assert topic is None or not any(log.damage for log in topic.partitions)
        return 0 if topic is None else len(topic.partitions)
    finally:
        manager.close()


def change_count(directory: Path, change: Callable[[LogManager], None], refused: range = range(0)) -> int:
    disk, manager = opened(directory, change)
    disk.refused = refused
    if refused:
        with pytest.raises(REFUSED):
            change(manager)
    else:
        change(manager)
    disk.armed = False
    manager.close()
    return disk.count


@pytest.mark.parametrize("change", [create, grow])
def test_a_kill_in_the_undoing_leaves_a_directory_that_opens(
    tmp_path: Path, change: Callable[[LogManager], None]
) -> None:
    """The next start found partitions of no topic, or missed some: no start without moving files by hand."""
    last = change_count(tmp_path / "whole", change) - 1
    end = change_count(tmp_path / "refused", change, range(last, last + 1))
    for number in range(last + 1, end, STEP):
        directory = tmp_path / f"{number}"
        disk, manager = opened(directory, change)
        disk.refused, disk.killed_at = range(last, last + 1), number
        with pytest.raises(KilledError):
            change(manager)
        killed(manager)
        assert partitions_after_start(directory) in {0 if change is create else 1, 2}


@pytest.mark.parametrize("span", [2, 1000])
@pytest.mark.parametrize("change", [create, grow])
def test_a_change_whose_undoing_is_refused_can_be_tried_again(
    tmp_path: Path, change: Callable[[LogManager], None], span: int
) -> None:
    """It was 409, "exists and belongs to no topic", until a restart; or the start found two topics of one name."""
    last = change_count(tmp_path / "whole", change) - 1
    for refused in range(last, -1, -STEP):
        directory = tmp_path / f"{refused}"
        disk, manager = opened(directory, change)
        disk.refused = range(refused, refused + span)
        with pytest.raises(REFUSED):
            change(manager)
        disk.refused = range(0)
        change(manager)
        manager.close()
        assert partitions_after_start(directory) == 2


@pytest.mark.parametrize("change", [create, grow])
def test_a_refused_change_is_taken_back_as_soon_as_the_disk_lets_it(
    tmp_path: Path, change: Callable[[LogManager], None]
) -> None:
    """It was there after the next start, though the answer was that it was not made."""
    last = change_count(tmp_path / "whole", change) - 1
    for refused in range(last, -1, -STEP):
        directory = tmp_path / f"{refused}"
        disk, manager = opened(directory, change)
        disk.refused = range(refused, 1_000_000)
        with pytest.raises(REFUSED):
            change(manager)
        disk.refused = range(0)
        manager.delete_due_files()
        manager.close()
        assert partitions_after_start(directory) == (0 if change is create else 1)


@pytest.mark.parametrize("after", ["config", "delete"])
def test_what_follows_a_refused_growth_leaves_a_directory_that_opens(tmp_path: Path, after: str) -> None:
    """Settings, or the deletion, were written down, and the new partitions' directories were left without a topic."""
    last = change_count(tmp_path / "whole", grow) - 1
    for refused in range(last, -1, -STEP):
        directory = tmp_path / f"{refused}"
        disk, manager = opened(directory, grow)
        disk.refused = range(refused, 1_000_000)
        with pytest.raises(REFUSED):
            grow(manager)
        with pytest.raises(REFUSED):
            manager.alter_topic("events", config={"retention.ms": 1_000_000})
        disk.refused = range(0)
        if after == "config":
            manager.alter_topic("events", config={"retention.ms": 1_000_000})
        else:
            manager.delete_topic("events")
        manager.close()
        assert partitions_after_start(directory) == (1 if after == "config" else 0)


def test_a_directory_of_somebody_else_is_still_refused(tmp_path: Path) -> None:
    _, manager = opened(tmp_path, create)
    (tmp_path / "logs" / "events-1").mkdir()
    with pytest.raises(TopicExistsError, match="belongs to no topic"):
        create(manager)
    with pytest.raises(InvalidTopicError):
        manager.create_topic("no/name", 1)
    manager.close()
