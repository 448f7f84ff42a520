"""The search among the entries of an index."""

from __future__ import annotations

import random
import struct
from bisect import bisect_right

import numpy as np
import pytest

from storage.index.sparse_index import floor_slot

ENTRY_COUNTS = [0, 1, 2, 3, 680, 681, 682, 683, 684, 1023, 1024, 1025, 1026, 1027, 5000, 9000]


class CountingReader:
    """Reads keys as the index does, and counts how often."""

    def __init__(self, layout: str) -> None:
        self._unpack_from = struct.Struct(layout).unpack_from
        self.count = 0

    def __call__(self, memory: memoryview, position: int) -> tuple[int, ...]:
        self.count += 1
        return self._unpack_from(memory, position)


def offset_entries(count: int, step: int = 3) -> memoryview:
    entries = np.zeros((count, 2), dtype=">i4")
    entries[:, 0] = entries[:, 1] = np.arange(1, count + 1) * step
    return memoryview(entries.tobytes())


def time_entries(count: int, step: int = 3) -> memoryview:
    entries = np.zeros(count, dtype=[("timestamp", ">i8"), ("offset", ">i4")])
    entries["timestamp"] = entries["offset"] = np.arange(1, count + 1) * step
    return memoryview(entries.tobytes())


@pytest.mark.parametrize("count", ENTRY_COUNTS)
@pytest.mark.parametrize(("layout", "make"), [(">i", offset_entries), (">q", time_entries)], ids=["8", "12"])
def test_ix_9_warm_search_gives_the_same_answers_as_bisect(count, layout, make):
    """C3: hits, both neighbours of every key, and both outsides."""
    memory = make(count)
    entry_bytes = 8 if layout == ">i" else 12
    keys = [3 * slot for slot in range(1, count + 1)]
    read_key = struct.Struct(layout).unpack_from
    for target in {-1, 0, 1, 3 * count + 10**6, *(key + change for key in keys for change in (-1, 0, 1))}:
        assert floor_slot(read_key, memory, count, entry_bytes, 0, target) == bisect_right(keys, target) - 1


@pytest.mark.parametrize(("layout", "make", "entry_bytes"), [(">i", offset_entries, 8), (">q", time_entries, 12)])
def test_reads_at_the_tail_of_a_million_entries_take_at_most_eleven_probes(layout, make, entry_bytes):
    """C3: 8 KiB of entries are searched, whatever the length of the index."""
    count = 1_000_000
    memory = make(count)
    warm = 8192 // entry_bytes
    for slot in range(count - warm + 2, count):
        for target in (3 * slot + 3, 3 * slot + 4):  # the key in this slot, and just above it
            reader = CountingReader(layout)
            assert floor_slot(reader, memory, count, entry_bytes, 0, target) == slot
            assert reader.count <= 11
    reader = CountingReader(layout)
    assert floor_slot(reader, memory, count, entry_bytes, 0, 10**9) == count - 1
    assert reader.count <= 11


def test_tail_reads_touch_the_warm_section_only():
    """C3: no probe lies below the newest 8 KiB and the entry before it."""
    count = 100_000
    memory = offset_entries(count)
    touched: list[int] = []

    def read_key(view: memoryview, position: int) -> tuple[int, ...]:
        touched.append(position)
        return struct.unpack_from(">i", view, position)

    floor_slot(read_key, memory, count, 8, 0, 3 * (count - 10))
    assert min(touched) >= 8 * count - 8 - 8192


def test_cold_reads_touch_nothing_above_the_first_warm_entry():
    """C3: the cold search ends at that entry."""
    count = 100_000
    memory = offset_entries(count)
    first_warm = count - 1 - 1024
    for slot in (0, 1, count // 2, first_warm - 1, first_warm):
        touched: list[int] = []

        def read_key(view: memoryview, position: int, touched: list[int] = touched) -> tuple[int, ...]:
            touched.append(position)
            return struct.unpack_from(">i", view, position)

        assert floor_slot(read_key, memory, count, 8, 0, 3 * (slot + 1)) == slot
        assert max(touched) == 8 * first_warm


def test_ix_9_only_the_first_count_entries_take_part():
    memory = offset_entries(100)
    read_key = struct.Struct(">i").unpack_from
    assert floor_slot(read_key, memory, 10, 8, 0, 1000) == 9


@pytest.mark.parametrize("power", [1, 2, 8, 0.2])
def test_a_search_among_many_entries_takes_few_looks_however_keys_rise(power: float) -> None:
    count = 100_000
    keys = sorted({int((slot / count) ** power * 2**31) + slot for slot in range(count)})
    memory = memoryview(b"".join(struct.pack(">ii", min(key, 2**31 - 1), 0) for key in keys))
    looks = 0

    def read_key(view: memoryview, position: int) -> tuple[int, ...]:
        nonlocal looks
        looks += 1
        return struct.unpack_from(">i", view, position)

    choice = random.Random(3)
    tried = 500
    for _ in range(tried):
        target = choice.choice(keys[:-2048]) + choice.randrange(2)
        assert floor_slot(read_key, memory, len(keys), 8, 0, target) == bisect_right(keys, target) - 1
    # Bisection alone takes 18.
    assert looks / tried < (11 if power == 1 else 24)
