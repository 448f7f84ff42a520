"""Long lists on the event loop: a piece at a time, with turns of the loop for everybody else between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

PIECE_COUNT = 256
"""What is done with each thing may take ten microseconds, as a look into access rules does."""

BEGUN_COUNT = 32
"""What is begun for each thing may take a hundred microseconds, as an append does."""

Item = TypeVar("Item")
Result = TypeVar("Result")


async def pieces(items: Iterable[Item], count: int = PIECE_COUNT) -> AsyncGenerator[list[Item], None]:
    """Yield all of ``items`` in lists of at most ``count``. Other tasks run between two lists and may change things, so
    ``items`` must bear that.
    """
    rest = iter(items)
    while piece := list(islice(rest, count)):
        yield piece
        await asyncio.sleep(0)


async def smallest(
    items: Iterable[Item], limit: int, key: Callable[[Item], Any], is_wanted: Callable[[Item], bool]
) -> list[Item]:
    """The ``limit`` smallest of ``items`` that are wanted, one at least, sorted; as ``pieces``. Keys are unique.

    Not asked of what comes behind ``limit`` others anyway is whether it is wanted.
    """
    found: list[Item] = []
    async for piece in pieces(items):
        bound = key(found[-1]) if len(found) == limit else None
        fresh = [item for item in piece if (bound is None or key(item) < bound) and is_wanted(item)]
        if fresh:
            found = sorted([*found, *fresh], key=key)[:limit]
    return found


async def all_in_turns(work: Iterable[Awaitable[Result]], count: int = BEGUN_COUNT) -> list[Result]:
    """What all of these give, in order; ``count`` of them begin in one turn of the loop, as one may take a millisecond.

    Raises what the first of them raises that fails; the others go on. Only when the caller is cancelled all are.
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
