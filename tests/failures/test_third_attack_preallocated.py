"""A start after a kill does not read the gigabytes of zeros that a preallocated file ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from log_model.clock import ManualClock
from storage.disk.file_system import LocalFile, LocalFileSystem
from storage.manager.log_manager import LogManager
from storage.recovery.segment_scan import ZEROS_BYTES_MAX, written_bytes
from tests.support.writers import append_request

MIB = 1024 * 1024


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all reads."""
    lengths: list[int] = []
    read = LocalFile.read

    def count(self: LocalFile, position: int, length: int) -> bytes:
        lengths.append(length)
        return read(self, position, length)

    monkeypatch.setattr(LocalFile, "read", count)
    return lengths


@pytest.mark.parametrize("size_bytes", [1_073_741_824, 2_147_483_647])
def test_zeros_that_were_never_data_are_not_all_read(tmp_path: Path, bytes_read: list[int], size_bytes: int) -> None:
    """A partition with the default ``segment.bytes`` took eight seconds, one after the other."""
    manager = LogManager.open(tmp_path, clock=ManualClock())
    topic, _ = manager.create_topic("zeros", 1, {"preallocate": True, "segment.bytes": size_bytes})
    (log,) = topic.partitions
    log.append([append_request(log, b"value")])
    log.flush()
    path = log.directory / f"{0:020}.log"
    manager._lock.release()
    assert path.stat().st_size == size_bytes
    bytes_read.clear()
    manager = LogManager.open(tmp_path, clock=ManualClock())
    assert sum(bytes_read) < ZEROS_BYTES_MAX + 4 * MIB
    assert manager.partition("zeros", 0).snapshot.log_end_offset == 1
    assert manager.recovery[0].notes == []
    assert path.stat().st_size < 200
    manager.close()


@pytest.mark.parametrize("place", [0, MIB - 1, MIB, 5 * MIB + 17, ZEROS_BYTES_MAX - 1])
def test_what_was_torn_is_measured_behind_pages_that_were_lost(tmp_path: Path, place: int) -> None:
    start, path = 4_711, tmp_path / "torn"
    with path.open("wb") as out:
        out.truncate(3 * ZEROS_BYTES_MAX)
        out.seek(start + place)
        out.write(b"torn")
    file = LocalFileSystem().open(path, writable=False)
    assert written_bytes(file, start, 3 * ZEROS_BYTES_MAX - start) == place + 4
    assert written_bytes(file, start, place) == 0
    file.close()
