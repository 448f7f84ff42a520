"""What all index files share: the life of the file, and threads."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_model.offsets import Offset, OffsetPosition, Position, TimestampOffset
from storage.disk.file_system import LocalFileSystem
from storage.index import index_file
from storage.index.index_file import CorruptIndexError, IndexFullError
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from tests.support.recording_file_system import RecordingFileSystem

FILE_SYSTEM = LocalFileSystem()
BASE = Offset(1000)


@pytest.fixture(params=[OffsetIndex, TimeIndex])
def index_class(request):
    return request.param


SUFFIXES = {OffsetIndex: ".index", TimeIndex: ".timeindex"}


def open_index(index_class, directory: Path, *, max_bytes=10_485_760, writable=True, file_system=FILE_SYSTEM):
    path = directory / f"00000000000000001000{SUFFIXES[index_class]}"
    return index_class.open(file_system, path, BASE, max_bytes=max_bytes, writable=writable)


def add(index, number: int) -> None:
    """Append entry ``number``, a function of the number alone: key 3n, at offset base + 3n."""
    if isinstance(index, OffsetIndex):
        index.append(Offset(BASE + 3 * number), Position(3 * number))
    else:
        index.maybe_append(3 * number, Offset(BASE + 3 * number))


def entry(index, number: int):
    if isinstance(index, OffsetIndex):
        return OffsetPosition(BASE + 3 * number, 3 * number)
    return TimestampOffset(3 * number, BASE + 3 * number)


def key(index, number: int) -> int:
    return entry(index, number)[0]


def test_a_live_index_is_as_long_as_the_topic_allows_and_full_of_zeros(index_class, tmp_path):
    """C2: 10485760 bytes for 8-byte entries, 10485756 for 12-byte ones, a hole on the disk."""
    index = open_index(index_class, tmp_path)
    size = 10_485_760 if index_class is OffsetIndex else 10_485_756
    assert index.path.stat().st_size == size
    assert index.file.max_entry_count == size // index.ENTRY_BYTES
    assert index.entry_count == 0
    assert not any(index.path.read_bytes()[:100_000])
    assert index.path.stat().st_blocks * 512 <= 65536


def test_trimming_leaves_exactly_the_entries(index_class, tmp_path):
    """C2: on roll and close 8n or 12n bytes."""
    index = open_index(index_class, tmp_path)
    for number in range(1, 78):
        add(index, number)
    assert index.file.size_bytes == 77 * index.ENTRY_BYTES
    index.file.trim()
    assert index.path.stat().st_size == 77 * index.ENTRY_BYTES
    assert index.is_full
    assert list(index.entries()) == [entry(index, number) for number in range(1, 78)]
    assert index.lookup(key(index, 50)) == entry(index, 50)
    with pytest.raises(IndexFullError):
        add(index, 78)


def test_an_empty_index_is_trimmed_to_nothing_and_answers(index_class, tmp_path):
    index = open_index(index_class, tmp_path)
    index.file.trim()
    assert index.path.stat().st_size == 0
    for writable in (False, True):
        again = open_index(index_class, tmp_path, writable=writable)
        again.verify_entries()
        assert again.entry_count == 0
        assert list(again.entries()) == []
        assert again.lookup(10**6)[1] in (0, BASE)


def test_ix_10_full_length_again_after_a_truncation(index_class, tmp_path):
    """C2, IX-10: back to the maximum, zeros behind the entries, and appends go on."""
    index = open_index(index_class, tmp_path)
    for number in range(1, 10):
        add(index, number)
    index.file.trim()
    index.truncate_to(Offset(BASE + 15))
    assert index.entry_count == 4
    index.file.resize_to_max()
    assert index.path.stat().st_size == 10_485_760 // index.ENTRY_BYTES * index.ENTRY_BYTES
    assert not any(index.path.read_bytes()[4 * index.ENTRY_BYTES :])
    assert not index.is_full
    for number in range(5, 20):
        add(index, number)
    assert list(index.entries()) == [entry(index, number) for number in range(1, 20)]
    index.verify_entries()


def test_truncation_alone_keeps_the_length(index_class, tmp_path):
    index = open_index(index_class, tmp_path)
    for number in range(1, 10):
        add(index, number)
    size = index.path.stat().st_size
    index.truncate_to(Offset(BASE + 15))
    index.truncate_to(BASE)
    assert index.path.stat().st_size == size
    assert index.entry_count == 0
    assert list(index.entries()) == []


@pytest.mark.parametrize("writable", [True, False])
def test_a_reopened_index_counts_every_whole_entry(index_class, tmp_path, writable):
    """C2: floor(length / entry), and writable it is as long as a live one again."""
    index = open_index(index_class, tmp_path)
    for number in range(1, 8):
        add(index, number)
    index.file.trim()
    index.close()
    again = open_index(index_class, tmp_path, writable=writable)
    assert list(again.entries()) == [entry(again, number) for number in range(1, 8)]
    assert again.last_entry == entry(again, 7)
    live_size = 10_485_760 // index.ENTRY_BYTES * index.ENTRY_BYTES
    assert again.path.stat().st_size == (live_size if writable else 7 * index.ENTRY_BYTES)
    assert again.is_full == (not writable)


def test_an_index_left_uncut_by_a_crash_looks_full_and_fails_its_check(index_class, tmp_path):
    """C2, on-disk: the zero tail counts as entries, so the file must be rebuilt; our check notices."""
    index = open_index(index_class, tmp_path, max_bytes=1200)
    for number in range(1, 8):
        add(index, number)
    index.close()
    again = open_index(index_class, tmp_path, max_bytes=1200)
    assert again.entry_count == 1200 // again.ENTRY_BYTES
    with pytest.raises(CorruptIndexError):
        again.sanity_check()
    again.truncate_to(BASE)
    again.file.resize_to_max()
    again.sanity_check()
    add(again, 1)
    assert list(again.entries()) == [entry(again, 1)]


@pytest.mark.parametrize("writable", [True, False])
def test_ix_8_a_length_that_is_no_multiple_is_corrupt(index_class, tmp_path, writable):
    index = open_index(index_class, tmp_path)
    for number in range(1, 8):
        add(index, number)
    index.file.trim()
    path = index.path
    index.close()
    path.write_bytes(path.read_bytes() + b"\x00\x00\x01")
    again = open_index(index_class, tmp_path, writable=writable)
    assert again.entry_count == 7
    with pytest.raises(CorruptIndexError, match="3 bytes behind the last whole entry"):
        again.sanity_check()


def test_a_file_longer_than_the_setting_keeps_its_entries(index_class, tmp_path):
    """The topic's segment.index.bytes may have been lowered since; entries are never cut by opening."""
    index = open_index(index_class, tmp_path, max_bytes=1200)
    for number in range(1, 50):
        add(index, number)
    index.file.trim()
    index.close()
    again = open_index(index_class, tmp_path, max_bytes=120)
    assert again.entry_count == 49
    assert again.is_full
    again.file.resize_to_max()
    assert again.path.stat().st_size == 49 * again.ENTRY_BYTES


