"""Long lists on the event loop: a piece at a time, with turns of the loop for everybody else between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

PIECE_COUNT = 256
"""What is done with each thing may take ten microseconds, as a look into access rules does."""

Item = TypeVar("Item")


async def pieces(items: Iterable[Item], count: int = PIECE_COUNT) -> AsyncGenerator[list[Item], None]:
    """All of ``items``, so many at a time. Others run between two pieces: ``items`` must not mind what they change."""
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
