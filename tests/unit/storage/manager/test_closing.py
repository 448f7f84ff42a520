"""The end of a manager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import ShuttingDownError
from storage.disk.file_names import CLEAN_SHUTDOWN_MARKER
from storage.manager.log_manager import LogManager
from tests.support.recording_file_system import RecordingFileSystem
from tests.support.writers import append_request


def fail_the_marker(_: LogManager, disk: RecordingFileSystem) -> None:
    disk.refuse, disk.refuse_suffix = {"create"}, f"{CLEAN_SHUTDOWN_MARKER}.tmp"


def fail_a_log(manager: LogManager, _: RecordingFileSystem) -> None:
    manager.partition("t", 0).take_offline("the disk is broken")


def fail_nothing(_: LogManager, __: RecordingFileSystem) -> None:
    """As it should be."""


@pytest.mark.parametrize(("fail", "is_clean"), [(fail_the_marker, False), (fail_a_log, False), (fail_nothing, True)])
def test_another_close_returns_the_result_of_the_first(
    tmp_path: Path, fail: Callable[[LogManager, RecordingFileSystem], None], is_clean: bool
) -> None:
    disk = RecordingFileSystem()
    manager = LogManager.open(tmp_path, file_system=disk, clock=ManualClock(), ballast_bytes=1)
    topic, _ = manager.create_topic("t", 1)
    topic.partitions[0].append([append_request(topic.partitions[0], b"value")])
    fail(manager, disk)
    assert manager.close() is is_clean
    disk.refuse = set()
    disk.operations.clear()
    assert [manager.close(), manager.close()] == [is_clean, is_clean]
    assert disk.operations == []
    assert (manager.logs_directory / CLEAN_SHUTDOWN_MARKER).exists() is is_clean
    with pytest.raises(ShuttingDownError):
        manager.create_topic("u", 1)
