"""The mutation gate: every planted defect is found, and the same short runs pass without it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import tests.cases.test_transaction_cases as transaction_cases
from storage.errors import StorageError
from tests.cases.logs import CaseLog
from tests.crash.damaged_directory import DamageCheck, StoppedDirectory
from tests.crash.disk_errors import fail_every_operation
from tests.crash.power_cut import PowerCutRun
from tests.crash.test_bit_rot import check_all, find, flips
from tests.model.race import open_shared_log, run_race
from tests.model.test_log_model import LogMachine
from tests.mutations import BIT_ROT, CASES, DEFECTS, DISK_ERRORS, MODEL, POWER_CUT, RACE, Defect

FOUND = (AssertionError, StorageError)
FOUND_BY_READERS = (*FOUND, ValueError)
SEEDS = 16
CRASH_POINTS = 250
MODEL_SETTINGS = settings(
    max_examples=250,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def power_cut(_directory: Path) -> None:
    for seed in range(SEEDS):
        PowerCutRun(seed).run(CRASH_POINTS)


def disk_errors(_directory: Path) -> None:
    for error, kinds in ((errno.EIO, {"sync"}), (errno.ENOSPC, {"sync"}), (errno.ENOSPC, {"extend", "write"})):
        fail_every_operation(1, error, frozenset(kinds))


def bit_rot(_directory: Path) -> None:
    for clean in (True, False):
        stopped = StoppedDirectory(clean=clean)
        for name in ("00000000000000000000.log", "00000000000000000010.log"):
            path, content = find(stopped, name)
            check: DamageCheck = check_all(stopped, path, flips(content))
            assert check.outcomes.total() == 8 * len(content)


def model(_directory: Path) -> None:
    run_state_machine_as_test(LogMachine, settings=MODEL_SETTINGS)


def race(directory: Path) -> None:
    for number in range(3):
        place = directory / str(number)
        place.mkdir()
        manager, log = open_shared_log(place)
        run_race(log)
        manager.close()


def cases(directory: Path) -> None:
    for offset in range(20):
        transaction_cases.test_tx_8_a_fetch_lists_the_aborted_transactions_it_touches(
            lambda place=directory / str(offset): CaseLog(place), offset
        )


SUITES: dict[str, Callable[[Path], None]] = {
    POWER_CUT: power_cut,
    DISK_ERRORS: disk_errors,
    BIT_ROT: bit_rot,
    MODEL: model,
    RACE: race,
    CASES: cases,
}


@pytest.mark.parametrize("planted", DEFECTS, ids=lambda planted: planted.name)
def test_a_planted_defect_is_found(planted: Defect, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        planted.plant(patch)
        with pytest.raises(FOUND_BY_READERS if planted.suite == RACE else FOUND) as found:
            SUITES[planted.suite](tmp_path)
    print(f"{planted.name}: {type(found.value).__name__}: {str(found.value)[:300]}")


@pytest.mark.parametrize("suite", [MODEL, RACE, CASES])
def test_the_engine_as_it_is_passes(suite: str, tmp_path: Path) -> None:
    """So a failure above comes from the defect. The other suites' own tests make the very runs that are made here."""
    SUITES[suite](tmp_path)


def test_there_are_enough_defects() -> None:
    assert len(DEFECTS) >= 15
    assert {planted.suite for planted in DEFECTS} == set(SUITES)
