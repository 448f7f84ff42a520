"""A crash before every operation of begin, enlist, commit, abort and timeout of load jobs (issue 5).

``CRASH_SCALE`` multiplies the run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence

import pytest

from app.engine_local.transactions.attempts import LocalAttempts
from app.load_jobs.state import LoadJob
from app.load_jobs.store import JobStore
from app.problems.problem import Problem
from tests.crash.job_crashes import JobCrashes
from tests.crash.ledger import ViolationError

SCALE = float(os.environ.get("CRASH_SCALE", "1"))
CRASH_POINTS = 600
WORKLOADS = 4
IMAGES_PER_POINT = 2


@pytest.mark.parametrize("seed", range(max(1, round(WORKLOADS * SCALE))))
def test_every_job_is_wholly_there_or_not_at_all(seed: int, record_property: Callable[[str, object], None]) -> None:
    JobCrashes(seed, IMAGES_PER_POINT).run_and_record(CRASH_POINTS // WORKLOADS, record_property)


async def _never_written(self: JobStore, jobs: Sequence[LoadJob], *, durable: bool = True) -> None:
    for job in jobs:
        self.table.put(job)


async def _all_of_them_win(self: LocalAttempts, names: Collection[str], winners: Collection[str]) -> None:
    await _finish(self, names, names if winners else winners)


_finish = LocalAttempts.finish


@pytest.mark.parametrize(
    ("owner", "name", "defect"),
    [
        (JobStore, "write_jobs", _never_written),
        (LocalAttempts, "finish", _all_of_them_win),
    ],
)
def test_planted_defects_are_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, defect: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, defect)

    async def find() -> None:
        for seed in range(10):
            await JobCrashes(seed, IMAGES_PER_POINT).run(CRASH_POINTS // WORKLOADS)

    with pytest.raises((ViolationError, Problem)):
        asyncio.run(find())
