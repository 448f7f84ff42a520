"""The look of a thread at the files of an active segment finds what the writer's check finds, and changes nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from log_model.errors import DiskFullError, PartitionFailedError
from storage.disk.file_system import LocalFile
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from storage.segment.file_watch import FileWatch
from tests.support.writers import append_request

VALUE = b"x" * 3000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    """A log of three batches, which was checked."""
    manager = LogManager.open(tmp_path / "data")
    topic, _ = manager.create_topic("t", 1, {"segment.bytes": "1000000", "index.interval.bytes": "0"})
    log = topic.partitions[0]
    append(log, 3)
    assert log.writer.watch is None
    log.check_files()
    yield log
    manager.close()


def append(log: PartitionLog, count: int = 1, value: bytes = VALUE) -> None:
    for _ in range(count):
        log.append([append_request(log, value)])
        log.publish()


def finds_all(log: PartitionLog) -> bool:
    watch, written = log.writer.watch, log.writer.written
    assert watch is not None
    return watch.finds_all(written.active, written.log_end.position)


def path_of(log: PartitionLog, suffix: str) -> Path:
    return log.directory / f"{0:020}.{suffix}"


def cut(log: PartitionLog) -> None:
    append(log)
    os.truncate(path_of(log, "log"), 100)


def cut_and_grow_again(log: PartitionLog) -> None:
    """As an append at its position does: zeros are where records were."""
    size = path_of(log, "log").stat().st_size
    append(log)
    os.truncate(path_of(log, "log"), size)
    os.truncate(path_of(log, "log"), log.writer.written.log_end.position)


def cut_what_a_look_has_seen(log: PartitionLog) -> None:
    append(log, 5)
    assert finds_all(log)
    size = path_of(log, "log").stat().st_size
    with path_of(log, "log").open("rb+") as file:
        file.seek(size - 500)
        file.write(bytes(500))
    append(log)


def remove(log: PartitionLog) -> None:
    append(log)
    path_of(log, "log").unlink()


def move(log: PartitionLog) -> None:
    append(log)
    path_of(log, "log").rename(path_of(log, "moved"))


CHANGES = [cut, cut_and_grow_again, cut_what_a_look_has_seen, remove, move]


def test_a_log_that_grows_rolls_and_is_truncated_is_whole(log: PartitionLog) -> None:
    assert finds_all(log)
    for _ in range(3):
        append(log, 2)
        assert finds_all(log)
        log.check_files()
        assert finds_all(log)
    log.truncate_to(4)
    assert log.writer.watch is None, "what it has seen may be written again with other bytes"
    append(log, 4, b"other")
    log.check_files()
    assert finds_all(log)
    log.roll()
    append(log)
    assert finds_all(log)
    assert log.offline_reason is None


@pytest.mark.parametrize("change", CHANGES)
def test_what_another_process_has_changed_is_found_by_both(
    log: PartitionLog, change: Callable[[PartitionLog], None]
) -> None:
    change(log)
    assert not finds_all(log)
    assert log.offline_reason is None, "the look itself takes nothing offline"
    with pytest.raises(PartitionFailedError, match="by another process"):
        log.check_files()


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("change", [lambda path: os.truncate(path, 13), Path.unlink])
def test_indexes_that_were_changed_are_left_to_the_writer(
    log: PartitionLog, suffix: str, change: Callable[[Path], None]
) -> None:
    append(log)
    path = path_of(log, suffix)
    size = path.stat().st_size
    change(path)
    assert not finds_all(log)
    assert not path.exists() or path.stat().st_size == 13
    log.check_files()
    assert path.stat().st_size == size
    assert finds_all(log)


def test_bytes_of_an_append_that_fails_are_not_seen(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the file for a moment, and others come in their place."""
    append(log)
    looks: list[bool] = []
    write = LocalFile.write

    def write_and_refuse(file: LocalFile, position: int, parts: Sequence[bytes]) -> None:
        write(file, position, parts)
        looks.append(finds_all(log))
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(LocalFile, "write", write_and_refuse)
        (answer,) = log.append([append_request(log, b"y" * 3000)])
    assert isinstance(answer, DiskFullError)
    assert looks == [True]
    append(log, 2, b"other")
    assert finds_all(log)
    log.check_files()


def test_a_file_that_the_writer_closes_meanwhile_is_left_to_it(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log)

    def closed(file: LocalFile, path: Path) -> bool:
        raise ValueError(f"{path} is closed")

    with monkeypatch.context() as patched:
        patched.setattr(LocalFile, "is_at", closed)
        assert not finds_all(log)
    assert finds_all(log)


def test_a_watch_that_has_seen_nothing_looks_at_the_length_alone(log: PartitionLog) -> None:
    written = log.writer.written
    assert FileWatch().finds_all(written.active, written.log_end.position)
    assert not FileWatch().finds_all(written.active, written.log_end.position + 1)
