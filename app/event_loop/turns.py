"""What a crowd brings on takes turns on the loop, with everybody else between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """Work that may come hundreds at a time, in order: so many of it are done in one turn of the loop.

    Connections that came together are late together, and requests that came together begin together: each is a
    millisecond or less, and all of them would be a stall for an honest client.

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
        """Do ``work``: now, if few others were done in this turn and none waits; else in a turn that comes soon."""
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._begin_turn, loop)
        if self._waiting or self._done_in_turn >= self._per_turn:
            self._waiting.append(work)
        else:
            self._done_in_turn += 1
            work()

    async def enter(self) -> None:
        """Return when it is the caller's turn: at once, if few others had theirs in this turn and none waits."""
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
