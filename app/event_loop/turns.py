"""Bursts of small tasks, spread over several iterations of the event loop, so that other work runs in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """A queue of work that may come hundreds at a time. One iteration of the loop does at most ``per_turn`` of it.

    Connections that came together are late together, and requests that came together begin together. Each takes a
    millisecond or less. All of them in one iteration would stall other clients.

    Thread: the event loop's.
    """

    def __init__(self, per_turn: int) -> None:
        self._per_turn = per_turn
        self._waiting: deque[Callable[[], object]] = deque()
        self._done_in_turn = 0
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, loop: asyncio.AbstractEventLoop, work: Callable[[], object]) -> None:
        """Do ``work`` now if this iteration has room and no other work waits, else in one of the next iterations."""
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._begin_turn, loop)
        if self._waiting or self._done_in_turn >= self._per_turn:
            self._waiting.append(work)
        else:
            self._done_in_turn += 1
            work()

    async def enter(self) -> None:
        """Return when it is the caller's turn: at once if this iteration has room and no other work waits."""
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[None] = loop.create_future()
        self.take(loop, lambda: None if entered.done() else entered.set_result(None))
        await entered

    def _begin_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._done_in_turn = 0
        try:
            while self._waiting and self._done_in_turn < self._per_turn:
                self._done_in_turn += 1
                self._waiting.popleft()()
        finally:
            self._is_scheduled = bool(self._done_in_turn)
            if self._is_scheduled:
                loop.call_soon(self._begin_turn, loop)
