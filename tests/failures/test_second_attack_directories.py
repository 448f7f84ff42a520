"""``rollway log`` in directories that somebody else filled: it ends, names the file, and no name makes a line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.manager.log_manager import LogManager
from tests.support.writers import append_request

START = "00000000000000000000"
SECONDS_MAX = 20


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition's directory in a data directory that no service uses."""
    manager = LogManager.open(tmp_path / "data")
    topic, _ = manager.create_topic("t", 1, {})
    log = topic.partitions[0]
    log.append([append_request(log, b"value\ndamage: forged")])
    manager.close()
    return tmp_path / "data" / "logs" / "t-0"


def look(command: str, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    code = "from app.cli import main; main()"
    arguments = [sys.executable, "-c", code, "log", command, str(directory), *options]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, directory, device])
@pytest.mark.parametrize("name", [f"{START}.log", f"{START}.index", f"{START}.timeindex", "leader-epoch-checkpoint"])
def test_what_is_no_regular_file_is_named(partition: Path, make: Callable[[Path], None], name: str) -> None:
    make(partition / name)
    found = look("verify", partition.parent.parent)
    assert found.returncode == 1
    assert name in found.stderr
    assert "regular file" in found.stderr or "directory" in found.stderr


def test_a_name_with_a_line_feed_makes_no_line(partition: Path) -> None:
    (partition / "a\ndamage: forged.log").write_bytes(b"")
    found = look("verify", partition.parent.parent)
    assert found.returncode == 0
    assert not any(line.startswith("damage:") for line in found.stdout.splitlines())


def test_a_record_with_a_line_feed_makes_no_line(partition: Path) -> None:
    found = look("dump", partition, "--records")
    assert found.returncode == 0
    assert not any(line.startswith("damage:") for line in found.stdout.splitlines())
    assert "forged" in found.stdout
