"""When an fsync may be waited for on the event loop."""

from __future__ import annotations

import pytest

from app.engine_local.partitions.flush_pace import (
    BYTES_MAX,
    HOPEFUL_SECONDS,
    HOPELESS_WEIGHT,
    QUICK_FOR_SLOW,
    QUICK_SECONDS,
    SLOW_SECONDS,
    TRUST_MAX,
    TRUST_MIN,
    FlushPace,
)


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pace_of(time: Time, bytes_max: int = BYTES_MAX) -> FlushPace:
    return FlushPace(bytes_max, time)


def hope(pace: FlushPace, count: int, seconds: float = HOPEFUL_SECONDS) -> None:
    for _ in range(count):
        pace.note_in_thread(seconds)


def hope_needed(pace: FlushPace) -> int:
    """How many hopeful ones it takes."""
    count = 0
    while not pace.allows(1):
        pace.note_in_thread(0.0)
        count += 1
        assert count <= TRUST_MAX
    return count


def test_the_loop_waits_for_no_disk_that_it_does_not_know() -> None:
    pace = pace_of(Time())
    hope(pace, TRUST_MIN - 1)
    assert not pace.allows(1)
    hope(pace, 1)
    assert pace.allows(1)


def test_a_disk_that_is_slow_in_threads_is_never_tried() -> None:
    pace = pace_of(Time())
    for _ in range(10_000):
        pace.note_in_thread(0.005)
        assert not pace.allows(1)


def test_what_was_not_hopeful_takes_hope_away() -> None:
    pace = pace_of(Time())
    hope(pace, 100 * TRUST_MIN)
    pace.note_in_thread(HOPEFUL_SECONDS * 1.01)
    assert not pace.allows(1)
    assert hope_needed(pace) == HOPELESS_WEIGHT


def test_large_fsyncs_stay_in_threads_and_a_limit_of_zero_keeps_all_there() -> None:
    pace = pace_of(Time(), 1000)
    hope(pace, TRUST_MIN)
    assert pace.allows(1000)
    assert not pace.allows(1001)
    wide = pace_of(Time(), 100 * BYTES_MAX)
    hope(wide, TRUST_MIN)
    assert wide.allows(BYTES_MAX)
    assert not wide.allows(BYTES_MAX + 1)
    none = pace_of(Time(), 0)
    hope(none, TRUST_MIN)
    assert not none.allows(1)


def test_only_a_share_of_the_loop_is_waited() -> None:
    time = Time()
    pace = pace_of(time)
    hope(pace, TRUST_MIN)
    waited = 0
    while pace.allows(1):
        pace.note_here(QUICK_SECONDS)
        time.now += QUICK_SECONDS
        waited += 1
    assert waited == 4
    time.now += 0.004
    assert pace.allows(1)


def test_each_mistake_asks_for_twice_the_hope_and_a_good_time_for_half() -> None:
    time = Time()
    pace = pace_of(time)
    for needed in (TRUST_MIN, 2 * TRUST_MIN, 4 * TRUST_MIN):
        assert hope_needed(pace) == needed
        pace.note_here(SLOW_SECONDS * 1.01)
        time.now += 1
    hope(pace, 8 * TRUST_MIN)
    for _ in range(64 * 8 * TRUST_MIN):
        time.now += 1
        assert pace.allows(1)
        pace.note_here(0.0001)
    # The first of two is made up for by the quick ones before.
    pace.note_here(SLOW_SECONDS * 1.01)
    pace.note_here(SLOW_SECONDS * 1.01)
    time.now += 1
    assert hope_needed(pace) == 8 * TRUST_MIN


def be_quick(pace: FlushPace, time: Time, count: int) -> None:
    for _ in range(count):
        time.now += 1
        assert pace.allows(1)
        pace.note_here(0.0001)


@pytest.mark.parametrize("times", [1.25, 10.0])
def test_a_slow_one_is_made_up_for_by_quick_ones_in_proportion(times: float) -> None:
    needed = int(QUICK_FOR_SLOW * times)
    for count, is_allowed in ((needed, True), (needed - 1, False)):
        time = Time()
        pace = pace_of(time)
        hope(pace, TRUST_MIN)
        be_quick(pace, time, count)
        pace.note_here(SLOW_SECONDS * times)
        time.now += 1
        assert pace.allows(1) is is_allowed


def test_quick_ones_make_up_for_one_slow_one_only_and_hope_that_was_lost_for_none() -> None:
    time = Time()
    pace = pace_of(time)
    hope(pace, TRUST_MIN)
    for _ in range(3):
        be_quick(pace, time, 2 * QUICK_FOR_SLOW)
        pace.note_here(SLOW_SECONDS * 1.01)
    be_quick(pace, time, 1)
    pace.note_here(SLOW_SECONDS * 1.01)
    time.now += 1
    assert hope_needed(pace) == 2 * TRUST_MIN
    pace.note_here(SLOW_SECONDS * 1.01)
    time.now += 1
    assert hope_needed(pace) == 4 * TRUST_MIN


def test_one_that_is_not_quick_is_forgiven_and_many_are_not() -> None:
    time = Time()
    pace = pace_of(time)
    hope(pace, TRUST_MIN)
    pace.note_here(SLOW_SECONDS)
    time.now += 1
    assert pace.allows(1)
    for _ in range(100):
        pace.note_here(2 * QUICK_SECONDS)
    time.now += 1
    assert not pace.allows(1)
