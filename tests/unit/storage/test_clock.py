"""Clocks."""

from __future__ import annotations

import time

import pytest

from storage.clock import Clock, ManualClock, SystemClock


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
