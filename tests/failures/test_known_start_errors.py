"""A start that the disk refuses names the file, and says what to do."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from app.server.server import cannot_open
from app.settings import Settings
from log_model.clock import ManualClock
from storage.manager.log_manager import LogManager
from tests.support.writers import append_request

WRITING = os.O_RDWR | os.O_WRONLY | os.O_CREAT


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory after a clean stop."""
    path: Path = tmp_path_factory.mktemp("stopped") / "data"
    manager = LogManager.open(path, clock=ManualClock())
    (log,) = manager.create_topic("t", 1)[0].partitions
    log.append([append_request(log, b"a")])
    log.flush()
    log.publish()
    assert manager.close()
    return path


@pytest.fixture
def directory(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def make_read_only(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def open_or_refuse(path: Any, flags: int, *more: Any, **others: Any) -> int:
        if flags & WRITING and str(path).startswith(str(directory)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *more, **others)

    monkeypatch.setattr(os, "open", open_or_refuse)


def open_all(directory: Path) -> None:
    """Let a start open all partitions, as after a clean stop of a broker."""
    (directory / "rollway" / "resting-partitions").unlink()


def message_of_start(directory: Path) -> str:
    with pytest.raises(OSError) as raised:  # noqa: PT011 - what it says is looked at
        LogManager.open(directory, clock=ManualClock()).close()
    return str(cannot_open(Settings(data_dir=directory), raised.value))


def test_a_directory_that_needs_no_repair_is_opened_on_a_read_only_disk(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_read_only(directory, monkeypatch)
    manager = LogManager.open(directory, clock=ManualClock())
    assert manager.partition("t", 0).snapshot.high_watermark == 1


@pytest.mark.parametrize("name", ["t-0/partition.metadata", "t-0/leader-epoch-checkpoint"])
def test_a_read_only_disk_names_the_file_that_must_be_written(
    directory: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It named ``.lock``."""
    open_all(directory)
    (directory / "logs" / name).write_bytes(b"")
    make_read_only(directory, monkeypatch)
    message = message_of_start(directory)
    found = re.fullmatch(
        rf"The data directory {re.escape(str(directory))} cannot be opened: (\S+): Read-only file system\. The start "
        r"has to write this file, because it is damaged or missing, or the stop before was not clean: make the disk "
        r"writable for one start\.",
        message,
    )
    assert found is not None, message
    assert found[1].removesuffix(".tmp") == str(directory / "logs" / name)


@pytest.mark.parametrize(
    ("call", "touched"), [("pread", "logs"), ("fsync", ""), ("fdatasync", "logs"), ("pwritev", "logs")]
)
def test_an_error_of_the_disk_names_the_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch, call: str, touched: str
) -> None:
    """These calls know a descriptor alone: the message named the data directory."""
    open_all(directory)
    (directory / "logs" / "t-0" / "partition.metadata").write_bytes(b"")

    def refuse(*_: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, refuse)
    message = message_of_start(directory)
    found = re.search(r"cannot be opened: (\S+): Input/output error\. Read the system's log about the disk\.$", message)
    assert found is not None, message
    assert Path(found[1]).is_relative_to(directory / touched)
    assert call == "fsync" or Path(found[1]) != directory
