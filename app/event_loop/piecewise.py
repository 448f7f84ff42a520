"""Long lists on the event loop, handled a piece at a time, so that other tasks run between two pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

PIECE_COUNT = 256
"""Items of one piece. An item may take ten microseconds, as a look into access rules does."""

BEGUN_COUNT = 32
"""Awaitables that begin in one iteration of the loop. Each may take a hundred microseconds, as an append does."""

Item = TypeVar("Item")
Result = TypeVar("Result")


async def pieces(items: Iterable[Item], count: int = PIECE_COUNT) -> AsyncGenerator[list[Item], None]:
    """Yield all of ``items`` in lists of at most ``count``.

    Other tasks run between two lists. The iterator of ``items`` must tolerate the changes that they make.
    """
    rest = iter(items)
    while piece := list(islice(rest, count)):
        yield piece
        await asyncio.sleep(0)


async def smallest(
    items: Iterable[Item], limit: int, key: Callable[[Item], Any], is_wanted: Callable[[Item], bool]
) -> list[Item]:
    """Return the ``limit`` smallest wanted items, sorted. Other tasks run in between, see ``pieces``.

    ``limit`` is at least 1, and the keys are unique. ``is_wanted`` is called only for items that may be among the
    smallest.
    """
    found: list[Item] = []
    async for piece in pieces(items):
        bound = key(found[-1]) if len(found) == limit else None
        fresh = [item for item in piece if (bound is None or key(item) < bound) and is_wanted(item)]
        if fresh:
            found = sorted([*found, *fresh], key=key)[:limit]
    return found


async def all_in_turns(work: Iterable[Awaitable[Result]], count: int = BEGUN_COUNT) -> list[Result]:
    """Return all results in order. At most ``count`` awaitables begin in one iteration of the loop.

    The first failure is raised, and the other awaitables go on. They are cancelled if the caller is cancelled.
    """
    begun: list[asyncio.Future[Result]] = []
    try:
        async for piece in pieces(work, count):
            begun += map(asyncio.ensure_future, piece)
    except BaseException:
        for each in begun:
            each.cancel()
        raise
    return await asyncio.gather(*begun)
