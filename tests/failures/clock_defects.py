"""A service that goes by the wall clock somewhere: ``python -m tests.failures.clock_defects DEFECT serve ...``.

Each is what the service once did, or might do again; the clock table has to find it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import storage.producers.producer_state
from app.cli import main
from app.service.scheduler import Scheduler
from log_model.clock import Ages, ProtectedClock, SystemClock

DEFECTS: dict[str, Callable[[], None]] = {}


def defect(plant: Callable[[], None]) -> Callable[[], None]:
    """Register a function that plants a defect."""
    DEFECTS[plant.__name__] = plant
    return plant


@defect
def jobs_are_due_by_the_wall_clock() -> None:
    async def repeat(self: Scheduler, name: str, interval_seconds: float) -> None:
        due = time.time() + interval_seconds
        while True:
            # By the loop's timers, so that a step is noticed when the next one fires.
            while time.time() < due:  # noqa: ASYNC110 - the defect
                await asyncio.sleep(min(0.05, interval_seconds))
            await self.run(name)
            due += interval_seconds

    Scheduler._repeat = repeat  # type: ignore[method-assign]


@defect
def jobs_missed_by_a_step_are_all_run() -> None:
    async def repeat(self: Scheduler, name: str, interval_seconds: float) -> None:
        due = time.time() + interval_seconds
        while True:
            await asyncio.sleep(max(0.0, min(due - time.time(), interval_seconds)))
            await self.run(name)
            due += interval_seconds

    Scheduler._repeat = repeat  # type: ignore[method-assign]


@defect
def what_expires_is_aged_by_the_wall_clock() -> None:
    ProtectedClock.elapsed_ms = lambda self: self._clock.now_ms()  # type: ignore[method-assign]


@defect
def producers_are_aged_by_the_wall_clock() -> None:
    make = storage.producers.producer_state.ProducerState.__init__

    def by_wall_clock(self: object, *arguments: object, **options: object) -> None:
        make(self, *arguments, **{**options, "elapsed_ms": SystemClock().now_ms})  # type: ignore[arg-type]

    storage.producers.producer_state.ProducerState.__init__ = by_wall_clock  # type: ignore[assignment,method-assign]


@defect
def retention_believes_the_wall_clock() -> None:
    ProtectedClock.now_ms = lambda self: self._clock.now_ms()  # type: ignore[method-assign]


@defect
def elapsed_time_is_wall_time() -> None:
    SystemClock.elapsed_ms = SystemClock.now_ms  # type: ignore[method-assign]


@defect
def what_was_noted_in_this_run_is_compared_with_the_wall_clock() -> None:
    def note(self: Ages[str], key: str) -> None:
        self.restore(key, SystemClock().now_ms())

    Ages.note = note  # type: ignore[method-assign,assignment]
    ProtectedClock.age_ms = lambda self, timestamp_ms: SystemClock().now_ms() - timestamp_ms  # type: ignore[method-assign]


if __name__ == "__main__":
    DEFECTS[sys.argv.pop(1)]()
    main()
