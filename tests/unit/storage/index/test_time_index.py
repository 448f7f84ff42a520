"""The time index against Kafka's cases and against a plain list."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from log_model.offsets import Offset, TimestampOffset
from storage.disk.file_system import LocalFileSystem
from storage.index.index_file import CorruptIndexError, IndexFullError, InvalidEntryError
from storage.index.time_index import TimeIndex

FILE_SYSTEM = LocalFileSystem()
BASE = Offset(45)
NAME = "00000000000000000045.timeindex"


@pytest.fixture
def index(tmp_path):
    index = TimeIndex.open(FILE_SYSTEM, tmp_path / NAME, BASE, max_bytes=30 * 12, writable=True)
    yield index
    index.close()


def open_bytes(directory: Path, content: bytes) -> TimeIndex:
    path = directory / NAME
    path.write_bytes(content)
    return TimeIndex.open(FILE_SYSTEM, path, BASE, max_bytes=1 << 20, writable=False)


def test_an_entry_is_a_timestamp_and_a_relative_offset(tmp_path):
    """C5: i64, i32, big-endian."""
    index = TimeIndex.open(FILE_SYSTEM, tmp_path / NAME, Offset(50), max_bytes=120, writable=True)
    index.maybe_append(1_700_000_000_000, Offset(55))
    index.file.trim()
    assert index.path.read_bytes() == bytes.fromhex("0000018bcfe56800 00000005")


def test_ix_7_lookup(index):
    """C8: the greatest not above, else (-1, base)."""
    assert index.lookup(100) == (-1, BASE)
    for number in (1, 2, 3):
        index.maybe_append(10 * number, Offset(BASE + number))
    assert index.lookup(9) == (-1, BASE)
    assert index.lookup(-1) == (-1, BASE)
    assert index.lookup(10) == (10, BASE + 1)
    assert index.lookup(25) == (20, BASE + 2)
    assert index.lookup(30) == (30, BASE + 3)
    assert index.lookup(100) == (30, BASE + 3)
    assert index.lookup(2**63 - 1) == (30, BASE + 3)


def test_the_same_timestamp_again_is_ignored(index):
    """C8; out-of-order producers thus still give a strictly rising file."""
    index.maybe_append(10, Offset(BASE + 1))
    index.maybe_append(10, Offset(BASE + 2))
    assert list(index.entries()) == [(10, BASE + 1)]
    assert index.last_entry == (10, BASE + 1)


def test_records_without_timestamp_add_nothing(index):
    """An empty index answers (-1, base), and -1 is not later than that."""
    index.maybe_append(-1, Offset(BASE + 1))
    assert index.entry_count == 0
    assert index.last_entry == (-1, BASE)


@pytest.mark.parametrize(("timestamp", "offset"), [(9, BASE + 6), (11, BASE + 4), (10, BASE + 4), (9, BASE + 4)])
def test_neither_time_nor_offset_may_go_back(index, timestamp, offset):
    """C8."""
    index.maybe_append(10, Offset(BASE + 5))
    with pytest.raises(InvalidEntryError):
        index.maybe_append(timestamp, Offset(offset))
    assert list(index.entries()) == [(10, BASE + 5)]


def test_the_last_slot_is_kept_for_the_roll(index):
    """C8: full at max - 1; the roll skips the check, and then there is nothing left."""
    for number in range(1, 30):
        assert not index.is_full
        index.maybe_append(number, Offset(BASE + number))
    assert index.is_full
    with pytest.raises(IndexFullError):
        index.maybe_append(29, Offset(BASE + 30))
    index.maybe_append(29, Offset(BASE + 30), skip_full_check=True)
    assert index.entry_count == 29
    index.maybe_append(30, Offset(BASE + 30), skip_full_check=True)
    assert index.last_entry == (30, BASE + 30)
    with pytest.raises(IndexFullError):
        index.maybe_append(31, Offset(BASE + 31), skip_full_check=True)
    assert index.entry_count == 30


@pytest.mark.parametrize(("timestamp", "offset"), [(1, BASE - 1), (1, BASE + 2**31), (2**63, BASE + 1)])
def test_what_does_not_fit_into_an_entry_is_an_overflow(index, timestamp, offset):
    """C5."""
    with pytest.raises(OverflowError):
        index.maybe_append(timestamp, Offset(offset))
    assert index.entry_count == 0
    index.maybe_append(2**63 - 1, Offset(BASE + 2**31 - 1))
    assert index.lookup(2**63 - 1) == (2**63 - 1, BASE + 2**31 - 1)


@pytest.mark.parametrize(("target", "kept"), [(10, 9), (9, 8), (5, 4), (1, 0)])
def test_truncation_is_by_offset(index, target, kept):
    """C8: entries below the offset stay."""
    for number in range(1, 10):
        index.maybe_append(100 * number, Offset(BASE + number))
    index.truncate_to(Offset(BASE + target))
    assert list(index.entries()) == [(100 * number, BASE + number) for number in range(1, kept + 1)]
    assert index.last_entry == ((100 * kept, BASE + kept) if kept else (-1, BASE))


def test_truncation_takes_all_entries_of_one_offset(index):
    """Offsets may repeat, timestamps may not."""
    for timestamp, offset in ((10, 1), (20, 4), (30, 4), (40, 4), (50, 6)):
        index.maybe_append(timestamp, Offset(BASE + offset))
    index.truncate_to(Offset(BASE + 4))
    assert list(index.entries()) == [(10, BASE + 1)]


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">qiqi", 20, 1, 10, 2),
        struct.pack(">qiqi", 20, 1, 20, 2),
        struct.pack(">qi", 20, -1),
        struct.pack(">qi", -20, 1),
        struct.pack(">qiqi", 20, 4, 30, 3),
        struct.pack(">qiqi", 20, 1, 0, 0),
    ],
    ids=["earlier", "same time", "below the base", "before time", "offset goes back", "zero tail"],
)
def test_ix_8_first_and_last_entry_are_checked(tmp_path, content):
    """C8."""
    index = open_bytes(tmp_path, content)
    with pytest.raises(CorruptIndexError, match=NAME):
        index.sanity_check()


def test_damage_in_the_middle_is_found_by_the_full_check_alone(tmp_path):
    index = open_bytes(tmp_path, struct.pack(">qiqiqi", 10, 1, 50, 2, 40, 3))
    index.sanity_check()
    with pytest.raises(CorruptIndexError, match="entry 2 at byte 24"):
        index.verify_entries()


class IndexMachine(RuleBasedStateMachine):
    """Any order of operations, beside a list."""

    @initialize(entry_count_max=st.integers(2, 60))
    def make(self, entry_count_max: int) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.max_bytes = 12 * entry_count_max + 7
        self.entry_count_max = entry_count_max
        self.room = entry_count_max
        self.model: list[tuple[int, int]] = []
        self.path = Path(self.directory.name) / NAME
        self.open()

    def open(self) -> None:
        self.index = TimeIndex.open(FILE_SYSTEM, self.path, BASE, max_bytes=self.max_bytes, writable=True)

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.index.close()
            self.directory.cleanup()

    @rule(steps=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), max_size=30), skip=st.booleans())
    def append(self, steps: list[tuple[int, int]], skip: bool) -> None:
        for time_step, offset_step in steps:
            timestamp, offset = self.model[-1] if self.model else (1_000, BASE)
            timestamp += time_step
            offset += offset_step
            adds = not self.model or time_step > 0
            if len(self.model) >= self.room - 1 and (not skip or (adds and len(self.model) >= self.room)):
                with pytest.raises(IndexFullError):
                    self.index.maybe_append(timestamp, Offset(offset), skip_full_check=skip)
            else:
                self.index.maybe_append(timestamp, Offset(offset), skip_full_check=skip)
                if adds:
                    self.model.append((timestamp, offset))

    @rule(offset=st.integers(BASE - 5, BASE + 1500))
    def truncate(self, offset: int) -> None:
        self.index.truncate_to(Offset(offset))
        self.model = [entry for entry in self.model if entry[1] < offset]

    @rule()
    def trim(self) -> None:
        self.index.file.trim()
        self.room = len(self.model)
        assert self.path.stat().st_size == 12 * len(self.model)

    @rule()
    def resize_to_max(self) -> None:
        self.index.file.resize_to_max()
        self.room = self.entry_count_max
        assert self.path.stat().st_size == 12 * self.entry_count_max

    @rule()
    def reopen_after_a_clean_stop(self) -> None:
        self.index.file.trim()
        self.index.file.flush()
        self.index.close()
        self.open()
        self.room = self.entry_count_max

    @rule(timestamp=st.integers(-1, 4_000))
    def lookup(self, timestamp: int) -> None:
        expected = [entry for entry in self.model if entry[0] <= timestamp]
        assert self.index.lookup(timestamp) == (expected[-1] if expected else (-1, BASE))

    @precondition(lambda self: hasattr(self, "index"))
    @invariant()
    def same(self) -> None:
        assert list(self.index.entries()) == self.model
        assert self.index.last_entry == (self.model[-1] if self.model else TimestampOffset(-1, BASE))
        assert self.index.is_full == (len(self.model) >= self.room - 1)
        self.index.verify_entries()


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
