"""Opening many partitions at a time gives what opening them one after the other gives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import CorruptionError
from storage.manager.log_manager import LogManager
from storage.recovery.recovery_progress import RecoveryMeter
from tests.cases.logs import CONFIG
from tests.support.writers import append_request

PARTITIONS = 12


def fill(directory: Path) -> ManualClock:
    """Partitions of different sizes, some torn at the end, in a directory that was not stopped."""
    clock = ManualClock()
    manager = LogManager.open(directory, clock=clock, ballast_bytes=1)
    topic, _ = manager.create_topic("t", PARTITIONS, CONFIG)
    for number, log in enumerate(topic.partitions):
        for _ in range(number):
            log.append([append_request(log, b"value" * number)])
        log.publish()
    manager._lock.release()
    for number in range(1, PARTITIONS, 3):
        path = directory / "logs" / f"t-{number}" / "00000000000000000000.log"
        path.write_bytes(path.read_bytes() + b"torn")
    return clock


@pytest.mark.parametrize("thread_count", [1, 5])
def test_every_partition_is_recovered(tmp_path: Path, thread_count: int) -> None:
    clock = fill(tmp_path / "data")
    meter = RecoveryMeter(clock)
    manager = LogManager.open(
        tmp_path / "data", clock=clock, meter=meter, recovery_threads=thread_count, ballast_bytes=1
    )
    logs = manager.topic("t").partitions
    assert [log.name.partition for log in logs] == list(range(PARTITIONS))
    assert [log.snapshot.log_end_offset for log in logs] == list(range(PARTITIONS))
    assert [report.name for report in manager.recovery] == [log.name for log in logs]
    assert [report.truncated_bytes for report in manager.recovery] == [4 * (n % 3 == 1) for n in range(PARTITIONS)]
    progress = meter.progress()
    assert progress is not None
    assert (progress.partitions_done, progress.partition_count) == (PARTITIONS, PARTITIONS)
    torn = sum(report.truncated_bytes for report in manager.recovery)
    valid = sum(report.scanned_bytes for report in manager.recovery)
    assert progress.scanned_bytes == progress.byte_count == valid + torn
    assert manager.close()


def test_a_clean_start_has_no_bytes_to_check(tmp_path: Path) -> None:
    clock = fill(tmp_path / "data")
    assert LogManager.open(tmp_path / "data", clock=clock, ballast_bytes=1).close()
    meter = RecoveryMeter(clock)
    manager = LogManager.open(tmp_path / "data", clock=clock, meter=meter, recovery_threads=4, ballast_bytes=1)
    progress = meter.progress()
    assert progress is not None
    assert (progress.partitions_done, progress.byte_count, progress.scanned_bytes) == (PARTITIONS, 0, 0)
    assert manager.close()


@pytest.mark.parametrize("thread_count", [1, 5])
def test_the_first_partition_that_cannot_be_opened_is_named(tmp_path: Path, thread_count: int) -> None:
    clock = fill(tmp_path / "data")
    moved = tmp_path / "data" / "logs" / "t-7"
    shutil.move(moved, tmp_path / "elsewhere")
    with pytest.raises(CorruptionError, match="t-7 is missing"):
        LogManager.open(tmp_path / "data", clock=clock, recovery_threads=thread_count, ballast_bytes=1)
    shutil.move(tmp_path / "elsewhere", moved)
    manager = LogManager.open(tmp_path / "data", clock=clock, recovery_threads=thread_count, ballast_bytes=1)
    assert [log.snapshot.log_end_offset for log in manager.topic("t").partitions] == list(range(PARTITIONS))
    assert manager.close()
