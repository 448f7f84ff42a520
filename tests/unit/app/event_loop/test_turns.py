"""What a crowd brings on is done a few at a time, with turns of the loop for everybody else between."""

from __future__ import annotations

import asyncio
from functools import partial

import uvloop

from app.event_loop.turns import Turns
from tests.support.writers import eventually

PER_TURN = 4
CROWD = 10 * PER_TURN


def test_a_crowd_takes_turns_and_others_have_theirs() -> None:
    done: list[int] = []
    counts: list[int] = []

    async def scenario() -> None:
        loop, turns = asyncio.get_running_loop(), Turns(PER_TURN)
        for number in range(CROWD):
            turns.take(loop, partial(done.append, number))
        counts.append(len(done))
        while len(turns):
            before = len(done)
            await asyncio.sleep(0)
            counts.append(len(done) - before)

    uvloop.run(scenario())
    assert done == list(range(CROWD))
    assert max(counts) == PER_TURN
    assert len(counts) >= CROWD // PER_TURN


def test_one_alone_has_its_turn_at_once() -> None:
    done: list[int] = []

    async def scenario() -> None:
        loop, turns = asyncio.get_running_loop(), Turns(1)
        for number in range(3):
            turns.take(loop, partial(done.append, number))
            assert done == list(range(number + 1))
            # Two turns of the loop: in the first one its turn ends.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    uvloop.run(scenario())


def test_those_of_a_turn_count_with_those_that_waited() -> None:
    done: list[int] = []

    async def scenario() -> None:
        loop, turns = asyncio.get_running_loop(), Turns(2)
        for number in range(3):
            turns.take(loop, partial(done.append, number))
        loop.call_soon(turns.take, loop, partial(done.append, 3))
        loop.call_soon(turns.take, loop, partial(done.append, 4))
        await asyncio.sleep(0)
        # Number 2 had waited, 3 came in the turn that it was done in; there is no room for 4.
        assert done == [0, 1, 2, 3]
        await eventually(lambda: not len(turns))

    uvloop.run(scenario())
    assert done == [0, 1, 2, 3, 4]


def test_one_that_fails_holds_up_nobody() -> None:
    done: list[int] = []
    errors: list[object] = []

    def fail() -> None:
        raise RuntimeError("planted")

    async def scenario() -> None:
        loop, turns = asyncio.get_running_loop(), Turns(1)
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        turns.take(loop, partial(done.append, 0))
        turns.take(loop, fail)
        turns.take(loop, partial(done.append, 1))
        await eventually(lambda: not len(turns))
        # Others come later.
        turns.take(loop, partial(done.append, 2))
        await eventually(lambda: len(done) == 3)

    uvloop.run(scenario())
    assert (done, len(errors)) == ([0, 1, 2], 1)


def test_one_that_comes_from_another_waits_behind_those_before_it() -> None:
    done: list[str] = []

    async def scenario() -> None:
        loop, turns = asyncio.get_running_loop(), Turns(1)

        def second() -> None:
            done.append("second")
            turns.take(loop, partial(done.append, "fourth"))

        turns.take(loop, partial(done.append, "first"))
        turns.take(loop, second)
        turns.take(loop, partial(done.append, "third"))
        await eventually(lambda: not len(turns))

    uvloop.run(scenario())
    assert done == ["first", "second", "third", "fourth"]
