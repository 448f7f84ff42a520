"""Samples of an index find what a plain bisection finds, also when the index grows or is cut meanwhile."""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_model.offsets import NO_TIMESTAMP, Offset, TimestampOffset
from storage.disk.file_system import LocalFileSystem
from storage.index import key_samples
from storage.index.key_samples import RUN, KeyLayout, KeySamples
from storage.index.time_index import SAMPLED_ASKED_MIN, SAMPLED_ENTRIES_MIN, TimeIndex

pytestmark = pytest.mark.usefixtures("twin")

LAYOUT = KeyLayout("q", 12)


gaps = st.lists(st.sampled_from([1, 2, 1000, 10**9]), min_size=1, max_size=5 * RUN)


def memory_of(keys: list[int]) -> memoryview:
    return memoryview(b"".join(struct.pack(">qi", key, slot) for slot, key in enumerate(keys)))


@given(gaps=gaps, sampled_part=st.floats(0, 1))
def test_samples_find_what_a_bisection_finds(gaps: list[int], sampled_part: float) -> None:
    keys = list(accumulate(gaps))
    memory = memory_of(keys)
    sampled_count = max(1, round(len(keys) * sampled_part))
    samples = KeySamples(LAYOUT, memory, sampled_count, 0)
    for target in [0, *keys, *(key + 1 for key in keys)]:
        expected = bisect_right(keys, target) - 1
        found = samples.floor_slot(memory, len(keys), target)
        if found is None:
            # Behind the last sample there are more entries than one run.
            assert expected >= (sampled_count - 1) // RUN * RUN
            assert len(keys) - sampled_count > 0
        else:
            assert found == expected


@pytest.fixture
def index(tmp_path: Path) -> TimeIndex:
    return TimeIndex.open(LocalFileSystem(), tmp_path / "0.timeindex", Offset(0), max_bytes=12 * 20_000, writable=True)


def check(index: TimeIndex, timestamps: list[int], source: random.Random) -> None:
    for _ in range(SAMPLED_ASKED_MIN + 50):
        timestamp = source.choice(timestamps) + source.randint(-1, 1)
        place = bisect_right(timestamps, timestamp) - 1
        expected = (NO_TIMESTAMP, 0) if place < 0 else (timestamps[place], place)
        assert index.lookup(timestamp) == TimestampOffset(expected[0], Offset(expected[1]))


def test_an_index_that_grows_and_is_cut_is_never_asked_of_the_past(index: TimeIndex) -> None:
    source = random.Random(3)
    timestamps: list[int] = []
    for kept, grown in [(0, 3_000), (3_000, 10), (3_010, 500), (2_500, 1_500), (100, 4_000), (4_000, 0)]:
        del timestamps[kept:]
        index.truncate_to(Offset(kept))
        for _ in range(grown):
            timestamps.append((timestamps[-1] if timestamps else 0) + source.choice((1, 5, 10_000)))
            index.maybe_append(timestamps[-1], Offset(len(timestamps) - 1))
        check(index, timestamps, source)
    index.file.trim()
    check(index, timestamps, source)


def test_samples_hold_no_memory(index: TimeIndex) -> None:
    """Whoever trims or closes the index must be able to release it."""
    for number in range(SAMPLED_ENTRIES_MIN):
        index.maybe_append(number, Offset(number))
    for _ in range(2 * SAMPLED_ASKED_MIN):
        assert index.lookup(700) == (700, 700)
    index.file.trim()
    assert index.lookup(701) == (701, 701)
    index.close()
    with pytest.raises(ValueError, match="is closed"):
        index.lookup(700)


@pytest.mark.parametrize(("position", "length"), [(0, 0), (0, 3), (12, 2), (-12, 1), (24, 1), (0, -1)])
def test_a_run_ends_inside_its_memory(position: int, length: int) -> None:
    if key_samples.compiled is None:
        pytest.skip("there is none in Python, whose reads end with the memory")
    with pytest.raises(ValueError, match="behind the mapping"):
        key_samples.compiled.place_in_run(memory_of([1, 2]), position, length, 12, 1)
    assert key_samples.compiled.place_in_run(memory_of([1, 2])[:20], 0, 2, 12, 2) == 2
