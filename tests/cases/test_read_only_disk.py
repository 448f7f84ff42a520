"""Disk rule 8: a read-only disk starts and serves reads; appends are refused, and nothing is damaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from log_model.batches.batch_validation import validate_batches
from log_model.clock import ManualClock
from log_model.errors import DiskFullError
from rollway.records import Record, TimestampType, columns_from_records, encode_batch, split_batches
from storage.log.partition_log import AppendRequest, PartitionLog
from storage.manager.log_manager import LogManager

WRITING = os.O_RDWR | os.O_WRONLY | os.O_CREAT


def make_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every system call that would change the disk fails as on one that was mounted for reading alone."""
    opened = os.open

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def open_for_reading(path: Any, flags: int, *arguments: Any, **more: Any) -> int:
        if flags & WRITING:
            refuse()
        return opened(path, flags, *arguments, **more)

    monkeypatch.setattr(os, "open", open_for_reading)
    for name in ("unlink", "replace", "mkdir", "rmdir"):
        monkeypatch.setattr(Path, name, refuse)


def request(log: PartitionLog, clock: ManualClock, value: bytes) -> AppendRequest:
    record = Record(0, clock.now_ms(), None, value, (), TimestampType.CREATE_TIME)
    batch = encode_batch(columns_from_records([record]))
    return AppendRequest(tuple(validate_batches(batch, log.config, clock.now_ms())))


def test_a_read_only_disk_is_read_and_takes_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    manager = LogManager.open(tmp_path / "data", clock=clock)
    topic, _ = manager.create_topic("t", 1, {"segment.bytes": 200, "index.interval.bytes": 0})
    log = topic.partitions[0]
    for number in range(10):
        log.append([request(log, clock, b"value %d" % number)])
    log.flush()
    log.publish()
    assert manager.close()
    with pytest.MonkeyPatch.context() as patch:
        make_read_only(patch)
        manager = LogManager.open(tmp_path / "data", clock=clock)
        log = manager.partition("t", 0)
        data = log.snapshot.read(log.snapshot.log_start_offset, 1 << 20)
        batches = [batch for piece in data.slices for batch in split_batches(piece.read())]
        assert [batch.header.base_offset for batch in batches] == list(range(10))
        found = log.snapshot.offset_for_timestamp(clock.now_ms())
        assert found is not None
        assert found.offset == 0
        (refused,) = log.append([request(log, clock, b"no")])
        assert isinstance(refused, DiskFullError)
        assert log.offline_reason is None
        with pytest.raises(DiskFullError):
            manager.create_topic("u", 1)
        assert not manager.close()
    manager = LogManager.open(tmp_path / "data", clock=clock)
    assert manager.was_clean
    log = manager.partition("t", 0)
    assert log.snapshot.log_end_offset == 10
    (answer,) = log.append([request(log, clock, b"yes")])
    assert not isinstance(answer, Exception)
    assert answer.base_offset == 10
    assert manager.close()
