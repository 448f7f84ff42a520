"""The one door to the disk, on the machine's own disk."""

from __future__ import annotations

import ast
import errno
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import storage
from storage.disk import file_system
from storage.disk.file_system import RESERVED_FROM_BYTES, LocalFileSystem
from storage.disk.whole_files import read_file, write_file_atomically
from tests.support.recording_file_system import RecordingFileSystem

FILE_SYSTEM = LocalFileSystem()


@pytest.fixture
def file(tmp_path):
    file = FILE_SYSTEM.open(tmp_path / "f", create=True)
    yield file
    file.close()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_opening(tmp_path):
    with pytest.raises(FileNotFoundError):
        FILE_SYSTEM.open(tmp_path / "f")
    with pytest.raises(FileNotFoundError):
        FILE_SYSTEM.open(tmp_path / "f", writable=False)
    file = FILE_SYSTEM.open(tmp_path / "f", create=True)
    assert file.path == tmp_path / "f"
    assert file.size() == 0
    with pytest.raises(FileExistsError):
        FILE_SYSTEM.open(tmp_path / "f", create=True)
    assert FILE_SYSTEM.open(tmp_path / "f", writable=False).size() == 0


def test_a_file_open_for_reading_cannot_be_written(tmp_path, file):
    file.write(0, [b"abc"])
    reading = FILE_SYSTEM.open(tmp_path / "f", writable=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        reading.write(0, [b"x"])
    assert reading.read(0, 10) == b"abc"


def test_parts_are_written_one_behind_the_other_at_any_position(file):
    file.write(2, [b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], b""])
    assert file.read(0, 100) == b"\x00\x00abcdef"
    file.write(0, [])
    file.write(3, [b"-"])
    assert file.read(0, 100) == b"\x00\x00a-cdef"


def test_more_parts_than_one_call_takes(file):
    parts = [bytes([number % 256]) * (number % 7) for number in range(5000)]
    file.write(0, parts)
    assert file.read(0, 1 << 20) == b"".join(parts)


def test_parts_of_other_item_sizes_are_written_as_bytes(file):
    file.write(0, [memoryview(b"\x01\x02\x03\x04").cast("H")])
    assert file.read(0, 10) == b"\x01\x02\x03\x04"


def test_short_writes_go_on_where_they_stopped(file, monkeypatch):
    """A disk may take fewer bytes than asked for."""
    real = os.pwritev

    def seven_bytes(descriptor: int, parts: list[memoryview], position: int) -> int:
        return real(descriptor, [b"".join(parts)[:7]], position)

    monkeypatch.setattr("storage.disk.file_system.os.pwritev", seven_bytes)
    parts = [bytes(range(number, number + 5)) for number in range(0, 50, 5)]
    file.write(3, parts)
    assert file.read(3, 100) == b"".join(parts)


def test_a_disk_that_takes_nothing_is_an_error_and_no_endless_loop(file, monkeypatch):
    monkeypatch.setattr("storage.disk.file_system.os.pwritev", lambda *_: 0)
    with pytest.raises(OSError, match="took no bytes") as caught:
        file.write(0, [b"abc"])
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(file.path))


def test_short_reads_go_on_where_they_stopped(file, monkeypatch):
    file.write(0, [bytes(range(100))])
    real = os.pread
    monkeypatch.setattr(
        "storage.disk.file_system.os.pread",
        lambda descriptor, length, position: real(descriptor, min(length, 9), position),
    )
    assert file.read(5, 60) == bytes(range(5, 65))
    assert file.read(90, 60) == bytes(range(90, 100))


@pytest.mark.parametrize("good_calls", [0, 1, 2])
@pytest.mark.parametrize("call", ["pread", "pwritev"])
def test_an_error_of_any_call_names_the_file(file, monkeypatch, call, good_calls):
    """Also that of a second or third call, after short reads or writes."""
    file.write(0, [bytes(100)])
    real = getattr(os, call)
    calls = []

    def nine_bytes(descriptor: int, wanted: int | list[memoryview], position: int) -> bytes | int:
        calls.append(position)
        if len(calls) > good_calls:
            raise OSError(errno.EIO, "the disk is broken")
        return real(descriptor, min(wanted, 9) if call == "pread" else [b"".join(wanted)[:9]], position)

    monkeypatch.setattr(f"storage.disk.file_system.os.{call}", nine_bytes)
    with pytest.raises(OSError, match="the disk is broken") as caught:
        file.read(0, 100) if call == "pread" else file.write(0, [bytes(50), bytes(50)])
    assert calls == [9 * number for number in range(good_calls + 1)]
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(file.path))