def test_a_limit_below_one_entry_is_refused(index_class, tmp_path):
    """C2."""
    with pytest.raises(ValueError, match="at least"):
        open_index(index_class, tmp_path, max_bytes=index_class.ENTRY_BYTES - 1)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_made_only_for_writing(index_class, tmp_path):
    with pytest.raises(FileNotFoundError):
        open_index(index_class, tmp_path, writable=False)
    assert list(tmp_path.iterdir()) == []


def test_an_index_open_for_reading_cannot_change(index_class, tmp_path):
    index = open_index(index_class, tmp_path)
    add(index, 1)
    index.file.trim()
    index.close()
    sealed = open_index(index_class, tmp_path, writable=False)
    for change in (
        sealed.file.trim,
        sealed.file.resize_to_max,
        lambda: sealed.file.keep(0),
        lambda: sealed.truncate_to(BASE),
    ):
        with pytest.raises(ValueError, match="reading only"):
            change()
    with pytest.raises(IndexFullError):
        add(sealed, 2)
    sealed.file.flush()
    assert sealed.path.read_bytes() == index.ENTRY.pack(3, 3)


def test_a_sealed_index_is_made_writable_in_place(index_class, tmp_path):
    index = open_index(index_class, tmp_path)
    for number in range(1, 10):
        add(index, number)
    index.file.trim()
    index.close()
    sealed = open_index(index_class, tmp_path, writable=False)
    sealed.file.make_writable()
    assert sealed.path.stat().st_size == 10_485_760 // index.ENTRY_BYTES * index.ENTRY_BYTES
    add(sealed, 10)
    sealed.file.make_writable()
    assert list(sealed.entries()) == [entry(sealed, number) for number in range(1, 11)]


