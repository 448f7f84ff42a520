"""The order of many transfers: one sends after the other, and other tasks run between two turns."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

PIECE_BYTES = 4 * 1024 * 1024
"""The most bytes that go into a socket before other transfers get their turn."""
TURN_BYTES = 4 * 1024 * 1024
"""Bytes that all transfers together send in one iteration of the loop, or a little more. Then other requests run."""
LEAST_PIECE_BYTES = 64 * 1024
"""The least size of a piece in the count. So many sockets that take little do not make a turn long either."""


class QueuedTransfer(Protocol):
    """A transfer whose socket takes more bytes."""

    def take_turn(self) -> int:
        """Send a piece, queue again unless the transfer must wait, and return the number of bytes that were sent."""


class TransferTurns:
    """The transfers of one server that are neither over nor waiting for their sockets, in order.

    Few large pieces cost less than many small ones. So a turn has few transfers with large pieces.

    Thread: the event loop's.
    """

    def __init__(self) -> None:
        self._queue: deque[QueuedTransfer] = deque()
        self._is_scheduled = False
        self.unfinished_count = 0
        """The number of transfers that did not end with their first piece and have not ended since."""

    def first_piece_bytes(self, size_bytes: int) -> int:
        """Return the bytes that a transfer of ``size_bytes`` may send before it queues.

        In a crowd they are few, because all transfers may begin in the same iteration. They are 0 if other transfers
        are queued and this one must also queue, as it then sends fewer pieces.

        Example: the first of all transfers may send 4 MiB, the first piece beside 15 unfinished ones has 256 KiB.
        """
        first_bytes = max(LEAST_PIECE_BYTES, min(PIECE_BYTES, TURN_BYTES // (self.unfinished_count + 1)))
        return 0 if self._queue and size_bytes > first_bytes else first_bytes

    def queue(self, loop: asyncio.AbstractEventLoop, transfer: QueuedTransfer) -> None:
        """Give ``transfer`` a turn after all transfers that are queued."""
        self._queue.append(transfer)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._begin_turn, loop)

    def leave(self, transfer: QueuedTransfer) -> None:
        """Remove a queued transfer."""
        self._queue.remove(transfer)

    def _begin_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        queue, left_bytes = self._queue, TURN_BYTES
        try:
            while queue and left_bytes > 0:
                left_bytes -= max(LEAST_PIECE_BYTES, queue.popleft().take_turn())
        finally:
            # The other transfers go on, also if one has failed.
            self._is_scheduled = bool(queue)
            if queue:
                loop.call_soon(self._begin_turn, loop)
