"""The offset index against Kafka's cases and against a plain list."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from log_model.offsets import Offset, OffsetPosition, Position
from storage.disk.file_system import LocalFileSystem
from storage.index.index_file import CorruptIndexError, IndexFullError, InvalidEntryError
from storage.index.offset_index import OffsetIndex

FILE_SYSTEM = LocalFileSystem()
BASE = Offset(45)
NAME = "00000000000000000045.index"


@pytest.fixture
def index(tmp_path):
    index = OffsetIndex.open(FILE_SYSTEM, tmp_path / NAME, BASE, max_bytes=30 * 8, writable=True)
    yield index
    index.close()


def open_bytes(directory: Path, content: bytes, *, base: int = BASE) -> OffsetIndex:
    path = directory / NAME
    path.write_bytes(content)
    return OffsetIndex.open(FILE_SYSTEM, path, Offset(base), max_bytes=1 << 20, writable=False)


def fill(index: OffsetIndex, *entries: tuple[int, int]) -> None:
    for offset, position in entries:
        index.append(Offset(offset), Position(position))


def test_an_entry_is_two_big_endian_numbers_relative_to_the_base(tmp_path):
    """A19, C5: with base 50, offset 55 is written as 5 and 56 as 6."""
    index = OffsetIndex.open(FILE_SYSTEM, tmp_path / NAME, Offset(50), max_bytes=80, writable=True)
    fill(index, (55, 4107), (56, 8214))
    index.file.trim()
    assert index.path.read_bytes() == bytes.fromhex("00000005 0000100b 00000006 00002016")


def test_the_greatest_entry_not_above_the_target_is_found(index):
    """A19: entries 0, 5, 8, asked for 6: 5."""
    fill(index, (BASE + 1, 10), (BASE + 5, 500), (BASE + 8, 800))
    assert index.lookup(Offset(BASE + 6)) == OffsetPosition(BASE + 5, 500)


def test_ix_1_sparse_positions(tmp_path):
    """C6: of 100 batches of 1000 bytes and 10 records, every fifth but the first has an entry."""
    index = OffsetIndex.open(FILE_SYSTEM, tmp_path / NAME, Offset(0), max_bytes=10_485_760, writable=True)
    for batch in range(5, 100, 5):
        index.append(Offset(10 * batch + 9), Position(1000 * batch))
    index.file.trim()
    content = index.path.read_bytes()
    assert len(content) == 19 * 8
    assert list(struct.iter_unpack(">ii", content)) == [(10 * batch + 9, 1000 * batch) for batch in range(5, 100, 5)]
    for offset in range(1000):
        # The batch of an entry ends with its offset, so any other record of that batch is found from the one before.
        batch = max((batch for batch in range(5, 100, 5) if 10 * batch + 9 <= offset), default=0)
        assert index.lookup(Offset(offset)) == ((10 * batch + 9, 1000 * batch) if batch else (0, 0))


@pytest.mark.parametrize(("target", "kept"), [(12, 9), (10, 9), (9, 8), (5, 4), (1, 0), (0, 0)])
def test_ix_3_truncation_removes_the_offset_and_above(index, target, kept):
    """C7."""
    fill(index, *((BASE + number, number) for number in range(1, 10)))
    index.truncate_to(Offset(BASE + target))
    assert list(index.entries()) == [(BASE + number, number) for number in range(1, kept + 1)]
    assert index.last_entry == ((BASE + kept, kept) if kept else None)
    fill(index, (BASE + kept + 1, 1000))
    assert index.entry_count == kept + 1


def test_ix_4_lookup_edges(index):
    """C7, A19: below the first and on an empty index (base, 0)."""
    nothing = OffsetPosition(BASE, 0)
    assert index.lookup(Offset(BASE + 100)) == nothing
    assert index.last_entry is None
    fill(index, (BASE + 5, 50), (BASE + 10, 100), (BASE + 15, 150))
    assert index.lookup(Offset(BASE - 40)) == nothing
    assert index.lookup(Offset(BASE)) == nothing
    assert index.lookup(Offset(BASE + 4)) == nothing
    assert index.lookup(Offset(BASE + 5)) == (BASE + 5, 50)
    assert index.lookup(Offset(BASE + 9)) == (BASE + 5, 50)
    assert index.lookup(Offset(BASE + 10)) == (BASE + 10, 100)
    assert index.lookup(Offset(BASE + 15)) == (BASE + 15, 150)
    assert index.lookup(Offset(2**62)) == (BASE + 15, 150)
    assert index.last_entry == (BASE + 15, 150)


def test_positions_are_looked_up_the_same_way(index):
    assert index.lookup_position(Position(10**6)) == (BASE, 0)
    fill(index, (BASE + 5, 50), (BASE + 10, 100))
    assert index.lookup_position(Position(49)) == (BASE, 0)
    assert index.lookup_position(Position(50)) == (BASE + 5, 50)
    assert index.lookup_position(Position(99)) == (BASE + 5, 50)
    assert index.lookup_position(Position(10**6)) == (BASE + 10, 100)


def test_a_full_index_refuses(index):
    """C7."""
    fill(index, *((BASE + number, number) for number in range(1, 31)))
    assert index.is_full
    with pytest.raises(IndexFullError):
        fill(index, (BASE + 31, 31))
    assert index.entry_count == 30


@pytest.mark.parametrize("entry", [(BASE + 5, 99), (BASE + 4, 99), (BASE + 6, 50), (BASE + 6, 49), (BASE, 99)])
def test_offsets_and_positions_must_rise(index, entry):
    """C7."""
    fill(index, (BASE + 5, 50))
    with pytest.raises(InvalidEntryError):
        fill(index, entry)
    assert list(index.entries()) == [(BASE + 5, 50)]


@pytest.mark.parametrize(
    "entry", [(BASE - 1, 1), (BASE + 2**31, 1), (BASE + 1, 2**31), (BASE + 1, -1)], ids=lambda entry: str(entry)
)
def test_what_does_not_fit_into_an_entry_is_an_overflow(index, entry):
    """C5: relative offsets and positions lie in 0 .. 2^31-1."""
    with pytest.raises(OverflowError):
        fill(index, entry)
    assert index.entry_count == 0
    fill(index, (BASE + 2**31 - 1, 2**31 - 1))
    assert index.lookup(Offset(2**40)) == (BASE + 2**31 - 1, 2**31 - 1)


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">ii", -1, 10),
        struct.pack(">ii", 5, -1),
        struct.pack(">iiii", 5, 10, 5, 20),
        struct.pack(">iiii", 5, 10, 6, 10),
        struct.pack(">iiii", 5, 10, 0, 0),
    ],
    ids=["below the base", "before the file", "offset stands still", "position stands still", "zero tail"],
)
def test_ix_8_first_and_last_entry_are_checked(tmp_path, content):
    """C7; the last three pass Kafka's check and fail ours."""
    index = open_bytes(tmp_path, content)
    with pytest.raises(CorruptIndexError, match=NAME):
        index.sanity_check()


