"""One holder per data directory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from log_model.errors import DirectoryLockedError
from storage.disk.dir_lock import DirectoryLock
from storage.disk.file_system import LocalFileSystem

FILE_SYSTEM = LocalFileSystem()

ACQUIRE = """
import sys
from pathlib import Path
from storage.disk.dir_lock import DirectoryLock
from log_model.errors import DirectoryLockedError
from storage.disk.file_system import LocalFileSystem
try:
    DirectoryLock.acquire(LocalFileSystem(), Path(sys.argv[1]))
except DirectoryLockedError as error:
    print(error)
    sys.exit(2)
"""

HOLD = ACQUIRE + "print('held', flush=True)\nsys.stdin.read()\n"

POSIX_LOCK_AS_A_BROKER = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(2)
"""


def run(code: str, argument: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, str(argument)], capture_output=True, text=True, timeout=60)


def test_rc_12_a_second_holder_in_this_process_is_refused(tmp_path):
    held = DirectoryLock.acquire(FILE_SYSTEM, tmp_path)
    with pytest.raises(DirectoryLockedError, match="in use by another process") as caught:
        DirectoryLock.acquire(FILE_SYSTEM, tmp_path)
    assert str(tmp_path) in str(caught.value)
    held.release()


def test_rc_12_a_second_holder_in_another_process_is_refused(tmp_path):
    """RC-12, invariant 1: with a sentence that names the directory."""
    with DirectoryLock.acquire(FILE_SYSTEM, tmp_path):
        refused = run(ACQUIRE, tmp_path)
        assert refused.returncode == 2
        assert str(tmp_path) in refused.stdout
        assert refused.stderr == ""
    assert run(ACQUIRE, tmp_path).returncode == 0


def test_rc_12_a_broker_is_refused_too(tmp_path):
    """on-disk: a broker takes a POSIX lock on the same file."""
    with DirectoryLock.acquire(FILE_SYSTEM, tmp_path):
        assert run(POSIX_LOCK_AS_A_BROKER, tmp_path / ".lock").returncode == 2
    assert run(POSIX_LOCK_AS_A_BROKER, tmp_path / ".lock").returncode == 0


def test_the_lock_goes_with_a_killed_process(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(DirectoryLockedError):
            DirectoryLock.acquire(FILE_SYSTEM, tmp_path)
        process.kill()
        process.wait(60)
    DirectoryLock.acquire(FILE_SYSTEM, tmp_path).release()


def test_released_and_taken_again(tmp_path):
    for _ in range(3):
        held = DirectoryLock.acquire(FILE_SYSTEM, tmp_path)
        held.release()
        held.release()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert (tmp_path / ".lock").read_bytes() == b""


def test_releasing_an_old_lock_again_leaves_the_new_one_held(tmp_path):
    old = DirectoryLock.acquire(FILE_SYSTEM, tmp_path)
    old.release()
    with DirectoryLock.acquire(FILE_SYSTEM, tmp_path):
        old.release()
        with pytest.raises(DirectoryLockedError):
            DirectoryLock.acquire(FILE_SYSTEM, tmp_path)


def test_two_directories_do_not_disturb_each_other(tmp_path):
    directories = [tmp_path / "a", tmp_path / "b"]
    for directory in directories:
        directory.mkdir()
    with DirectoryLock.acquire(FILE_SYSTEM, directories[0]), DirectoryLock.acquire(FILE_SYSTEM, directories[1]) as held:
        assert held.directory == directories[1]


def test_a_missing_directory_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        DirectoryLock.acquire(FILE_SYSTEM, tmp_path / "absent")
