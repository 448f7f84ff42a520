"""Deadlines come in time, each once, and those that were dropped do not come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.event_loop.deadlines import GRAIN_MS, Deadlines


class ManualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose time moves when the test says so."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Thing:
    deadline: Any = None


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(0, 200)),
            st.tuples(st.just("drop"), st.integers(0, 30)),
            st.tuples(st.just("pass"), st.integers(1, 90)),
        ),
        max_size=40,
    )
)
@settings(deadline=None)
def test_each_comes_once_never_early_and_no_later_than_a_grain(steps: list[tuple[str, int]]) -> None:
    loop = ManualTimeLoop()
    arrived: list[tuple[Thing, float]] = []

    def arrive(things: Iterable[Thing]) -> None:
        arrived.extend((thing, loop.now * 1000) for thing in things)

    deadlines: Deadlines[Thing] = Deadlines(arrive, clock=loop.time)
    due: dict[Thing, float] = {}
    dropped: set[Thing] = set()
    things: list[Thing] = []

    async def run(step: str, number: int) -> None:
        if step == "set":
            things.append(Thing())
            deadlines.set(things[-1], number)
            due[things[-1]] = loop.now * 1000 + number
        elif step == "drop" and number < len(things):
            if things[number].deadline is not None:
                dropped.add(things[number])
            deadlines.drop(things[number])
        else:
            # Millisecond by millisecond, so that it shows how late each comes.
            for _ in range(number):
                loop.now += 0.001
                for _ in range(3):
                    await asyncio.sleep(0)

    for step, number in [*steps, ("pass", 200 + 2 * GRAIN_MS)]:
        loop.run_until_complete(run(step, number))
    loop.close()
    assert {thing for thing, _ in arrived} == due.keys() - dropped
    assert len(arrived) == len(due) - len(dropped)
    for thing, at in arrived:
        assert due[thing] - 0.001 <= at <= due[thing] + GRAIN_MS + 2
        assert thing.deadline is None


def test_ten_thousand_share_a_timer_and_leave_nothing_behind() -> None:
    loop = ManualTimeLoop()
    timers: list[float] = []
    deadlines: Deadlines[Thing] = Deadlines(lambda _: None, clock=loop.time)

    async def run() -> None:
        things = [Thing() for _ in range(10_000)]
        for number, thing in enumerate(things):
            deadlines.set(thing, 60_000 - number % 1000)
        # One timer at a time, and a new one only for an earlier deadline.
        timers.extend(handle.when() for handle in loop._scheduled if not handle.cancelled())  # type: ignore[attr-defined]
        for thing in things:
            deadlines.drop(thing)
        deadlines.close()
        assert all(thing.deadline is None for thing in things)

    loop.run_until_complete(run())
    assert len(timers) == 1
    assert not [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
    loop.close()
