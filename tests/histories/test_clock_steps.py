"""Histories of a service that is killed while its wall clock jumps; CLOCK_HISTORY_SECONDS sets how long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.histories.checker import Checker, count_by_kind
from tests.histories.clock_steps import DEFECTS, FOUND_AS, SteppedClock
from tests.histories.history import History
from tests.histories.scenario import Scenario

SECONDS = float(os.environ.get("CLOCK_HISTORY_SECONDS", "12"))
DEFECT_SECONDS = 6.0
ATTEMPTS_MAX = 6
SEED = int(os.environ.get("HISTORY_SEED", "1"))
# So often that a forgotten producer, or a transaction taken for old, meets requests that are sent again.
OFTEN = {
    "ROLLWAY_PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS": "50",
    "ROLLWAY_TRANSACTION_CHECK_INTERVAL_MS": "50",
}


def history_of(directory: Path, seed: int, seconds: float, *defects: str) -> tuple[History, SteppedClock]:
    directory.mkdir(exist_ok=True)
    clock = SteppedClock(directory / "wall-clock", seed)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in OFTEN.items():
            patch.setenv(name, value)
        scenario = Scenario(
            directory / "data",
            seed=seed,
            seconds=seconds,
            program=clock.program(*defects),
            clock=clock,
            patience_seconds=3 if defects else 60,
        )
        return scenario.run(), clock


def test_a_service_whose_wall_clock_jumps_keeps_its_promises(tmp_path: Path) -> None:
    history, clock = history_of(tmp_path, SEED, SECONDS)
    anomalies = Checker(history).check()
    assert anomalies == []
    assert history.refusals == []
    assert clock.step_count > 0
    assert {"committed", "aborted"} <= set(history.transactions.values())


@pytest.mark.parametrize("name", DEFECTS)
def test_a_service_that_expires_by_the_wall_clock_is_found(tmp_path: Path, name: str) -> None:
    found: set[str] = set()
    for seed in range(ATTEMPTS_MAX):
        history, _ = history_of(tmp_path / str(seed), seed, DEFECT_SECONDS, name)
        found = {kind for kind, count in count_by_kind(Checker(history).check()).items() if count}
        # A fenced producer is told so, which no healthy service does here.
        if found & FOUND_AS or any("fenced" in refusal for refusal in history.refusals):
            return
    raise AssertionError(f"looked for {FOUND_AS}, found {found}")
