"""Eight producers, half of them transactional, and eight consumers on six partitions, with kill -9 every few seconds,
behind a proxy that holds requests back and releases them later.

HISTORY_SECONDS sets how long; `make history-test` takes ten minutes for these, and ten with clock steps.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.histories.checker import Checker, count_by_kind
from tests.histories.defective_service import DEFECTS, FOUND_AS, UNDISTURBED
from tests.histories.scenario import Scenario

SECONDS = float(os.environ.get("HISTORY_SECONDS", "60"))
DEFECT_SECONDS = 6.0
UNDISTURBED_SECONDS = 20.0
ATTEMPTS = (0.4, 1, 1, 1, 1, 1, 1)
"""Parts of that time. Most defects show in the first seconds; for those that do not there are six whole runs."""
SEED = int(os.environ.get("HISTORY_SEED", "1"))


def test_a_service_that_is_killed_again_and_again_keeps_its_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario(tmp_path / "data", seed=SEED, seconds=SECONDS)
    history = scenario.run()
    anomalies = Checker(history).check()
    outcomes = list(history.transactions.values())
    with capsys.disabled():
        print(
            f"\n{SECONDS:g} s, {scenario.kill_count} stops: {len(history.sends)} sends, {len(outcomes)} transactions "
            f"({outcomes.count('committed')} committed, {outcomes.count('aborted')} aborted), "
            f"{len(history.polls)} polls, {sum(len(log.uncommitted) for log in history.final.values())} records, "
            f"{scenario.late_ends.total()} late ends answered with {dict(scenario.late_ends)}; "
            f"anomalies: {count_by_kind(anomalies)}"
        )
    assert anomalies == []
    assert history.refusals == []
    assert scenario.kill_count > 0
    assert "committed" in outcomes
    assert "aborted" in outcomes
    # Repeated in time, and come too late: both occurred.
    assert scenario.late_ends.keys() >= {200, 409}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(tmp_path: Path, name: str) -> None:
    whole = UNDISTURBED_SECONDS if name in UNDISTURBED else DEFECT_SECONDS
    found: set[str] = set()
    for seed, part in enumerate(ATTEMPTS):
        scenario = Scenario(
            tmp_path / str(seed),
            seed=seed,
            seconds=whole * part,
            program=("tests.histories.defective_service", name),
            patience_seconds=whole if name in UNDISTURBED else 3,
            signals=[] if name in UNDISTURBED else [signal.SIGKILL],
        )
        history = scenario.run()
        found = {kind for kind, count in count_by_kind(Checker(history).check()).items() if count}
        if found & FOUND_AS[name]:
            print(f"found after {seed + 1} runs")
            return
    raise AssertionError(f"looked for {FOUND_AS[name]}, found {found}")