def test_only_flush_makes_entries_durable_and_it_syncs_the_file(index_class, tmp_path):
    """E25: one sync of the index file."""
    disk = RecordingFileSystem()
    index = open_index(index_class, tmp_path, file_system=disk)
    add(index, 1)
    assert ("sync", index.path.name) not in disk.operations
    index.file.flush()
    assert disk.operations[-1] == ("sync", index.path.name)


def test_a_full_disk_leaves_the_index_as_it_was(index_class, tmp_path):
    """Disk rule 9: an OSError, no SIGBUS, and the slot is free for the next try."""
    disk = RecordingFileSystem()
    index = open_index(index_class, tmp_path, file_system=disk)
    add(index, 1)
    disk.refuse = {"write"}
    with pytest.raises(OSError, match="refused"):
        add(index, 2)
    assert index.entry_count == 1
    assert index.last_entry == entry(index, 1)
    disk.refuse = set()
    add(index, 2)
    assert list(index.entries()) == [entry(index, 1), entry(index, 2)]


def test_a_trim_that_fails_can_be_tried_again(index_class, tmp_path):
    disk = RecordingFileSystem()
    index = open_index(index_class, tmp_path, file_system=disk)
    add(index, 1)
    disk.refuse = {"truncate"}
    with pytest.raises(OSError, match="refused"):
        index.file.trim()
    assert index.lookup(key(index, 1)) == entry(index, 1)
    disk.refuse = set()
    index.file.trim()
    assert index.path.stat().st_size == index.ENTRY_BYTES


def test_opening_that_fails_leaves_no_descriptor_open(index_class, tmp_path):
    disk = RecordingFileSystem()
    disk.refuse = {"truncate"}
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="refused"):
        open_index(index_class, tmp_path, file_system=disk)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_renamed_index_works_on(index_class, tmp_path):
    index = open_index(index_class, tmp_path)
    add(index, 1)
    old = index.path
    FILE_SYSTEM.rename(old, old.with_name(old.name + ".deleted"))
    index.moved(old.with_name(old.name + ".deleted"))
    assert not old.exists()
    assert index.path.exists()
    add(index, 2)
    assert list(index.entries()) == [entry(index, 1), entry(index, 2)]


def test_a_closed_index_refuses_everything_and_holds_nothing(index_class, tmp_path):
    index = open_index(index_class, tmp_path)
    add(index, 1)
    index.close()
    index.close()
    assert index.path.name not in Path("/proc/self/maps").read_text()
    for use in (
        lambda: index.lookup(key(index, 1)),
        lambda: list(index.entries()),
        index.file.trim,
        index.file.make_writable,
    ):
        with pytest.raises(ValueError, match="is closed"):
            use()


def test_a_reader_caught_by_a_cut_looks_again(index_class, tmp_path):
    """It takes the count and the memory again, and answers by what is left."""
    index = open_index(index_class, tmp_path)
    for number in range(1, 1001):
        add(index, number)
    counts = []

    def look(memory: bytes, count: int):
        counts.append(count)
        if len(counts) == 1:
            index.truncate_to(Offset(BASE + 3 * 11))
            index.file.trim()
            index.file.unload()
            # As a look at memory that was read after the cut.
            memory = index.file.load()
        return index._parse(memory, count - 1)

    assert index.file.read(look) == entry(index, 10)
    assert counts == [1000, 10]


def test_entries_end_early_when_they_are_truncated_meanwhile(index_class, tmp_path):
    index = open_index(index_class, tmp_path)
    for number in range(1, 1001):
        add(index, number)
    seen = []
    for found in index.entries():
        seen.append(found)
        if len(seen) == 3:
            index.truncate_to(Offset(BASE + 3 * 6))
            index.file.trim()
    assert seen == [entry(index, number) for number in range(1, 6)]


