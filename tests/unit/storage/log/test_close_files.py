"""A log whose files are closed while no request uses them: they are as after a clean stop, and it goes on as before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import DiskFullError
from log_model.offsets import Offset
from storage.log.partition_log import AppendResult, PartitionLog
from storage.manager.log_manager import LogManager
from tests.support.recording_file_system import RecordingFileSystem
from tests.support.writers import append_request

CONFIG: dict[str, object] = {"segment.bytes": 1000, "index.interval.bytes": 100, "flush.policy": "interval"}


def opened(path: Path) -> LogManager:
    return LogManager.open(path, clock=ManualClock(), file_system=RecordingFileSystem(), ballast_bytes=1)


def write(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        (answer,) = log.append([append_request(log, b"value" * 10)])
        assert isinstance(answer, AppendResult)
        log.publish()


def files_of(directory: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in directory.iterdir()}
    del found["partition.metadata"]
    return found


def values(log: PartitionLog) -> int:
    return sum(len(piece.read()) for piece in log.snapshot.read(Offset(0), 1 << 30).slices)


@pytest.mark.parametrize("count", [0, 1, 9, 30])
def test_the_files_are_those_of_a_clean_stop(tmp_path: Path, count: int) -> None:
    managers = [opened(tmp_path / name) for name in ("closed", "stopped")]
    logs = [manager.create_topic("t", 1, CONFIG)[0].partitions[0] for manager in managers]
    for log in logs:
        write(log, count)
    logs[0].close_files()
    assert logs[0].writer.is_untouched
    assert not any(segment.log.is_open for segment in logs[0].snapshot.segments)
    assert managers[1].close()
    assert files_of(logs[0].directory) == files_of(logs[1].directory)
    assert managers[0].close()
    assert files_of(logs[0].directory) == files_of(logs[1].directory)


def test_it_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    managers = [opened(tmp_path / name) for name in ("closed", "open")]
    logs = [manager.create_topic("t", 1, CONFIG)[0].partitions[0] for manager in managers]
    for count in (1, 5, 3, 40):
        for log in logs:
            write(log, count)
        logs[0].close_files()
        logs[0].publish()
        assert logs[0].snapshot.log_end_offset == logs[1].snapshot.log_end_offset
        assert values(logs[0]) == values(logs[1])
        assert logs[0].snapshot.offset_for_timestamp(0) == logs[1].snapshot.offset_for_timestamp(0)
    assert all(manager.close() for manager in managers)
    logs_of = [{name: data for name, data in files_of(log.directory).items() if name.endswith(".log")} for log in logs]
    assert logs_of[0] == logs_of[1]


def test_it_is_recovered_after_a_kill(tmp_path: Path) -> None:
    manager = opened(tmp_path / "data")
    log = manager.create_topic("t", 1, CONFIG)[0].partitions[0]
    write(log, 12)
    log.close_files()
    write(log, 12)
    assert manager.journal.flush([log]) == [True]
    manager._lock.release()
    manager = opened(tmp_path / "data")
    assert manager.partition("t", 0).snapshot.log_end_offset == 24
    assert manager.close()


def test_a_reader_reads_on(tmp_path: Path) -> None:
    manager = opened(tmp_path / "data")
    log = manager.create_topic("t", 1, CONFIG)[0].partitions[0]
    write(log, 30)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    found = log.snapshot.read(Offset(0), 1 << 30)
    expected = b"".join(piece.read() for piece in found.slices)
    log.close_files()
    assert len(os.listdir("/proc/self/fd")) < before  # noqa: PTH208
    assert b"".join(piece.read() for piece in found.slices) == expected
    del found
    assert values(log) == len(expected)
    assert manager.close()


def test_a_full_disk_leaves_it_open(tmp_path: Path) -> None:
    disk = RecordingFileSystem()
    manager = LogManager.open(tmp_path / "data", clock=ManualClock(), file_system=disk, ballast_bytes=1)
    log = manager.create_topic("t", 1, CONFIG)[0].partitions[0]
    write(log, 1)
    disk.refuse = {"sync_directory"}
    with pytest.raises(DiskFullError):
        log.close_files()
    assert not log.writer.is_untouched
    disk.refuse = set()
    write(log, 1)
    log.close_files()
    write(log, 1)
    assert log.snapshot.log_end_offset == 3
    assert manager.close()
