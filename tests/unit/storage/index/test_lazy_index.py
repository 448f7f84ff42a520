"""Indexes that nobody has read yet."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_model.offsets import Offset, Position
from storage.disk.file_names import OFFSET_INDEX_SUFFIX, offset_file_name
from storage.disk.file_system import LocalFileSystem
from storage.index.lazy_index import LazyIndex
from storage.index.offset_index import OffsetIndex

FILE_SYSTEM = LocalFileSystem()


def held_files(directory: Path) -> list[str]:
    """The files of a directory that this process has open or mapped."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    opened = [target for target in map(target_of, links) if target.startswith(str(directory))]
    return opened + [line for line in Path("/proc/self/maps").read_text().splitlines() if str(directory) in line]


def target_of(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def write_index(directory: Path, base: int, entries: list[tuple[int, int]]) -> Path:
    path = directory / offset_file_name(base, OFFSET_INDEX_SUFFIX)
    path.write_bytes(b"".join(OffsetIndex.ENTRY.pack(offset - base, position) for offset, position in entries))
    return path


def lazily(path: Path) -> LazyIndex[OffsetIndex]:
    base = Offset(int(path.name.partition(".")[0]))
    return LazyIndex(
        lambda current: OffsetIndex.open(FILE_SYSTEM, current, base, max_bytes=1 << 20, writable=False), path
    )


def test_ix_11_ten_thousand_unread_indexes_map_nothing(tmp_path):
    """C4: nor do renaming, deleting and closing them."""
    indexes = [lazily(write_index(tmp_path, base, [(base + 5, 100)])) for base in range(0, 100_000, 10)]
    assert held_files(tmp_path) == []
    for index in indexes[1:6000]:
        index.rename(FILE_SYSTEM, index.path.with_name(index.path.name + ".deleted"))
    for index in indexes[1:3000]:
        index.delete(FILE_SYSTEM)
    for index in indexes[3000:5000]:
        index.close()
    assert held_files(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 10_000 - 2999
    assert not any(index.is_open for index in indexes)
    assert indexes[0].get().lookup(Offset(7)) == (5, 100)
    assert indexes[5500].get().lookup(Offset(55_009)) == (55_005, 100)
    # Once they are read they need no file.
    assert held_files(tmp_path) == []
    assert indexes[0].is_open


def test_the_first_get_opens_and_all_share(tmp_path):
    """C4: exactly once, under a lock, while eight threads ask at the same time."""
    path = write_index(tmp_path, 0, [(5, 100)])
    together = threading.Barrier(8)
    opened: list[OffsetIndex] = []

    def open_index(current: Path) -> OffsetIndex:
        opened.append(OffsetIndex.open(FILE_SYSTEM, current, Offset(0), max_bytes=80, writable=False))
        return opened[-1]

    lazy = LazyIndex(open_index, path)

    def get(_thread: int) -> OffsetIndex:
        together.wait(30)
        return lazy.get()

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(get, range(8)))
    assert len(opened) == 1
    assert all(index is opened[0] for index in found)


def test_opening_that_failed_is_tried_again(tmp_path):
    path = tmp_path / "00000000000000000000.index"
    lazy = lazily(path)
    with pytest.raises(FileNotFoundError):
        lazy.get()
    assert not lazy.is_open
    write_index(tmp_path, 0, [(5, 100)])
    assert lazy.get().entry_count == 1


@pytest.mark.parametrize("read_before", [True, False])
def test_a_renamed_index_is_found_under_its_new_name(tmp_path, read_before):
    lazy = lazily(write_index(tmp_path, 0, [(5, 100)]))
    target = lazy.path.with_name(lazy.path.name + ".deleted")
    if read_before:
        lazy.get()
    lazy.rename(FILE_SYSTEM, target)
    assert lazy.path == target
    assert lazy.get().path == target
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    assert lazy.get().lookup(Offset(9)) == (5, 100)


@pytest.mark.parametrize("read_before", [True, False])
def test_moved_takes_note_of_a_rename_by_somebody_else(tmp_path, read_before):
    lazy = lazily(write_index(tmp_path, 0, [(5, 100)]))
    if read_before:
        lazy.get()
    target = lazy.path.with_name(lazy.path.name + ".deleted")
    lazy.path.rename(target)
    lazy.moved(target)
    assert lazy.get().path == target
    assert lazy.get().entry_count == 1


def test_a_failed_rename_changes_nothing(tmp_path):
    lazy = lazily(tmp_path / "00000000000000000000.index")
    with pytest.raises(FileNotFoundError):
        lazy.rename(FILE_SYSTEM, tmp_path / "elsewhere.index")
    assert lazy.path.name == "00000000000000000000.index"


def test_who_holds_a_deleted_index_reads_on_and_the_last_one_closes_it(tmp_path):
    """Invariant 4."""
    lazy = lazily(write_index(tmp_path, 0, [(5, 100), (9, 200)]))
    held = lazy.get()
    lazy.delete(FILE_SYSTEM)
    lazy.delete(FILE_SYSTEM)
    assert list(tmp_path.iterdir()) == []
    assert held.lookup(Offset(9)) == (9, 200)
    del held, lazy
    assert held_files(tmp_path) == []


def test_an_unread_index_that_was_deleted_cannot_be_opened(tmp_path):
    lazy = lazily(write_index(tmp_path, 0, [(5, 100)]))
    lazy.delete(FILE_SYSTEM)
    with pytest.raises(FileNotFoundError):
        lazy.get()


@pytest.mark.parametrize("read_before", [True, False])
def test_a_closed_index_stays_closed(tmp_path, read_before):
    lazy = lazily(write_index(tmp_path, 0, [(5, 100)]))
    if read_before:
        lazy.get()
    lazy.close()
    lazy.close()
    assert held_files(tmp_path) == []
    assert not lazy.is_open
    with pytest.raises(ValueError, match="is closed"):
        lazy.get()


def test_a_writable_index_can_be_lazy_too(tmp_path):
    path = tmp_path / "00000000000000000000.index"
    lazy = LazyIndex(lambda at: OffsetIndex.open(FILE_SYSTEM, at, Offset(0), max_bytes=80, writable=True), path)
    assert not path.exists()
    lazy.get().append(Offset(1), Position(10))
    assert path.stat().st_size == 80