def test_damage_in_the_middle_is_found_by_the_full_check_alone(tmp_path):
    content = struct.pack(">6i", 5, 10, 4, 20, 9, 30)
    index = open_bytes(tmp_path, content)
    index.sanity_check()
    with pytest.raises(CorruptIndexError, match="entry 1 at byte 8"):
        index.verify_entries()


def test_any_bytes_give_an_answer_or_a_refusal(tmp_path):
    """RC-6: random bytes never break a lookup; whoever asks compares the answer with the log."""
    content = bytes((7 * place + place // 5) % 256 for place in range(8 * 700))
    index = open_bytes(tmp_path, content)
    for target in (-1, 0, 1, 1000, 2**31, 2**40):
        assert index.lookup(Offset(target)).offset >= BASE - 2**31
    with pytest.raises(CorruptIndexError):
        index.verify_entries()


class IndexMachine(RuleBasedStateMachine):
    """Any order of operations, beside a list."""

    @initialize(entry_count_max=st.integers(1, 60))
    def make(self, entry_count_max: int) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.max_bytes = 8 * entry_count_max + 3
        self.entry_count_max = entry_count_max
        self.room = entry_count_max
        self.model: list[tuple[int, int]] = []
        self.path = Path(self.directory.name) / NAME
        self.open()

    def open(self) -> None:
        self.index = OffsetIndex.open(FILE_SYSTEM, self.path, BASE, max_bytes=self.max_bytes, writable=True)

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.index.close()
            self.directory.cleanup()

    @rule(steps=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5000)), max_size=30))
    def append(self, steps: list[tuple[int, int]]) -> None:
        for offset_step, position_step in steps:
            offset, position = self.model[-1] if self.model else (BASE, 0)
            entry = (offset + offset_step, position + position_step)
            if len(self.model) >= self.room:
                with pytest.raises(IndexFullError):
                    fill(self.index, entry)
            else:
                fill(self.index, entry)
                self.model.append(entry)

    @rule(offset=st.integers(BASE - 5, BASE + 1500))
    def truncate(self, offset: int) -> None:
        self.index.truncate_to(Offset(offset))
        self.model = [entry for entry in self.model if entry[0] < offset]

    @rule()
    def truncate_to_the_base(self) -> None:
        self.index.truncate_to(BASE)
        self.model = []

    @rule()
    def trim(self) -> None:
        self.index.file.trim()
        self.room = len(self.model)
        assert self.path.stat().st_size == 8 * len(self.model)

    @rule()
    def resize_to_max(self) -> None:
        self.index.file.resize_to_max()
        self.room = self.entry_count_max
        assert self.path.stat().st_size == 8 * self.entry_count_max

    @rule()
    def reopen_after_a_clean_stop(self) -> None:
        self.index.file.trim()
        self.index.file.flush()
        self.index.close()
        self.open()
        self.room = self.entry_count_max

    @rule()
    def seal_and_activate_again(self) -> None:
        self.index.file.trim()
        self.index.close()
        self.index = OffsetIndex.open(FILE_SYSTEM, self.path, BASE, max_bytes=self.max_bytes, writable=False)
        assert list(self.index.entries()) == self.model
        self.index.file.make_writable()
        self.room = self.entry_count_max

    @rule(offset=st.integers(-5, BASE + 3000))
    def lookup(self, offset: int) -> None:
        expected = [entry for entry in self.model if entry[0] <= offset]
        assert self.index.lookup(Offset(offset)) == (expected[-1] if expected else (BASE, 0))

    @rule(position=st.integers(0, 200_000))
    def look_by_position(self, position: int) -> None:
        below = [entry for entry in self.model if entry[1] <= position]
        assert self.index.lookup_position(Position(position)) == (below[-1] if below else (BASE, 0))

    @precondition(lambda self: hasattr(self, "index"))
    @invariant()
    def same(self) -> None:
        assert list(self.index.entries()) == self.model
        assert self.index.entry_count == len(self.model)
        assert self.index.last_entry == (self.model[-1] if self.model else None)
        assert self.index.is_full == (len(self.model) >= self.room)
        self.index.verify_entries()


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
