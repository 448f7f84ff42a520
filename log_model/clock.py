"""Time as a parameter: the engine never reads the machine's clock itself."""

from __future__ import annotations

import time
from typing import Generic, Protocol, TypeVar

CLOCK_JUMP_MS = 600_000
"""Largest difference between wall time and elapsed time that is not a step, in milliseconds."""
SETTLING_MS = 3_600_000
"""How long after the start the timestamps of an earlier run are not compared with the wall clock."""
EARLIEST_MS = 1_577_836_800_000
"""2020-01-01. An earlier reading comes from a clock that was never set."""

CORRECTION_MS = 86_400_000
"""How long a corrected clock must agree with elapsed time, before its readings lead to a deletion."""

Key = TypeVar("Key")


class Clock(Protocol):
    """Wall time for timestamps, elapsed time for waiting."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch. May jump either way."""

    def elapsed_ms(self) -> int:
        """Return milliseconds since a fixed moment. Never decreases; counts the time that the machine sleeps."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class ManualClock:
    """A clock that moves only by calls; for tests and simulations."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def elapsed_ms(self) -> int:
        return self._elapsed_ms

    def advance(self, ms: int) -> None:
        """Move both clocks by ``ms`` milliseconds."""
        if ms < 0:
            raise ValueError("time does not go back; use jump() to move the wall clock")
        self._now_ms += ms
        self._elapsed_ms += ms

    def jump(self, ms: int) -> None:
        """Move the wall clock alone, as a wrong time server would."""
        self._now_ms += ms


class ProtectedClock:
    """A wall clock that ignores steps, and an elapsed clock; for everything that expires.

    ``now_ms`` follows the wall clock while it agrees with elapsed time to within ten minutes. After a larger step
    forward it follows elapsed time, until the wall clock returns or the service restarts. If the first reading came
    from a clock that was never set (a machine that boots in 1970), the corrected time is used after a day.

    Example: two days ahead for five seconds, then back. ``now_ms`` grows by 5,000 meanwhile, as ``elapsed_ms`` does.

    Thread: any.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_ms = clock.elapsed_ms()
        self._anchor = self._correction = (clock.now_ms(), self._started_ms)

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, never ahead of the truth because of a step alone."""
        now_ms, elapsed_ms = self._clock.now_ms(), self._clock.elapsed_ms()
        expected_ms = _read_on(self._anchor, elapsed_ms)
        if abs(now_ms - expected_ms) <= CLOCK_JUMP_MS or (
            expected_ms < EARLIEST_MS <= now_ms and self._is_corrected(now_ms, elapsed_ms)
        ):
            self._anchor = (now_ms, elapsed_ms)
            return now_ms
        return min(expected_ms, now_ms)

    def _is_corrected(self, now_ms: int, elapsed_ms: int) -> bool:
        """Return whether a clock that was never set has been set, and has agreed with elapsed time for a day since."""
        if abs(now_ms - _read_on(self._correction, elapsed_ms)) > CLOCK_JUMP_MS:
            self._correction = (now_ms, elapsed_ms)
        return elapsed_ms - self._correction[1] >= CORRECTION_MS

    def elapsed_ms(self) -> int:
        """Return milliseconds since a fixed moment of this run. Steps of the wall clock do not change it."""
        return self._clock.elapsed_ms()

    def age_ms(self, timestamp_ms: int) -> int:
        """Return the age of a wall-clock timestamp that an earlier run wrote; 0 if the age is unknown.

        The age is unknown in the first hour after the start, which leaves time to correct a wrong wall clock. It is
        also unknown for timestamps before 2020 and in the future.
        """
        if self.elapsed_ms() - self._started_ms < SETTLING_MS or timestamp_ms < EARLIEST_MS:
            return 0
        return max(0, self.now_ms() - timestamp_ms)


def _read_on(anchor: tuple[int, int], elapsed_ms: int) -> int:
    """Return the reading that the wall clock would have now, had it run on from ``anchor``."""
    return anchor[0] + elapsed_ms - anchor[1]


class Ages(Generic[Key]):
    """The elapsed time since the last event of each of many keys.

    An event of this run ages with elapsed time alone. An event of an earlier run is restored with its wall-clock
    timestamp. From then on it ages with elapsed time, and is older only if ``ProtectedClock.age_ms`` says so. Example:
    a key restored with a timestamp of yesterday is 0 ms old at first. An hour later it is a day and an hour old.

    Thread: one.
    """

    def __init__(self, clock: ProtectedClock) -> None:
        self._clock = clock
        self._since: dict[Key, int] = {}
        self._written: dict[Key, int] = {}

    def note(self, key: Key) -> None:
        """Record an event of ``key`` now."""
        self._written.pop(key, None)
        self._since[key] = self._clock.elapsed_ms()

    def restore(self, key: Key, timestamp_ms: int) -> None:
        """Record an event of an earlier run, which wrote this wall-clock timestamp."""
        self._since[key] = self._clock.elapsed_ms()
        self._written[key] = timestamp_ms

    def forget(self, key: Key) -> None:
        """Remove ``key``, if it is there."""
        self._since.pop(key, None)
        self._written.pop(key, None)

    def is_restored(self, key: Key) -> bool:
        """Return whether the last event of ``key`` is from an earlier run."""
        return key in self._written

    def age_ms(self, key: Key) -> int:
        """Return the milliseconds since the last event of ``key``; 0 if there was none."""
        since_ms = self._since.get(key)
        if since_ms is None:
            return 0
        elapsed_ms = self._clock.elapsed_ms() - since_ms
        written_ms = self._written.get(key)
        return elapsed_ms if written_ms is None else max(elapsed_ms, self._clock.age_ms(written_ms))