def test_reading_behind_the_end_gives_what_there_is(file):
    file.write(0, [b"abc"])
    assert file.read(1, 100) == b"bc"
    assert file.read(3, 100) == b""
    assert file.read(100, 100) == b""
    assert file.read(0, 0) == b""


def test_growing_leaves_zeros_and_shrinking_cuts(file):
    file.write(0, [b"abc"])
    file.truncate(6)
    assert file.read(0, 10) == b"abc\x00\x00\x00"
    file.truncate(2)
    file.truncate(4)
    assert file.read(0, 10) == b"ab\x00\x00"
    assert file.size() == 4


def allocated_bytes(file):
    return os.fstat(file.fileno()).st_blocks * 512


def test_room_is_kept_behind_a_large_file_and_let_go(file):
    piece = b"x" * 65536
    position = 0
    while position < RESERVED_FROM_BYTES:
        file.write(position, [piece])
        position += len(piece)
    file.sync()
    assert allocated_bytes(file) < position + 2**20
    file.write(position, [piece])
    position += len(piece)
    file.sync()
    if allocated_bytes(file) < position + 2**19:
        pytest.skip("this file system keeps no room")
    assert allocated_bytes(file) < position + 2**21
    # Nobody sees it.
    assert file.size() == position
    assert file.read(position, 1) == b""
    file.truncate(position)
    file.sync()
    assert allocated_bytes(file) < position + 2**19
    file.write(position, [piece])
    assert file.read(position - 1, 65537) == b"x" * 65537


