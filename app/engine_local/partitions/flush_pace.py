"""The decision whether the event loop itself waits for an fsync.

The hop to a thread and back costs some hundred microseconds of processor with everything else that runs. If the disk
needs less (it has a cache that survives a power cut, or is one), it is cheaper to wait on the loop. On other disks the
loop never waits. A disk that is slow now and then is not such a disk: each takes longer while it also writes segments.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

QUICK_SECONDS = 0.0005
"""Limit on the mean time of an fsync on the loop."""
SLOW_SECONDS = 0.002
"""An fsync on the loop that takes longer has held up all requests."""
QUICK_FOR_SLOW = 512
"""Quick fsyncs on the loop since the last slow one that make up for another of ``SLOW_SECONDS``; for one that takes ten
times as long, ten times as many. At 4,000 fsyncs a second the loop so loses 2 % of its time to slow ones at most."""
HOPEFUL_SECONDS = 0.0015
"""An fsync in a thread that takes no longer may have been quick: the hop back is part of that time."""
HOPELESS_WEIGHT = 4
"""Number of quick fsyncs in threads that one slow fsync cancels."""
TRUST_MIN, TRUST_MAX = 64, 1 << 20
"""Quick fsyncs in threads that it takes before the loop waits for one. Each mistake doubles the number."""
BYTES_MAX = 256 * 1024
"""Bytes above which an fsync takes any disk too long."""
LOOP_SHARE = 0.5
"""Largest share of any stretch of time in which the loop waits for the disk."""

_STRETCH_SECONDS = 0.004
_REMEMBERED = 32


class FlushPace:
    """The decision for the one disk of all partitions. The loop waits for an fsync of at most ``bytes_max`` bytes.

    Thread: the event loop.
    """

    def __init__(self, bytes_max: int, clock: Callable[[], float] = perf_counter) -> None:
        self._bytes_max = min(bytes_max, BYTES_MAX)
        self._clock = clock
        self._hopeful_count = 0
        self._needed_count = TRUST_MIN
        self._quick_count = 0
        self._quick_since_slow = 0
        self._mean_seconds = 0.0
        self._stretch_began = 0.0
        self._spent_seconds = 0.0

    def allows(self, size_bytes: int) -> bool:
        """Return whether the loop may wait for the fsync of this many new bytes."""
        if size_bytes > self._bytes_max or self._hopeful_count < self._needed_count:
            return False
        now = self._clock()
        if now - self._stretch_began >= _STRETCH_SECONDS:
            self._stretch_began, self._spent_seconds = now, 0.0
        return self._spent_seconds < LOOP_SHARE * _STRETCH_SECONDS

    def note_in_thread(self, seconds: float) -> None:
        """Record that an fsync in a thread took this long."""
        hope = self._hopeful_count + (1 if seconds <= HOPEFUL_SECONDS else -HOPELESS_WEIGHT)
        # Quick fsyncs of long ago do not make up for slow ones now.
        self._hopeful_count = min(max(0, hope), self._needed_count)

    def note_here(self, seconds: float) -> None:
        """Record that an fsync on the loop took this long."""
        self._spent_seconds += seconds
        if seconds > SLOW_SECONDS and self._quick_since_slow * SLOW_SECONDS >= QUICK_FOR_SLOW * seconds:
            self._quick_since_slow = 0
            return
        self._mean_seconds += (seconds - self._mean_seconds) / _REMEMBERED
        if seconds > SLOW_SECONDS or self._mean_seconds > QUICK_SECONDS:
            self._hopeful_count = self._quick_count = self._quick_since_slow = 0
            self._mean_seconds = 0.0
            self._needed_count = min(TRUST_MAX, 2 * self._needed_count)
            return
        self._quick_count += 1
        self._quick_since_slow += 1
        if self._quick_count >= 64 * self._needed_count:
            # The disk has been quick for a long time.
            self._quick_count = 0
            self._needed_count = max(TRUST_MIN, self._needed_count // 2)
