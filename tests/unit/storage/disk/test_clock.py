"""Clocks."""

from __future__ import annotations

import time

import pytest

from log_model.clock import SETTLING_MS, Ages, Clock, ManualClock, ProtectedClock, SystemClock


def test_the_machines_clock_tells_milliseconds():
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_elapsed_time_never_goes_back():
    clock = SystemClock()
    readings = [clock.elapsed_ms() for _ in range(1000)]
    assert readings == sorted(readings)
    assert all(isinstance(reading, int) for reading in readings)


def test_a_manual_clock_stands_still_until_told():
    clock: Clock = ManualClock(now_ms=5000)
    assert [clock.now_ms(), clock.now_ms(), clock.elapsed_ms()] == [5000, 5000, 0]


def test_advancing_moves_both_clocks():
    clock = ManualClock(now_ms=5000)
    clock.advance(250)
    clock.advance(0)
    assert (clock.now_ms(), clock.elapsed_ms()) == (5250, 250)


def test_jumping_moves_the_wall_clock_alone():
    clock = ManualClock(now_ms=5000)
    clock.jump(-3000)
    assert (clock.now_ms(), clock.elapsed_ms()) == (2000, 0)
    clock.jump(86_400_000)
    assert (clock.now_ms(), clock.elapsed_ms()) == (86_402_000, 0)


def test_time_does_not_advance_backwards():
    clock = ManualClock()
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
    assert clock.elapsed_ms() == 0


DAY_MS = 86_400_000


@pytest.mark.parametrize("step_ms", [-3_600_000, 2 * DAY_MS, 3 * DAY_MS, 30 * DAY_MS, 365 * DAY_MS])
def test_the_protected_clock_goes_by_elapsed_time_over_a_step_and_back(step_ms):
    clock = ManualClock()
    protected = ProtectedClock(clock)
    began_ms = protected.now_ms()
    clock.jump(step_ms)
    clock.advance(5000)
    assert protected.now_ms() <= began_ms + 5000
    clock.jump(-step_ms)
    assert protected.now_ms() == began_ms + 5000


def test_the_protected_clock_follows_small_corrections():
    clock = ManualClock()
    protected = ProtectedClock(clock)
    for _ in range(100):
        clock.jump(300_000)
        assert protected.now_ms() == clock.now_ms()


def test_a_clock_that_was_never_set_is_corrected_once_it_has_gone_right_for_a_day():
    clock = ManualClock(now_ms=60_000)
    protected = ProtectedClock(clock)
    assert protected.now_ms() == 60_000
    clock.jump(1_700_000_000_000)
    assert protected.now_ms() == 60_000
    clock.advance(DAY_MS - 1)
    # Another correction: the day begins again.
    clock.jump(DAY_MS)
    assert protected.now_ms() == DAY_MS + 59_999
    clock.advance(DAY_MS - 1)
    assert protected.now_ms() == 2 * DAY_MS + 59_998
    clock.advance(1)
    assert protected.now_ms() == clock.now_ms()
    # It is set now: another step forward is not believed.
    clock.jump(DAY_MS)
    clock.advance(2 * DAY_MS)
    assert protected.now_ms() == clock.now_ms() - DAY_MS


def test_what_is_noted_ages_with_elapsed_time_alone():
    clock = ManualClock()
    ages: Ages[str] = Ages(ProtectedClock(clock))
    assert ages.age_ms("a") == 0
    ages.note("a")
    for step_ms in (365 * DAY_MS, -400 * DAY_MS, 1):
        clock.jump(step_ms)
        clock.advance(1000)
    assert (ages.age_ms("a"), ages.is_restored("a")) == (3000, False)
    ages.note("a")
    assert ages.age_ms("a") == 0
    ages.forget("a")
    clock.advance(1000)
    assert ages.age_ms("a") == 0


def test_what_is_restored_is_as_old_as_it_was_once_the_clock_had_time_to_settle():
    clock = ManualClock()
    ages: Ages[str] = Ages(ProtectedClock(clock))
    ages.restore("yesterday", clock.now_ms() - DAY_MS)
    ages.restore("tomorrow", clock.now_ms() + DAY_MS)
    ages.restore("1970", 60_000)
    clock.advance(SETTLING_MS - 1)
    assert [ages.age_ms(name) for name in ("yesterday", "tomorrow", "1970")] == [SETTLING_MS - 1] * 3
    clock.advance(1)
    assert [ages.age_ms(name) for name in ("yesterday", "tomorrow", "1970")] == [
        DAY_MS + SETTLING_MS,
        SETTLING_MS,
        SETTLING_MS,
    ]
    ages.note("yesterday")
    clock.advance(7)
    assert ages.age_ms("yesterday") == 7


def test_a_start_with_a_clock_two_days_ahead_ages_nothing_when_it_comes_back():
    clock = ManualClock()
    written_ms = clock.now_ms()
    clock.jump(2 * DAY_MS)
    ages: Ages[str] = Ages(ProtectedClock(clock))
    ages.restore("a", written_ms)
    clock.advance(5000)
    clock.jump(-2 * DAY_MS)
    clock.advance(SETTLING_MS)
    assert ages.age_ms("a") == SETTLING_MS + 5000
