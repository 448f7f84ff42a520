"""Steps of the wall clock, on a real service: no job missed, none run a thousand times, nothing forgotten, nothing
aborted, health answered throughout."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.failures.clock_defects import DEFECTS
from tests.failures.clock_watch import ENVIRONMENT, WATCH_SECONDS, ClockWatch
from tests.support.servers import ServerProcess
from tests.support.wall_clock import WallClock

HOUR, DAY = 3_600, 86_400
ANSWER_SECONDS_MAX = 8.0
"""A service that has not answered by then never will: all that it is asked takes milliseconds."""
STEPS = {
    "an hour back": (0, [(-HOUR, WATCH_SECONDS)]),
    "twenty seconds back": (0, [(-20, WATCH_SECONDS)]),
    "two days ahead for two seconds": (0, [(2 * DAY, 2.0), (0, 0.5)]),
    "three days ahead": (0, [(3 * DAY, WATCH_SECONDS)]),
    "thirty days ahead": (0, [(30 * DAY, WATCH_SECONDS)]),
    "a year ahead": (0, [(365 * DAY, WATCH_SECONDS)]),
    "booted in 1970, then set": (-int(time.time()) + 60, [(0, WATCH_SECONDS)]),
}
"""How far the clock is ahead at the start, and what it is set to afterwards, each for that many seconds."""

GLITCH = "two days ahead for two seconds"
FOUND_BY = {
    "jobs_are_due_by_the_wall_clock": [("an hour back", "job flush ran"), ("three days ahead", None)],
    "jobs_missed_by_a_step_are_all_run": [("three days ahead", "job transactions ran")],
    "what_expires_is_aged_by_the_wall_clock": [(GLITCH, "the open load job"), (GLITCH, "transactional ids")],
    "producers_are_aged_by_the_wall_clock": [(GLITCH, "the same key")],
    "retention_believes_the_wall_clock": [(GLITCH, "segments")],
    "elapsed_time_is_wall_time": [("three days ahead", "the same sequence")],
    "what_was_noted_in_this_run_is_compared_with_the_wall_clock": [("booted in 1970, then set", "start positions")],
}
"""The steps that a defect is found by, and what is found at least."""


def findings(directory: Path, step: str, command: Sequence[str] | None = None) -> list[str]:
    """What is wrong with a service over this step."""
    begins_at, settings = STEPS[step]
    clock = WallClock(directory)
    clock.set(begins_at)
    environment = {**ENVIRONMENT, **clock.environment}
    server = ServerProcess(directory / "data", environment=environment, command=command, from_nothing=True).start()
    try:
        with httpx.Client(base_url=server.url, timeout=ANSWER_SECONDS_MAX) as client:
            watch = ClockWatch(server, client)
            watch.begin()
            for seconds_ahead, watched_seconds in settings:
                clock.set(seconds_ahead)
                watch.watch(watched_seconds)
            return watch.findings()
    except httpx.TimeoutException:
        return ["the service does not answer"]
    finally:
        # It has said all there is to say, and a defective one may not stop.
        server.kill()


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_the_wall_clock_costs_nothing(tmp_path: Path, step: str) -> None:
    assert findings(tmp_path, step) == []


@pytest.mark.parametrize(
    ("name", "step", "found"), [(name, step, found) for name in DEFECTS for step, found in FOUND_BY[name]]
)
def test_a_service_that_goes_by_the_wall_clock_is_found(
    tmp_path: Path, name: str, step: str, found: str | None
) -> None:
    wrong = findings(tmp_path, step, (sys.executable, "-m", "tests.failures.clock_defects", name))
    assert any(finding.startswith(found or "") for finding in wrong), wrong
