"""Steps of the wall clock under a service whose history is judged: back, ahead for a moment, ahead for good.

The service is started by this module, ``python -m tests.histories.clock_steps FILE [DEFECT] serve ...``, with a wall
clock that is as far ahead as FILE says. The product has no such option.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

from app.cli import main
from log_model.clock import ProtectedClock, SystemClock

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
STEPS_MS = (-HOUR_MS, 2 * DAY_MS, 3 * DAY_MS, 30 * DAY_MS, 365 * DAY_MS, 0)
DEFECTS = ("sequences_are_forgotten_by_the_wall_clock",)
FOUND_AS = {"duplicate", "inconsistent offsets", "torn batch", "torn transaction", "aborted read", "lost write"}


class SteppedClock:
    """The file that says how far ahead the wall clock is, as the test has it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self._source = random.Random(seed)
        self.step_count = 0
        self._write(0)

    def program(self, *defects: str) -> Sequence[str]:
        """The module that starts a service with this clock, and its first arguments."""
        return ("tests.histories.clock_steps", str(self.path), *defects)

    def step(self) -> None:
        """Set the clock to another of ``STEPS_MS``."""
        self._write(self._source.choice(STEPS_MS))
        self.step_count += 1

    def _write(self, ahead_ms: int) -> None:
        written = self.path.with_suffix(".new")
        written.write_text(str(ahead_ms))
        written.replace(self.path)


def install(path: Path) -> None:
    """Let the wall clock of this process be as far ahead as the file says."""
    machine_ms = SystemClock.now_ms

    def stepped_ms(self: SystemClock) -> int:
        return machine_ms(self) + int(path.read_text())

    SystemClock.now_ms = stepped_ms  # type: ignore[method-assign]


def plant_wall_clock() -> None:
    """Let everything that expires go by the wall clock, and soon."""
    wall = SystemClock()
    SystemClock.elapsed_ms = lambda self: wall.now_ms()  # type: ignore[method-assign]
    ProtectedClock.elapsed_ms = lambda self: wall.now_ms()  # type: ignore[method-assign]


if __name__ == "__main__":
    install(Path(sys.argv.pop(1)))
    if sys.argv[1] in DEFECTS:
        sys.argv.pop(1)
        plant_wall_clock()
    main()
