"""The index of aborted transactions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_model.offsets import Offset
from log_model.transactions import AbortedTransaction
from storage.disk.file_system import LocalFileSystem
from storage.index.index_file import CorruptIndexError, InvalidEntryError
from storage.index.transaction_index import TransactionIndex
from tests.support.recording_file_system import RecordingFileSystem

FILE_SYSTEM = LocalFileSystem()
BASE = Offset(0)
NAME = "00000000000000000000.txnindex"
# Producer, first and last offset, last stable offset: Kafka's own numbers.
ABORTED = [(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)]


def open_index(directory, *, base=BASE, file_system=FILE_SYSTEM, writable=True):
    return TransactionIndex.open(file_system, directory / NAME, base, writable=writable)


def filled(directory, entries=ABORTED) -> TransactionIndex:
    index = open_index(directory)
    for entry in entries:
        index.append(AbortedTransaction(*entry))
    return index


def test_the_file_is_made_with_the_first_entry(tmp_path):
    """C1."""
    index = open_index(tmp_path)
    index.flush()
    index.truncate_fully()
    index.sanity_check()
    assert list(index.entries()) == []
    assert index.last_entry is None
    assert list(tmp_path.iterdir()) == []
    index.append(AbortedTransaction(1, Offset(0), Offset(29), Offset(8)))
    assert index.path.exists()


def test_tx_3_an_entry_is_34_bytes(tmp_path):
    """on-disk: version i16, producer id, first, last and last stable offset i64."""
    index = filled(tmp_path, [(1, 0, 29, 8), (2, 8, 74, 36)])
    assert index.path.read_bytes() == struct.pack(">hqqqq", 0, 1, 0, 29, 8) + struct.pack(">hqqqq", 0, 2, 8, 74, 36)
    assert index.path.stat().st_size == 2 * 34


@pytest.mark.parametrize("writable", [True, False])
def test_entries_survive_reopening(tmp_path, writable):
    filled(tmp_path).close()
    index = open_index(tmp_path, writable=writable)
    index.sanity_check()
    assert list(index.entries()) == ABORTED
    assert index.last_entry == ABORTED[-1]
    assert index.entry_count == 4


def test_more_entries_than_one_read_takes(tmp_path):
    entries = [(number, number, number + 1, number) for number in range(0, 3000, 2)]
    index = filled(tmp_path, entries)
    assert list(index.entries()) == entries
    assert list(open_index(tmp_path).entries()) == entries


def test_a_fetch_at_the_end_of_a_long_index_reads_little(tmp_path):
    class Counting:
        read_bytes = 0

        def __init__(self, file):
            self.file = file

        def read(self, position, length):
            self.read_bytes += length
            return self.file.read(position, length)

    index = filled(tmp_path, [(number, number, number + 1, number + 2) for number in range(0, 10_000, 2)])
    counting = index._file = Counting(index._file)
    found = index.collect_aborted(Offset(9_990), Offset(9_994))
    assert [entry.first_offset for entry in found.transactions] == [9_990, 9_992]
    assert found.is_complete
    assert counting.read_bytes < 34 * 30


def test_without_its_directory_nobody_can_tell_whether_there_was_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_index(tmp_path / "gone")


@pytest.mark.parametrize("last_offset", [10, 9, 0])
def test_last_offsets_rise(tmp_path, last_offset):
    index = filled(tmp_path, ABORTED[:1])
    with pytest.raises(InvalidEntryError):
        index.append(AbortedTransaction(9, Offset(0), Offset(last_offset), Offset(11)))
    assert list(index.entries()) == ABORTED[:1]


def test_a_marker_below_the_segment_is_refused(tmp_path):
    index = open_index(tmp_path, base=Offset(100))
    with pytest.raises(InvalidEntryError):
        index.append(AbortedTransaction(9, Offset(0), Offset(99), Offset(100)))
    assert list(tmp_path.iterdir()) == []
    index.append(AbortedTransaction(9, Offset(0), Offset(100), Offset(101)))
    index.sanity_check()


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "producers", "is_complete"),
    [
        (0, 100, [0, 1, 2, 3], False),
        (0, 32, [0, 1, 2], True),
        (0, 35, [0, 1, 2, 3], True),
        (10, 35, [0, 1, 2, 3], True),
        (11, 35, [1, 2, 3], True),
        (20, 41, [2, 3], False),
        (51, 60, [], False),
    ],
)
def test_aborted_transactions_of_a_fetch(tmp_path, fetch_offset, upper_bound, producers, is_complete):
    """E23: overlap with the range, in the order of the markers, until the last stable offset reaches its end."""
    answer = filled(tmp_path).collect_aborted(Offset(fetch_offset), Offset(upper_bound))
    assert answer == ([ABORTED[producer] for producer in producers], is_complete)


@pytest.mark.parametrize(("offset", "kept"), [(51, 4), (50, 3), (36, 3), (35, 2), (11, 1), (10, 0), (0, 0)])
def test_truncation_removes_markers_at_the_offset_and_above(tmp_path, offset, kept):
    index = filled(tmp_path)
    index.truncate_to(Offset(offset))
    assert list(index.entries()) == ABORTED[:kept]
    assert index.path.stat().st_size == 34 * kept
    assert index.last_entry == (ABORTED[kept - 1] if kept else None)
    index.append(AbortedTransaction(9, Offset(60), Offset(70), Offset(71)))
    assert open_index(tmp_path).entry_count == kept + 1


def entry_bytes(*, version=0, producer_id=1, first=0, last=10, last_stable=11) -> bytes:
    return struct.pack(">hqqqq", version, producer_id, first, last, last_stable)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (entry_bytes()[:-1], "33 bytes behind"),
        (entry_bytes() + b"\x00", "1 bytes behind"),
        (entry_bytes(version=1), "version 1 is unknown"),
        (entry_bytes(version=-1), "version -1 is unknown"),
        (entry_bytes() + entry_bytes(), "entry 1 at byte 34"),
        (entry_bytes() + bytes(34), "entry 1 at byte 34"),
        (entry_bytes(first=11), "entry 0 at byte 0"),
    ],
)
def test_damage_is_found(tmp_path, content, says):
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(CorruptIndexError, match=says):
        open_index(tmp_path).sanity_check()


def test_an_entry_below_the_segment_is_damage(tmp_path):
    """on-disk: then the segment is recovered."""
    (tmp_path / NAME).write_bytes(entry_bytes(last=99))
    with pytest.raises(CorruptIndexError):
        open_index(tmp_path, base=Offset(100)).sanity_check()


def test_a_damaged_index_is_emptied_and_used_again(tmp_path):
    (tmp_path / NAME).write_bytes(entry_bytes() + b"rest")
    index = open_index(tmp_path)
    index.truncate_fully()
    index.sanity_check()
    index.append(AbortedTransaction(*ABORTED[0]))
    assert (tmp_path / NAME).stat().st_size == 34


def test_flush_makes_the_name_durable_once(tmp_path):
    """E25."""
    disk = RecordingFileSystem()
    index = open_index(tmp_path, file_system=disk)
    for entry in ABORTED[:2]:
        index.append(AbortedTransaction(*entry))
        index.flush()
    assert [operation for operation, _name in disk.operations] == [
        "create",
        "write",
        "sync",
        "sync_directory",
        "write",
        "sync",
    ]


def test_a_full_disk_leaves_the_index_as_it_was(tmp_path):
    disk = RecordingFileSystem()
    index = open_index(tmp_path, file_system=disk)
    index.append(AbortedTransaction(*ABORTED[0]))
    disk.refuse = {"write"}
    with pytest.raises(OSError, match="refused"):
        index.append(AbortedTransaction(*ABORTED[1]))
    assert list(index.entries()) == ABORTED[:1]


@pytest.mark.parametrize("entry_count", [0, 1])
def test_rename_and_delete_with_and_without_a_file(tmp_path, entry_count):
    index = filled(tmp_path, ABORTED[:entry_count])
    target = index.path.with_name(NAME + ".deleted")
    if entry_count:
        index.path.rename(target)
    index.moved(target)
    assert index.path == target
    assert [path.name for path in tmp_path.iterdir()] == [target.name][:entry_count]
    assert list(index.entries()) == ABORTED[:entry_count]
    index.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_reader_in_the_middle_reads_on_after_delete_and_stops_at_a_truncation(tmp_path):
    entries = [(number, number, number + 1, number) for number in range(0, 3000, 2)]
    index = filled(tmp_path, entries)
    reading = index.entries()
    next(reading)
    index.delete()
    assert list(reading) == entries[1:]
    index = filled(tmp_path, entries)
    reading = index.entries()
    next(reading)
    index.truncate_to(Offset(3))
    assert len(list(reading)) < 1499


def test_a_closed_index_is_empty(tmp_path):
    index = filled(tmp_path)
    index.close()
    index.close()
    assert list(index.entries()) == []


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["write", "write", "abort", "commit"])), max_size=80),
    fetch_offset=st.integers(0, 80),
    length=st.integers(0, 80),
)
def test_no_overlapping_transaction_is_omitted(tmp_path_factory, steps, fetch_offset, length):
    """E23, over a log of one record per offset: everything aborted in the range is found, if it is stable there."""
    index = open_index(tmp_path_factory.mktemp("transactions"))
    open_since: dict[int, int] = {}
    aborted: list[AbortedTransaction] = []
    for offset, (producer_id, what) in enumerate(steps):
        if what == "write":
            open_since.setdefault(producer_id, offset)
            continue
        first = open_since.pop(producer_id, None)
        if what == "abort" and first is not None:
            last_stable = min(open_since.values(), default=offset + 1)
            aborted.append(AbortedTransaction(producer_id, Offset(first), Offset(offset), Offset(last_stable)))
            index.append(aborted[-1])
    upper_bound = min(fetch_offset + length, min(open_since.values(), default=len(steps)))
    answer = index.collect_aborted(Offset(fetch_offset), Offset(upper_bound))
    overlapping = [found for found in aborted if found.last_offset >= fetch_offset and found.first_offset < upper_bound]
    assert answer.transactions == overlapping
    if upper_bound > fetch_offset:
        assert answer.is_complete == any(found.last_stable_offset >= upper_bound for found in aborted)
