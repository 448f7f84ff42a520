"""What a partition costs that nobody uses: memory, descriptors, and work at the stop."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.offsets import Offset
from storage.manager.log_manager import LogManager
from tests.support.recording_file_system import RecordingFileSystem
from tests.support.writers import append_request

ROOT = Path(__file__).parents[4]
PARTITIONS = 1000
RESTING_BYTES_MAX = 1024
OPEN_BYTES_MAX = 8 * 1024


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic of many partitions with a record in each, cleanly stopped."""
    path = tmp_path_factory.mktemp("idle") / "data"
    manager = LogManager.open(path, clock=ManualClock(), ballast_bytes=1)
    topic, _ = manager.create_topic("t", PARTITIONS, {"segment.index.bytes": 4800})
    for log in topic.partitions:
        log.append([append_request(log, b"value")])
    assert manager.close()
    return path


def measure(directory: Path, is_used: bool) -> tuple[int, int]:
    """Bytes of Python objects, and descriptors, of a directory in which each partition is open or none is."""
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        manager = LogManager.open(directory, clock=ManualClock(), ballast_bytes=1)
        if is_used:
            assert len(list(manager.topic("t").partitions)) == PARTITIONS
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    descriptors = len(os.listdir("/proc/self/fd")) - descriptors  # noqa: PTH208
    assert manager.close()
    return after - before, descriptors


@pytest.mark.parametrize(("is_used", "bytes_max"), [(False, RESTING_BYTES_MAX), (True, OPEN_BYTES_MAX)])
def test_a_partition_takes_little_memory_and_no_descriptor(directory: Path, is_used: bool, bytes_max: int) -> None:
    """In a process of its own: what other tests set on objects makes all later ones of their class larger."""
    code = f"import sys, pathlib; from {__name__} import measure; print(*measure(pathlib.Path(sys.argv[1]), {is_used}))"
    command = [sys.executable, "-c", code, str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    size_bytes, descriptors = map(int, done.stdout.split())
    assert size_bytes / PARTITIONS < bytes_max
    # The lock of the directory, the list of opened partitions, and the four that the ballast keeps back.
    assert descriptors == 6


def test_retention_opens_nothing_of_what_it_keeps(directory: Path) -> None:
    manager = LogManager.open(directory, clock=ManualClock(), ballast_bytes=1)
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    logs = manager.topic("t").partitions[:50]
    now_ms = ManualClock().now_ms()
    week_ms = logs[0].config.retention_ms
    assert not any(log.has_old_segments(now_ms + week_ms) for log in logs)
    assert all(log.has_old_segments(now_ms + week_ms + 1) for log in logs)
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208
    log = logs[0]
    log.append([append_request(log, b"newer")])
    log.publish()
    assert log.snapshot.segments[0].largest_timestamp == (now_ms, 0)
    assert manager.close()


def test_a_stop_leaves_alone_what_nobody_used(directory: Path) -> None:
    disk = RecordingFileSystem()
    manager = LogManager.open(directory, clock=ManualClock(), file_system=disk, ballast_bytes=1)
    used = manager.partition("t", 5)
    used.append([append_request(used, b"more")])
    read = manager.partition("t", 7)
    read.snapshot.read(Offset(0), 1)
    disk.operations.clear()
    assert manager.close()
    directories = {name for operation, name in disk.operations if operation == "sync_directory"}
    assert directories - {"logs", "rollway"} == {"t-5"}
    manager = LogManager.open(directory, clock=ManualClock(), ballast_bytes=1)
    assert manager.was_clean
    ends = [log.snapshot.log_end_offset for log in manager.topic("t").partitions]
    assert ends == [2 if number in {0, 5} else 1 for number in range(PARTITIONS)]
    assert manager.close()