def test_no_look_up_notices_that_another_process_cuts_or_removes_the_file(index_class, tmp_path):
    """A read behind the end of a mapped file would kill the process."""
    for damage in (lambda path: os.truncate(path, 0), lambda path: os.truncate(path, 4097), Path.unlink):
        index = open_index(index_class, tmp_path)
        for number in range(1, 5001):
            add(index, number)
        damage(index.path)
        for number in (1, 2500, 5000):
            assert index.lookup(key(index, number)) == entry(index, number)
        add(index, 5001)
        assert index.file.mend()
        assert not index.file.mend()
        index.file.trim()
        index.close()
        sealed = open_index(index_class, tmp_path, writable=False)
        sealed.verify_entries()
        assert list(sealed.entries()) == [entry(sealed, number) for number in range(1, 5002)]
        sealed.close()
        sealed.path.unlink()


@pytest.mark.parametrize("size", [0, 5, 100, 4097])
def test_a_sealed_index_that_is_cut_before_it_is_read_has_what_is_left(index_class, tmp_path, size):
    index = open_index(index_class, tmp_path)
    for number in range(1, 5001):
        add(index, number)
    index.file.trim()
    index.close()
    sealed = open_index(index_class, tmp_path, writable=False)
    os.truncate(sealed.path, size)
    left = size // sealed.ENTRY_BYTES
    expected = entry(sealed, left) if left else sealed.lookup(BASE if index_class is OffsetIndex else 0)
    assert sealed.lookup(key(sealed, 4000)) == expected
    assert sealed.lookup(key(sealed, 4000)) == expected


def test_sealed_indexes_take_no_more_memory_than_they_may(index_class, tmp_path, monkeypatch):
    size_bytes = 1000 * index_class.ENTRY_BYTES
    loaded = index_file._Loaded(3 * size_bytes)
    monkeypatch.setattr(index_file, "_LOADED", loaded)
    indexes = []
    for number in range(6):
        directory = tmp_path / str(number)
        directory.mkdir()
        index = open_index(index_class, directory)
        for slot in range(1, 1001):
            add(index, slot)
        index.file.trim()
        index.close()
        indexes.append(open_index(index_class, directory, writable=False))
    for index in indexes * 2:
        assert index.lookup(key(index, 700)) == entry(index, 700)
        assert sum(len(other.file.memory or b"") for other in indexes) <= 3 * size_bytes
    # Those that are let go are counted no longer.
    del index
    indexes.clear()
    loaded.forget(open_index(index_class, tmp_path).file)
    assert (loaded._left_bytes, loaded._indexes) == (3 * size_bytes, {})


def test_one_writer_and_many_readers_through_appends_trims_and_truncations(index_class, tmp_path):
    """Invariants 3 and 5: every answer is one that the index gave at some moment of the lookup."""
    index = open_index(index_class, tmp_path, max_bytes=64 * 1024)
    done = threading.Event()
    low = 300  # entries up to this one are never truncated

    def read() -> int:
        lookup_count = 0
        while not done.is_set() or lookup_count < 100:
            for number in (1, low // 2, low, 2 * low, 5 * low):
                found = index.lookup(key(index, number) + 1)
                slot = (found[1] - (BASE if index_class is TimeIndex else 0)) // 3
                assert min(low, number) <= slot <= number
                assert found == entry(index, slot)
                lookup_count += 1
        return lookup_count

    for number in range(1, low + 1):
        add(index, number)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as threads:
            readers = [threads.submit(read) for _ in range(3)]
            for cycle in range(60):
                for number in range(low + 1, low + 1 + 20 * (cycle % 7)):
                    add(index, number)
                index.file.trim()
                index.truncate_to(Offset(BASE + 3 * low + 1))
                if cycle % 2:
                    index.file.trim()
                index.file.resize_to_max()
            done.set()
            assert all(reader.result(30) >= 100 for reader in readers)
    finally:
        done.set()
        sys.setswitchinterval(interval)
