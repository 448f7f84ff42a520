"""Kafka's sampled rate of the last seconds, from which throttle times follow (spec D4)."""

from __future__ import annotations

from collections import deque

SAMPLE_COUNT = 11
"""Kafka's ``quota.window.num``."""
WINDOW_MS = 1_000
"""Kafka's ``quota.window.size.seconds``."""
THROTTLE_MS_MAX = 2**31 - 1
"""The longest wait that fits into Kafka's 32 bits: 24 days."""


class SampledRate:
    """A rate per second over the last eleven windows of one second, the newest of them still growing.

    A window begins with the first event after the end of the previous window. The measured time counts as at least ten
    full windows, so that a single event after an idle time is no burst.

    Thread: one at a time. Times are in milliseconds, of a clock that never goes back.
    """

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: deque[list[float]] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """Add ``value``. A negative value takes back an earlier one."""
        if not self._windows or now_ms - self._windows[-1][0] >= WINDOW_MS:
            self._windows.append([now_ms, 0.0])
            if len(self._windows) > SAMPLE_COUNT:
                self._windows.popleft()
        self._windows[-1][1] += value

    def measure(self, now_ms: int) -> float:
        """Return the rate per second."""
        total, elapsed_ms = self._total(now_ms)
        return total * 1000 / elapsed_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return the milliseconds without events until the rate falls to ``bound`` per second; 0 if it is not above.

        The result is never above ``THROTTLE_MS_MAX``, however small ``bound`` is: the charged events have happened
        already.
        """
        total, elapsed_ms = self._total(now_ms)
        rate = total * 1000 / elapsed_ms
        return round(min((rate - bound) / bound * elapsed_ms, THROTTLE_MS_MAX)) if rate > bound else 0

    def _total(self, now_ms: int) -> tuple[float, int]:
        self._forget(now_ms)
        elapsed_ms = now_ms - int(self._windows[0][0]) if self._windows else 0
        full_count = elapsed_ms // WINDOW_MS
        elapsed_ms += max(0, SAMPLE_COUNT - 1 - full_count) * WINDOW_MS
        return sum(value for _, value in self._windows), elapsed_ms

    def _forget(self, now_ms: int) -> None:
        while self._windows and now_ms - self._windows[0][0] >= SAMPLE_COUNT * WINDOW_MS:
            self._windows.popleft()
