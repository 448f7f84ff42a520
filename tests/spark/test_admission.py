"""How much one micro-batch takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rollway.spark.read.admission import DelayedTrigger, limited, new_offsets

COUNTS = st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1)


@given(partitions=COUNTS, offsets_max=st.integers(1, 10**6))
def test_each_partition_takes_its_share_and_something(partitions: dict[int, tuple[int, int]], offsets_max: int) -> None:
    begin = {"t": {number: start for number, (start, _) in partitions.items()}}
    ends = {"t": {number: start + count for number, (start, count) in partitions.items()}}
    taken = limited(begin, ends, offsets_max)
    for number, (start, count) in partitions.items():
        assert min(count, 1) <= taken["t"][number] - start <= count
    total = sum(new_offsets(begin, taken).values())
    assert total <= offsets_max + len(partitions)
    if sum(count for _, count in partitions.values()) <= offsets_max:
        assert taken == ends


def test_shares_are_in_proportion() -> None:
    begin = {"a": {0: 0, 1: 50}, "b": {0: 10}}
    ends = {"a": {0: 600, 1: 350}, "b": {0: 110}}
    assert limited(begin, ends, 100) == {"a": {0: 60, 1: 80}, "b": {0: 20}}


def test_partitions_without_a_beginning_are_not_limited() -> None:
    assert limited({"a": {0: 0}}, {"a": {0: 10, 1: 99}}, 5) == {"a": {0: 5, 1: 99}}


def test_a_trigger_waits_for_enough_or_for_long_enough() -> None:
    now_ms = 0.0
    delayed = DelayedTrigger(10, 1000, lambda: now_ms)
    assert not delayed.must_wait(1), "the first micro-batch waits for nothing"
    assert delayed.must_wait(9)
    assert not delayed.must_wait(10)
    now_ms = 1000.0
    assert delayed.must_wait(9)
    now_ms = 1000.5
    assert not delayed.must_wait(9), "the delay is over"
    assert delayed.must_wait(9), "and counts from the last micro-batch again"