@pytest.mark.parametrize("answer", [-1, None])
def test_a_disk_that_keeps_no_room_is_written_all_the_same(file, monkeypatch, answer):
    asked = []

    def refuse(descriptor, mode, position, length):
        asked.append((position, length))
        return answer

    monkeypatch.setattr(file_system, "_fallocate", None if answer is None else refuse)
    for position in (0, RESERVED_FROM_BYTES - 1, RESERVED_FROM_BYTES, RESERVED_FROM_BYTES + 2**20, 2**30):
        file.write(position, [b"a", b"bc"])
        assert file.read(position, 3) == b"abc"
    eight = RESERVED_FROM_BYTES
    wanted = [(eight, 2**20), (eight + 2**20, (eight + 2**20) // 8), (2**30, 2**23)]
    assert asked == ([] if answer is None else wanted)


def test_a_closed_file_has_no_descriptor(file):
    assert file.fileno() >= 0
    file.close()
    file.close()
    for use in (file.fileno, file.size, file.sync, lambda: file.read(0, 1), lambda: file.write(0, [b"x"])):
        with pytest.raises(ValueError, match="is closed"):
            use()


def test_the_last_holder_closes_the_descriptor(tmp_path):
    """Invariant 4: a snapshot's files close when it is dropped."""
    gc.collect()  # what earlier tests left
    before = open_descriptors()
    held = FILE_SYSTEM.open(tmp_path / "f", create=True)
    assert open_descriptors() == before + 1
    del held
    gc.collect()
    assert open_descriptors() == before


def test_descriptors_are_not_inherited(file):
    assert not os.get_inheritable(file.fileno())


def test_directories(tmp_path):
    FILE_SYSTEM.make_directory(tmp_path / "d")
    FILE_SYSTEM.make_directory(tmp_path / "d")
    for name in ("b", "a", "c"):
        FILE_SYSTEM.open(tmp_path / "d" / name, create=True).close()
    assert FILE_SYSTEM.list_directory(tmp_path / "d") == ["a", "b", "c"]
    assert FILE_SYSTEM.is_directory(tmp_path / "d")
    assert not FILE_SYSTEM.is_directory(tmp_path / "d" / "a")
    assert FILE_SYSTEM.exists(tmp_path / "d" / "a")
    assert not FILE_SYSTEM.exists(tmp_path / "d" / "x")
    FILE_SYSTEM.sync_directory(tmp_path / "d")
    with pytest.raises(OSError, match="not empty"):
        FILE_SYSTEM.remove_directory(tmp_path / "d")
    for name in ("b", "a", "c"):
        FILE_SYSTEM.unlink(tmp_path / "d" / name)
    FILE_SYSTEM.remove_directory(tmp_path / "d")
    assert not FILE_SYSTEM.exists(tmp_path / "d")
    with pytest.raises(FileNotFoundError):
        FILE_SYSTEM.make_directory(tmp_path / "no" / "parent")


def test_renaming_replaces(tmp_path):
    for name, content in (("a", b"new"), ("b", b"old")):
        write_file_atomically(FILE_SYSTEM, tmp_path / name, content)
    FILE_SYSTEM.rename(tmp_path / "a", tmp_path / "b")
    assert FILE_SYSTEM.list_directory(tmp_path) == ["b"]
    assert read_file(FILE_SYSTEM, tmp_path / "b", 10) == b"new"
    assert FILE_SYSTEM.size(tmp_path / "b") == 3


def test_modification_time_is_in_milliseconds(tmp_path, file):
    os.utime(tmp_path / "f", ns=(0, 1_700_000_000_123_456_789))
    assert FILE_SYSTEM.modified_ms(tmp_path / "f") == 1_700_000_000_123


def test_reading_a_whole_small_file(tmp_path, file):
    file.write(0, [b"abc"])
    assert read_file(FILE_SYSTEM, tmp_path / "f", 3) == b"abc"
    with pytest.raises(OSError, match="longer than 2 bytes") as caught:
        read_file(FILE_SYSTEM, tmp_path / "f", 2)
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(FileNotFoundError):
        read_file(FILE_SYSTEM, tmp_path / "x", 2)


@pytest.mark.parametrize("content", [b"", b"abc"])
def test_an_atomic_write_is_old_or_new_and_then_durable(tmp_path, content):
    disk = RecordingFileSystem()
    path = tmp_path / "f"
    write_file_atomically(disk, path, b"old")
    (tmp_path / "f.tmp").write_bytes(b"left behind by a crash, and longer")
    disk.operations.clear()
    write_file_atomically(disk, path, content)
    writes = [("write", "f.tmp")] if content else []
    assert disk.operations == [
        ("unlink", "f.tmp"),
        ("create", "f.tmp"),
        *writes,
        ("sync", "f.tmp"),
        ("rename", "f"),
        ("sync_directory", tmp_path.name),
    ]
    assert path.read_bytes() == content
    assert disk.list_directory(tmp_path) == ["f"]


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_an_atomic_write_that_fails_leaves_the_old_content_and_no_descriptor(tmp_path, operation):
    disk = RecordingFileSystem()
    path = tmp_path / "f"
    write_file_atomically(disk, path, b"old")
    before = open_descriptors()
    disk.refuse = {operation}
    with pytest.raises(OSError, match="refused"):
        write_file_atomically(disk, path, b"new")
    assert path.read_bytes() == b"old"
    assert open_descriptors() == before
    disk.refuse = set()
    write_file_atomically(disk, path, b"newer")
    assert path.read_bytes() == b"newer"


def test_a_held_lock_refuses_and_leaks_nothing(tmp_path):
    held = FILE_SYSTEM.lock(tmp_path / ".lock")
    before = open_descriptors()
    with pytest.raises(BlockingIOError):
        FILE_SYSTEM.lock(tmp_path / ".lock")
    assert open_descriptors() == before
    held.release()
    held.release()
    FILE_SYSTEM.lock(tmp_path / ".lock").release()


def test_a_child_process_does_not_hold_the_lock_on(tmp_path):
    held = FILE_SYSTEM.lock(tmp_path / ".lock")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        held.release()
        FILE_SYSTEM.lock(tmp_path / ".lock").release()
        child.communicate(b"\n", timeout=60)
    assert child.returncode == 0


def test_no_other_module_of_the_engine_touches_the_disk():
    """Disk rule 1: it is the seam for fault injection."""
    banned_modules = {"os", "mmap", "fcntl", "shutil", "tempfile", "io", "glob"}
    banned_methods = {
        "open",
        "read_bytes",
        "read_text",
        "write_bytes",
        "write_text",
        "unlink",
        "touch",
        "iterdir",
        "mkdir",
    }
    directory = Path(storage.__file__).parent
    checked = 0
    for path in directory.rglob("*.py"):
        if path.name in {"file_system.py", "file_lock.py", "whole_sync.py"}:
            continue
        # Parts of ``file_system`` that nothing else may go round it by.
        assert "storage.disk.file_lock" not in path.read_text(), path
        assert "storage.disk.whole_sync" not in path.read_text(), path
        checked += 1
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {name.name for name in node.names} & banned_modules, f"{path}:{node.lineno}"
            elif isinstance(node, ast.ImportFrom):
                assert node.module not in banned_modules, f"{path}:{node.lineno}"
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "open", f"{path}:{node.lineno}"
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                on_path = isinstance(node.func.value, ast.Name) and "path" in node.func.value.id
                assert not (on_path and node.func.attr in banned_methods), f"{path}:{node.lineno}"
    assert checked > 10
