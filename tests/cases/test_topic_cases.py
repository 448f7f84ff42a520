"""Topics whose making, changing or ending the disk refuses half way, and directories that are not ours to take."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.batches.batch_validation import validate_batches
from log_model.clock import ManualClock
from log_model.errors import (
    CorruptionError,
    DiskFailedError,
    PartitionOfflineError,
    TooManyOpenFilesError,
    TopicExistsError,
)
from log_model.offsets import Offset
from rollway.records import Record, TimestampType, columns_from_records, encode_batch, split_batches
from storage.disk.file_system import LocalFileSystem
from storage.log.partition_log import AppendRequest, PartitionLog
from storage.manager.log_manager import LogManager


class RefusingFileSystem(LocalFileSystem):
    """The machine's disk, but renames and new directories fail where ``refuses`` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: Callable[[Path], bool] = lambda _: False
        self.error = errno.EIO

    def _check(self, path: Path) -> None:
        if self.refuses(path):
            raise OSError(self.error, os.strerror(self.error), str(path))

    def rename(self, source: Path, target: Path) -> None:
        self._check(source)
        super().rename(source, target)

    def make_directory(self, path: Path) -> None:
        self._check(path)
        super().make_directory(path)


def append(log: PartitionLog, clock: ManualClock, value: bytes, timestamp: int | None = None) -> None:
    at = clock.now_ms() if timestamp is None else timestamp
    batch = encode_batch(columns_from_records([Record(0, at, None, value, (), TimestampType.CREATE_TIME)]))
    (answer,) = log.append([AppendRequest(tuple(validate_batches(batch, log.config, clock.now_ms())))])
    assert not isinstance(answer, Exception), answer
    log.flush()
    log.publish()


def values(log: PartitionLog) -> int:
    data = log.snapshot.read(log.snapshot.log_start_offset, 1 << 20)
    return sum(batch.header.record_count for piece in data.slices for batch in split_batches(piece.read()))


def test_a_name_is_not_used_again_before_its_deletion_is_finished(tmp_path: Path) -> None:
    clock, disk = ManualClock(), RefusingFileSystem()
    manager = LogManager.open(tmp_path / "data", file_system=disk, clock=clock)
    append(manager.create_topic("t", 1)[0].partitions[0], clock, b"old")
    disk.refuses = lambda path: path.name == "t-0"
    manager.delete_topic("t")
    with pytest.raises(DiskFailedError):
        manager.create_topic("t", 1)
    disk.refuses = lambda _: False
    topic, created = manager.create_topic("t", 1)
    assert created
    assert values(topic.partitions[0]) == 0
    append(topic.partitions[0], clock, b"new")
    assert manager.close()
    manager = LogManager.open(tmp_path / "data", clock=clock)
    assert values(manager.partition("t", 0)) == 1
    assert manager.close()


def test_a_directory_of_no_topic_is_never_taken_over(tmp_path: Path) -> None:
    manager = LogManager.open(tmp_path / "data", clock=ManualClock())
    foreign = tmp_path / "data" / "logs" / "t-0"
    foreign.mkdir()
    (foreign / "00000000000000000000.log").write_bytes(b"somebody's")
    with pytest.raises(TopicExistsError, match="belongs to no topic"):
        manager.create_topic("t", 1)
    manager.create_topic("u", 1)
    (tmp_path / "data" / "logs" / "u-1").mkdir()
    with pytest.raises(TopicExistsError):
        manager.alter_topic("u", partition_count=2)
    assert (foreign / "00000000000000000000.log").read_bytes() == b"somebody's"
    assert len(manager.topic("u").partitions) == 1
    assert manager.close()


def test_a_refused_alteration_does_not_come_back(tmp_path: Path) -> None:
    clock, disk = ManualClock(), RefusingFileSystem()
    manager = LogManager.open(tmp_path / "data", file_system=disk, clock=clock)
    manager.create_topic("t", 1)
    disk.refuses = lambda path: path.name == "t-2"
    with pytest.raises(DiskFailedError):
        manager.alter_topic("t", config={"retention.ms": 1000}, partition_count=3)
    disk.refuses = lambda _: False
    assert manager.close()
    manager = LogManager.open(tmp_path / "data", clock=clock)
    assert len(manager.topic("t").partitions) == 1
    assert manager.topic("t").config.retention_ms == 604_800_000
    assert len(manager.alter_topic("t", partition_count=3).partitions) == 3
    assert manager.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_no_full_disk(tmp_path: Path, error: int) -> None:
    disk = RefusingFileSystem()
    manager = LogManager.open(tmp_path / "data", file_system=disk, clock=ManualClock())
    manager.create_topic("t", 1)
    disk.error, disk.refuses = error, lambda _: True
    refused = [
        lambda: manager.create_topic("u", 1),
        lambda: manager.alter_topic("t", partition_count=2),
        lambda: manager.delete_topic("t"),
    ]
    for refuse in refused:
        with pytest.raises(TooManyOpenFilesError, match=r"[Tt]oo many open files.*; raise the service's limit"):
            refuse()
    disk.refuses = lambda _: False
    manager.create_topic("u", 1)
    assert manager.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_whose_files_are_all_gone_is_damaged_and_not_new(tmp_path: Path, clean: bool) -> None:
    clock = ManualClock()
    manager = LogManager.open(tmp_path / "data", clock=clock)
    log = manager.create_topic("t", 1)[0].partitions[0]
    for number in range(5):
        append(log, clock, b"%d" % number)
    assert manager.close()
    for path in (tmp_path / "data" / "logs" / "t-0").glob("*.log"):
        path.unlink()
    if not clean:
        (tmp_path / "data" / "logs" / ".kafka_cleanshutdown").unlink()
    log = LogManager.open(tmp_path / "data", clock=clock).partition("t", 0)
    assert log.damage == ((0, 5),)
    assert log.snapshot.log_end_offset == 5
    with pytest.raises(CorruptionError):
        log.snapshot.read(Offset(0), 1 << 20)
    with pytest.raises(PartitionOfflineError):
        log.append([])


def test_the_reader_of_a_deleted_topic_never_sees_its_successor(tmp_path: Path) -> None:
    clock = ManualClock()
    manager = LogManager.open(tmp_path / "data", clock=clock)
    append(manager.create_topic("t", 1)[0].partitions[0], clock, b"old")
    assert manager.close()
    manager = LogManager.open(tmp_path / "data", clock=clock)
    snapshot = manager.partition("t", 0).snapshot
    manager.delete_topic("t")
    append(manager.create_topic("t", 1)[0].partitions[0], clock, b"new")
    content = b"".join(piece.read() for piece in snapshot.read(Offset(0), 1 << 20).slices)
    assert b"old" in content
    assert b"new" not in content
    assert manager.close()


def test_the_largest_timestamp_is_that_of_the_snapshot_while_the_writer_is_ahead(tmp_path: Path) -> None:
    clock = ManualClock()
    manager = LogManager.open(tmp_path / "data", clock=clock)
    log = manager.create_topic("t", 1)[0].partitions[0]
    now_ms = clock.now_ms()
    for timestamp in (now_ms - 9, now_ms - 3, now_ms - 5):
        append(log, clock, b"x", timestamp)
    snapshot = log.snapshot
    append(log, clock, b"later", now_ms)
    found = snapshot.max_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp) == (1, now_ms - 3)
    assert manager.close()
