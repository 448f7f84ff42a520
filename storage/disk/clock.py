"""Time as a parameter: the engine never asks the machine itself."""

from __future__ import annotations

import time
from typing import Generic, Protocol, TypeVar

CLOCK_JUMP_MS = 600_000
"""A difference between wall time and elapsed time that is believed; a larger one is a step."""
SETTLING_MS = 3_600_000
"""How long after the start times that an earlier run wrote down are not compared with the wall clock."""
EARLIEST_MS = 1_577_836_800_000
"""2020-01-01. A reading before that comes from a clock that was never set."""

CORRECTION_MS = 86_400_000
"""How long a clock that was never set must go right after its correction, before anything is deleted by it."""

Key = TypeVar("Key")


class Clock(Protocol):
    """Wall time for timestamps, elapsed time for everything that waits."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch. May jump either way."""
        ...

    def elapsed_ms(self) -> int:
        """Milliseconds since some fixed moment. Never goes back, counts time asleep."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class ManualClock:
    """A clock that stands still until told otherwise; for tests and simulations."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def elapsed_ms(self) -> int:
        return self._elapsed_ms

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass on both clocks."""
        if ms < 0:
            raise ValueError("time does not go back; use jump() to move the wall clock")
        self._now_ms += ms
        self._elapsed_ms += ms

    def jump(self, ms: int) -> None:
        """Move the wall clock alone, as a wrong time server would."""
        self._now_ms += ms


class ProtectedClock:
    """Wall time that does not believe in steps, and elapsed time; for everything that expires.

    The wall clock is followed while it agrees with elapsed time to within ten minutes. After a larger step forward
    elapsed time counts, until the wall clock comes back or the service is started again. Where the first reading was
    that of a clock that was never set (a machine that boots in 1970), the correction is believed after a day.

    Example: two days ahead for five seconds, then back. ``now_ms`` grows by 5,000 meanwhile, as ``elapsed_ms`` does.

    Thread: any.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_ms = clock.elapsed_ms()
        self._anchor = self._correction = (clock.now_ms(), self._started_ms)

    def now_ms(self) -> int:
        """Milliseconds since the epoch, never ahead of the truth because of a step alone."""
        now_ms, elapsed_ms = self._clock.now_ms(), self._clock.elapsed_ms()
        expected_ms = _read_on(self._anchor, elapsed_ms)
        if abs(now_ms - expected_ms) <= CLOCK_JUMP_MS or (
            expected_ms < EARLIEST_MS <= now_ms and self._is_corrected(now_ms, elapsed_ms)
        ):
            self._anchor = (now_ms, elapsed_ms)
            return now_ms
        return min(expected_ms, now_ms)

    def _is_corrected(self, now_ms: int, elapsed_ms: int) -> bool:
        """Whether a clock that was never set has been, and has agreed with elapsed time since, for long enough."""
        if abs(now_ms - _read_on(self._correction, elapsed_ms)) > CLOCK_JUMP_MS:
            self._correction = (now_ms, elapsed_ms)
        return elapsed_ms - self._correction[1] >= CORRECTION_MS

    def elapsed_ms(self) -> int:
        """Milliseconds since some fixed moment of this run. Steps of the wall clock do not change it."""
        return self._clock.elapsed_ms()

    def age_ms(self, timestamp_ms: int) -> int:
        """How long ago an earlier run wrote down this time by its wall clock; 0 if that cannot be known.

        Nothing is known in the first hour after the start, so that a wall clock that is wrong at the start has time to
        be corrected, nor of times before 2020 and times that are still to come.
        """
        if self.elapsed_ms() - self._started_ms < SETTLING_MS or timestamp_ms < EARLIEST_MS:
            return 0
        return max(0, self.now_ms() - timestamp_ms)


def _read_on(anchor: tuple[int, int], elapsed_ms: int) -> int:
    """What the wall clock would show now, had it gone on from an earlier pair of readings."""
    return anchor[0] + elapsed_ms - anchor[1]


class Ages(Generic[Key]):
    """How long ago something last happened to each of many things, by elapsed time.

    What happens in this run is noted, and ages with elapsed time alone. What an earlier run wrote down is restored with
    its wall-clock time. It ages with elapsed time from then on, and is older only where ``ProtectedClock.age_ms`` says
    so. Example: restored with a time of yesterday, something is 0 ms old at first, and a day and an hour old after an
    hour.

    Thread: one.
    """

    def __init__(self, clock: ProtectedClock) -> None:
        self._clock = clock
        self._since: dict[Key, int] = {}
        self._written: dict[Key, int] = {}

    def note(self, key: Key) -> None:
        """It happens now."""
        self._written.pop(key, None)
        self._since[key] = self._clock.elapsed_ms()

    def restore(self, key: Key, timestamp_ms: int) -> None:
        """It happened in an earlier run, which wrote down this wall-clock time."""
        self._since[key] = self._clock.elapsed_ms()
        self._written[key] = timestamp_ms

    def forget(self, key: Key) -> None:
        """It counts no longer; also if it never did."""
        self._since.pop(key, None)
        self._written.pop(key, None)

    def is_restored(self, key: Key) -> bool:
        """Whether it last happened in an earlier run."""
        return key in self._written

    def age_ms(self, key: Key) -> int:
        """How long ago it happened; 0 for what never did."""
        since_ms = self._since.get(key)
        if since_ms is None:
            return 0
        elapsed_ms = self._clock.elapsed_ms() - since_ms
        written_ms = self._written.get(key)
        return elapsed_ms if written_ms is None else max(elapsed_ms, self._clock.age_ms(written_ms))
