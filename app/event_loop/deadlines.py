"""Very many deadlines, most of which never come: setting one and dropping one cost the same for any number of them."""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

GRAIN_MS = 8
"""A deadline comes up to this much later than it was set for, together with its neighbours, and never earlier."""


class Timed(Protocol):
    """A thing with a deadline."""

    deadline: dict[Timed, None] | None
    """All that come together with it; ``None`` while it has no deadline. Only ``Deadlines`` sets it."""


Item = TypeVar("Item", bound=Timed)


class Deadlines(Generic[Item]):
    """Calls ``arrived`` with all things whose deadline has come, the earliest set first.

    Deadlines that come in the same ``GRAIN_MS`` share a dictionary, and all dictionaries a timer of the loop.

    Thread: the event loop's.
    """

    def __init__(
        self, arrived: Callable[[Iterable[Item]], object], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._arrived = arrived
        self._clock = clock
        self._sets: dict[int, dict[Item, None]] = {}
        # The keys of the sets, a heap.
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0

    def set(self, item: Item, wait_ms: float) -> None:
        """Give ``item``, which has no deadline, one in ``wait_ms`` from now."""
        tick = math.ceil((self._clock() * 1000 + max(0.0, wait_ms)) / GRAIN_MS)
        deadline = self._sets.get(tick)
        if deadline is None:
            deadline = self._sets[tick] = {}
            heapq.heappush(self._ticks, tick)
            self._set_timer()
        deadline[item] = None
        item.deadline = deadline  # type: ignore[assignment]

    def drop(self, item: Item) -> None:
        """Take the deadline of ``item`` away, if it has one."""
        deadline, item.deadline = item.deadline, None
        if deadline is not None:
            del deadline[item]

    def close(self) -> None:
        """Drop all deadlines."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._ticks.clear()
        while self._sets:
            for item in self._sets.popitem()[1]:
                item.deadline = None

    def _set_timer(self) -> None:
        """Set the timer to the earliest deadline."""
        if self._timer is not None:
            if self._timer_tick <= self._ticks[0]:
                return
            self._timer.cancel()
        self._timer_tick = self._ticks[0]
        wait_seconds = max(0.0, self._timer_tick * GRAIN_MS / 1000 - self._clock())
        self._timer = asyncio.get_running_loop().call_later(wait_seconds, self._look)

    def _look(self) -> None:
        """Report what has come, and wait for the rest."""
        self._timer = None
        now_ms = self._clock() * 1000
        while self._ticks and self._ticks[0] * GRAIN_MS <= now_ms:
            arrived = self._sets.pop(heapq.heappop(self._ticks))
            for item in arrived:
                item.deadline = None
            if arrived:
                self._arrived(arrived)
        if self._ticks:
            self._set_timer()
