"""Time as a parameter: the engine never asks the machine itself."""

from __future__ import annotations

import time
from typing import Protocol


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
