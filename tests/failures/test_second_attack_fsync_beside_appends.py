"""An fsync looks whether its file is still what was written, while appends go on beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log_model.clock import ManualClock
from log_model.errors import PartitionFailedError
from storage.disk.file_system import LocalFile, LocalFileSystem
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.support.writers import append_request


def new_log(directory: Path) -> PartitionLog:
    manager = LogManager.open(directory, file_system=LocalFileSystem(), clock=ManualClock(1_700_000_000_000))
    topic, _ = manager.create_topic("t", 1, {"flush.policy": "group"})
    return topic.partitions[0]


def around_look(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], object] = bool, behind: Callable[[], object] = bool
) -> None:
    """Let something happen right before and behind the next look at a file's length."""
    size: Any = LocalFile.size

    def looked(file: LocalFile) -> int:
        monkeypatch.setattr(LocalFile, "size", size)
        before()
        found: int = size(file)
        behind()
        return found

    monkeypatch.setattr(LocalFile, "size", looked)


def test_an_append_beside_an_fsync_is_not_a_cut_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The length was looked at before the append and compared with what was written after it: the partition of a
    busy service went offline, "was cut by another process"."""
    log = new_log(tmp_path)
    log.append([append_request(log, b"first")])
    around_look(monkeypatch, behind=lambda: log.append([append_request(log, b"meanwhile")]))
    assert log.flush() == 1
    assert log.offline_reason is None
    assert log.flush() == 2


def test_an_append_that_is_taken_back_beside_an_fsync_is_not_a_cut_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log(tmp_path)
    log.append([append_request(log, b"first")])
    active = log.snapshot.segments[-1]
    end, end_bytes, largest = log.written_end_offset, active.size_bytes, active.builder.max_timestamp
    active.file.write(end_bytes, [b"x" * 100])
    active.size_bytes = end_bytes + 100
    around_look(monkeypatch, before=lambda: active.undo_append(end_bytes, end, largest))
    assert log.flush() == 1


def test_a_file_that_was_cut_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(tmp_path)
    log.append([append_request(log, b"first")])
    os.truncate(next(log.directory.glob("*.log")), 10)
    around_look(monkeypatch, behind=lambda: log.append([append_request(log, b"meanwhile")]))
    with pytest.raises(PartitionFailedError, match="was cut by another process"):
        log.flush()
