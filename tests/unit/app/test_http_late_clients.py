"""A crowd that is late at one time is looked at a few in each turn of the loop."""

from __future__ import annotations

import asyncio
from functools import partial

import uvloop

from app.http.late_clients import PER_TURN, LateClients
from tests.writers import eventually

CROWD = 10 * PER_TURN


def test_a_crowd_takes_turns_and_others_have_theirs() -> None:
    seen: list[int] = []
    counts: list[int] = []

    async def scenario() -> None:
        loop, late = asyncio.get_running_loop(), LateClients()
        for number in range(CROWD):
            late.add(loop, partial(seen.append, number))
        while len(late):
            before = len(seen)
            await asyncio.sleep(0)
            counts.append(len(seen) - before)

    uvloop.run(scenario())
    assert seen == list(range(CROWD))
    assert max(counts) <= PER_TURN
    assert len(counts) >= CROWD // PER_TURN


def test_one_that_fails_holds_up_nobody() -> None:
    seen: list[int] = []
    errors: list[object] = []

    def fail() -> None:
        raise RuntimeError("planted")

    async def scenario() -> None:
        loop, late = asyncio.get_running_loop(), LateClients()
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        late.add(loop, fail)
        late.add(loop, partial(seen.append, 1))
        await eventually(lambda: not len(late))
        # Others come later.
        late.add(loop, partial(seen.append, 2))
        await eventually(lambda: not len(late))

    uvloop.run(scenario())
    assert (seen, len(errors)) == ([1, 2], 1)


def test_one_that_comes_meanwhile_waits_for_its_turn() -> None:
    seen: list[str] = []

    async def scenario() -> None:
        loop, late = asyncio.get_running_loop(), LateClients()

        def first() -> None:
            seen.append("first")
            late.add(loop, partial(seen.append, "third"))

        late.add(loop, first)
        late.add(loop, partial(seen.append, "second"))
        await eventually(lambda: not len(late))

    uvloop.run(scenario())
    assert seen == ["first", "second", "third"]
