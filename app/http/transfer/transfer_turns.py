"""Who of many transfers sends next: one after the other, so much in a turn of the loop, with everybody else between."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

PIECE_BYTES = 4 * 1024 * 1024
"""What goes into a socket before other transfers get their turn, at most."""
TURN_BYTES = 4 * 1024 * 1024
"""What all transfers together send in one turn of the loop, or a little more: then other requests have theirs."""
LEAST_PIECE_BYTES = 64 * 1024
"""A transfer that sends less counts as much: sockets that take little must not make a turn long either."""


class QueuedTransfer(Protocol):
    """A transfer whose socket takes more."""

    def take_turn(self) -> int:
        """Send a piece, and queue again unless there is something to wait for; how many bytes were sent."""
        ...


class TransferTurns:
    """The transfers of one server that are neither over nor waiting for their sockets, in order.

    Few large pieces cost less than many small ones, so the transfers of a turn are few, not their pieces small.

    Thread: the event loop's.
    """

    def __init__(self) -> None:
        self._queue: deque[QueuedTransfer] = deque()
        self._is_scheduled = False
        self.unfinished_count = 0
        """Transfers that did not end with their first piece, and not since."""

    def first_piece_bytes(self, size_bytes: int) -> int:
        """What a transfer of so much sends before it queues: in a crowd all of them may begin in the same turn.

        Nothing, if others are queued and it must queue, too: it sends so in fewer pieces.
        """
        first_bytes = max(LEAST_PIECE_BYTES, min(PIECE_BYTES, TURN_BYTES // (self.unfinished_count + 1)))
        return 0 if self._queue and size_bytes > first_bytes else first_bytes

    def queue(self, loop: asyncio.AbstractEventLoop, transfer: QueuedTransfer) -> None:
        """Let ``transfer`` take its turn when those before it had theirs."""
        self._queue.append(transfer)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._begin_turn, loop)

    def leave(self, transfer: QueuedTransfer) -> None:
        """Forget a transfer that is queued."""
        self._queue.remove(transfer)

    def _begin_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        queue, left_bytes = self._queue, TURN_BYTES
        try:
            while queue and left_bytes > 0:
                left_bytes -= max(LEAST_PIECE_BYTES, queue.popleft().take_turn())
        finally:
            # Whatever one of them came to, the others go on.
            self._is_scheduled = bool(queue)
            if queue:
                loop.call_soon(self._begin_turn, loop)
