"""Whether an fsync may be waited for on the event loop.

A thread that waits for a disk costs its way there and back, some hundred microseconds of processor with everything else
that runs. Where the disk answers in less than that (it has a cache that survives a power cut, or is one), the loop had
better wait itself. Elsewhere, or once such a disk has been slow, never.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

QUICK_SECONDS = 0.0005
"""What an fsync on the loop may take, on average."""
SLOW_SECONDS = 0.002
"""One that took longer has held up everybody."""
HOPEFUL_SECONDS = 0.0015
"""An fsync in a thread that took no longer may have been quick: some of that time is the thread's way back."""
HOPELESS_WEIGHT = 4
"""Any other takes the hope from so many."""
TRUST_MIN, TRUST_MAX = 64, 1 << 20
"""So much hope it takes to wait for one on the loop, and twice as much each time that this was a mistake."""
BYTES_MAX = 256 * 1024
"""The fsync of more bytes than this takes any disk its time."""
LOOP_SHARE = 0.5
"""Of any stretch of the loop's time, no more is waited for the disk."""

_STRETCH_SECONDS = 0.004
_REMEMBERED = 32


class FlushPace:
    """One for all partitions, as the disk is. An fsync of at most ``bytes_max`` bytes is waited for on the loop.

    Thread: the event loop's.
    """

    def __init__(self, bytes_max: int, clock: Callable[[], float] = perf_counter) -> None:
        self._bytes_max = min(bytes_max, BYTES_MAX)
        self._clock = clock
        self._hopeful_count = 0
        self._needed_count = TRUST_MIN
        self._quick_count = 0
        self._mean_seconds = 0.0
        self._stretch_began = 0.0
        self._spent_seconds = 0.0

    def allows(self, size_bytes: int) -> bool:
        """Whether the fsync of so many new bytes may be waited for here."""
        if size_bytes > self._bytes_max or self._hopeful_count < self._needed_count:
            return False
        now = self._clock()
        if now - self._stretch_began >= _STRETCH_SECONDS:
            self._stretch_began, self._spent_seconds = now, 0.0
        return self._spent_seconds < LOOP_SHARE * _STRETCH_SECONDS

    def note_in_thread(self, seconds: float) -> None:
        """An fsync in a thread took so long."""
        hope = self._hopeful_count + (1 if seconds <= HOPEFUL_SECONDS else -HOPELESS_WEIGHT)
        # What was hopeful long ago does not make up for what is not now.
        self._hopeful_count = min(max(0, hope), self._needed_count)

    def note_here(self, seconds: float) -> None:
        """An fsync on the loop took so long."""
        self._spent_seconds += seconds
        self._mean_seconds += (seconds - self._mean_seconds) / _REMEMBERED
        if seconds > SLOW_SECONDS or self._mean_seconds > QUICK_SECONDS:
            self._hopeful_count = self._quick_count = 0
            self._mean_seconds = 0.0
            self._needed_count = min(TRUST_MAX, 2 * self._needed_count)
            return
        self._quick_count += 1
        if self._quick_count >= 64 * self._needed_count:
            # It has been good for long.
            self._quick_count = 0
            self._needed_count = max(TRUST_MIN, self._needed_count // 2)
