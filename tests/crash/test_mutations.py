"""The mutation gate: every planted defect is found, and the same short runs pass without it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import tests.cases.test_transaction_cases as transaction_cases
import tests.support.journal_mutations  # noqa: F401 - it has defects of its own
from log_model.errors import StorageError
from tests.cases.logs import CaseLog
from tests.crash.damaged_directory import DamageCheck, StoppedDirectory
from tests.crash.disk_errors import fail_every_operation
from tests.crash.power_cut import PowerCutRun
from tests.crash.test_bit_rot import check_all, find, flips
from tests.model.race import open_shared_log, run_race
from tests.model.test_log_model import LogMachine
from tests.support.mutations import BIT_ROT, CASES, DEFECTS, DISK_ERRORS, MODEL, POWER_CUT, RACE, Defect

FOUND = (AssertionError, StorageError)
FOUND_BY_READERS = (*FOUND, ValueError, OSError)
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


def power_cut(seed: int, _directory: Path) -> None:
    PowerCutRun(seed).run(CRASH_POINTS)


def disk_errors(number: int, _directory: Path) -> None:
    error, kinds = ((errno.EIO, {"sync"}), (errno.ENOSPC, {"sync"}), (errno.ENOSPC, {"extend", "write"}))[number]
    fail_every_operation(1, error, frozenset(kinds))


def bit_rot(number: int, _directory: Path) -> None:
    stopped = StoppedDirectory(clean=number < 2)
    path, content = find(stopped, ("00000000000000000000.log", "00000000000000000010.log")[number % 2])
    check: DamageCheck = check_all(stopped, path, flips(content))
    assert check.outcomes.total() == 8 * len(content)


def model(_number: int, _directory: Path) -> None:
    run_state_machine_as_test(LogMachine, settings=MODEL_SETTINGS)


def race(number: int, directory: Path) -> None:
    place = directory / str(number)
    place.mkdir()
    manager, log = open_shared_log(place)
    run_race(log)
    manager.close()


FETCH_OFFSETS = 20
WATERMARK_CASE = FETCH_OFFSETS
"""The case whose group is not published at once; those before it fetch from one offset each."""


def cases(number: int, directory: Path) -> None:
    def new_log(config: dict[str, object] | None = None) -> CaseLog:
        return CaseLog(directory / str(number), config)

    if number == WATERMARK_CASE:
        transaction_cases.test_tx_1_a_marker_counts_when_the_high_watermark_is_above_it(new_log)
    else:
        transaction_cases.test_tx_8_a_fetch_lists_the_aborted_transactions_it_touches(new_log, number)


def is_finding(error: BaseException) -> bool:
    """Of the system's errors only one counts: that a reader's file was closed under it."""
    return not isinstance(error, OSError) or error.errno == errno.EBADF


class Suite(NamedTuple):
    """So many runs, each with its number."""

    run: Callable[[int, Path], None]
    count: int


SUITES: dict[str, Suite] = {
    POWER_CUT: Suite(power_cut, SEEDS),
    DISK_ERRORS: Suite(disk_errors, 3),
    BIT_ROT: Suite(bit_rot, 4),
    MODEL: Suite(model, 1),
    RACE: Suite(race, 3),
    CASES: Suite(cases, FETCH_OFFSETS + 1),
}


def run_suite(suite: Suite, directory: Path, first: int = 0) -> None:
    """All runs; the one that found a defect last time comes first, and the others where it finds nothing."""
    for number in sorted(range(suite.count), key=lambda number: number != first):
        print(f"run {number}")
        suite.run(number, directory)


@pytest.mark.parametrize("planted", DEFECTS, ids=lambda planted: planted.name)
def test_a_planted_defect_is_found(planted: Defect, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        planted.plant(patch)
        with pytest.raises(FOUND_BY_READERS if planted.suite == RACE else FOUND, check=is_finding) as found:
            run_suite(SUITES[planted.suite], tmp_path, planted.found_by)
    print(f"{planted.name}: {type(found.value).__name__}: {str(found.value)[:300]}")


@pytest.mark.parametrize("suite", [MODEL, CASES])
def test_the_engine_as_it_is_passes(suite: str, tmp_path: Path) -> None:
    """So a failure above comes from the defect. The other suites' own tests make the very runs that are made here."""
    run_suite(SUITES[suite], tmp_path)


def test_there_are_enough_defects() -> None:
    assert len(DEFECTS) >= 30
    assert {planted.suite for planted in DEFECTS} == set(SUITES)
