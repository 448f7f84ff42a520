"""Connections whose clients are late: what is done about them takes turns, with everybody else between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

PER_TURN = 16
"""So many are looked at in one turn of the loop: about a millisecond of answers and closing."""


class LateClients:
    """Deadlines that have come, in order. A crowd that came together is late together: hundreds of timers fire at once.

    Thread: the event loop's.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, loop: asyncio.AbstractEventLoop, look: Callable[[], None]) -> None:
        """Call ``look`` soon: it sees whether its client is late still."""
        self._waiting.append(look)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._look_at_some, loop)

    def _look_at_some(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            for _ in range(min(PER_TURN, len(self._waiting))):
                self._waiting.popleft()()
        finally:
            self._is_scheduled = bool(self._waiting)
            if self._is_scheduled:
                loop.call_soon(self._look_at_some, loop)
