"""The log of load jobs: as long as what it says, shortened when that is worth it, and read back whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from app.load_jobs import store
from app.load_jobs.decisions import Winner
from app.load_jobs.records import TOPIC, all_changes, application_change, job_change, read_table, task_change
from app.load_jobs.state import Forgotten, JobMode, JobState, JobTable, LoadJob
from app.problems.problem import Problem
from app.service.parts import Parts
from log_model.clock import SETTLING_MS, ManualClock
from storage.log.partition_log import PartitionLog
from tests.crash.job_crashes import jobs_settled
from tests.crash.transaction_workload import open_parts
from tests.crash.workload import new_disk

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
COUNT = 40
"""More than ``ABOVE_COUNT``, which stands for the 10,000 of a service."""
ABOVE_COUNT = 20
RATIO = 3


class Service:
    """A broker that can be stopped without warning, and does what comes each second when it is told to."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = new_disk(self.clock)
        self.parts: Parts = open_parts(self.disk, self.clock)

    @property
    def log(self) -> PartitionLog:
        return self.parts.engine.manager.partition(TOPIC, 0)

    async def begin(self, application: str, version: int = 1, **more: Any) -> LoadJob:
        asked: dict[str, Any] = {"mode": JobMode.IDEMPOTENT, "timeout_ms": DAY_MS, "topics": (), "join": False}
        begun = await self.parts.load_jobs.begin(application, version, **{**asked, **more}, wait_ms=30_000)
        return begun.job

    async def enlist(self, job: LoadJob, tasks: int = COUNT) -> list[int]:
        return [await self.parts.load_jobs.enlist(job.job_id, task, 0) for task in range(tasks)]

    async def load(self, application: str, version: int = 1, *, tasks: int = 1, **more: Any) -> LoadJob:
        """A load from its beginning to its end."""
        job = await self.begin(application, version, **more)
        winners = [Winner(producer_id) for producer_id in await self.enlist(job, tasks)]
        return await self.parts.load_jobs.commit(job.job_id, winners, 30_000)

    async def check(self, times: int = 1) -> None:
        for _ in range(times):
            await self.parts.load_jobs.run_jobs()
            await jobs_settled(self.parts)

    async def restart(self) -> None:
        """kill -9."""
        self.disk = self.disk.killed()
        self.parts = open_parts(self.disk, self.clock)
        await self.parts.load_jobs.start()
        await jobs_settled(self.parts)

    async def is_idle(self) -> bool:
        """Whether the log neither grows nor moves while nothing happens; after it was shortened, if that was due."""
        await self.check()
        before = self.log.written_end_offset
        await self.check(5)
        return self.log.written_end_offset == before


def run(scenario: Callable[[Service], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await scenario(Service())

    asyncio.run(limited())


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SHORTEN_ABOVE_COUNT", ABOVE_COUNT)
    monkeypatch.setattr(store, "SHORTEN_ABOVE_RATIO", RATIO)


def test_an_open_job_of_many_tasks_does_not_make_the_log_grow() -> None:
    """Its tasks are known after it was shortened, and after a kill."""

    async def scenario(service: Service) -> None:
        job = await service.begin("loader")
        given = await service.enlist(job)
        assert await service.is_idle()
        # Old news, until it is shortened.
        for version in range(COUNT * RATIO):
            await service.load("other", version)
        first_offset = service.log.snapshot.log_start_offset
        assert await service.is_idle()
        assert service.log.snapshot.log_start_offset > first_offset
        assert await service.enlist(job) == given
        await service.restart()
        assert await service.enlist(job) == given
        assert await service.is_idle()
        winners = [Winner(producer_id) for producer_id in given]
        done = await service.parts.load_jobs.commit(job.job_id, winners, 30_000)
        assert (done.state, done.task_count) == (JobState.COMMITTED, COUNT)

    run(scenario)


def test_tasks_of_a_job_that_is_over_are_forgotten() -> None:
    """They are not written again, and the job's winners, asked for again, are its own."""

    async def scenario(service: Service) -> None:
        job = await service.load("loader", tasks=COUNT)
        await service.check()
        assert service.log.written_end_offset - service.log.snapshot.log_start_offset <= 2
        for is_restarted in (False, True):
            if is_restarted:
                await service.restart()
            assert await service.is_idle()
            winners = [Winner(producer_id) for producer_id in job.winners]
            again = await service.parts.load_jobs.commit(job.job_id, winners, 30_000)
            assert (again.state, again.task_count, len(again.winners)) == (JobState.COMMITTED, COUNT, COUNT)
            with pytest.raises(Problem, match="is committed"):
                await service.enlist(job)

    run(scenario)


def test_what_is_left_of_forgotten_jobs_does_not_make_the_log_grow() -> None:
    async def scenario(service: Service) -> None:
        for number in range(COUNT):
            await service.load(f"loader.{number}", 5)
        service.clock.advance(WEEK_MS)
        assert await service.is_idle()
        for is_restarted in (False, True):
            if is_restarted:
                await service.restart()
            for number in range(COUNT):
                with pytest.raises(Problem, match="may have been committed"):
                    await service.begin(f"loader.{number}", 4)
        service.clock.advance(WEEK_MS - 1)
        await service.check()
        with pytest.raises(Problem, match="may have been committed"):
            await service.begin("loader.0", 5)
        service.clock.advance(1)
        await service.check()
        assert (await service.begin("loader.0", 5)).is_open

    run(scenario)


def test_of_an_application_for_one_load_nothing_is_left() -> None:
    """It is known for as long as any other; then its name says nothing, and takes no room."""

    async def scenario(service: Service) -> None:
        for number in range(COUNT):
            await service.load(f"made-up.{number}", once=True)
        await service.load("named")
        service.clock.advance(WEEK_MS - 1)
        await service.restart()
        assert (await service.begin("made-up.0", once=True)).state is JobState.COMMITTED
        # Until then what an earlier run wrote down is not compared with a clock that may be wrong at the start.
        service.clock.advance(SETTLING_MS)
        await service.check(2)
        assert service.log.written_end_offset - service.log.snapshot.log_start_offset <= 2
        await service.restart()
        assert (await service.begin("made-up.0", once=True)).is_open
        with pytest.raises(Problem, match="may have been committed"):
            await service.begin("named")

    run(scenario)


def older_than(at_ms: int, table: JobTable) -> Callable[[str], bool]:
    return lambda name: table.forgotten[name].at_ms <= at_ms


def test_the_oldest_is_forgotten_first_and_those_behind_it_are_not_looked_at() -> None:
    table = JobTable()
    for name, at_ms in (("a", 1), ("b", 2), ("c", 9), ("set back", 3)):
        table.keep_forgotten(name, Forgotten(7, at_ms))
    table.keep_forgotten("a", Forgotten(8, 10))
    assert table.forgotten_while(older_than(5, table)) == [("b", Forgotten(7, 2))]
    assert [name for name, _ in table.forgotten_while(older_than(10, table))] == ["b", "c", "set back", "a"]
    read = read_table({key: value for key, value in all_changes(table) if value is not None})
    assert [name for name, _ in read.forgotten_while(older_than(5, read))] == ["b", "set back"]
    assert read.forgotten == table.forgotten


def test_records_of_tasks_count_while_their_job_goes_on() -> None:
    """Nobody writes that they are forgotten."""

    def job(job_id: str, state: JobState) -> LoadJob:
        return LoadJob(job_id, "loader", 1, JobMode.IDEMPOTENT, 1_000, (), 0, 0, state=state)

    changes = [task_change(job_id, 3, 4_000) for job_id in ("unknown", "open", "ending", "over")]
    states = {"open": JobState.OPEN, "ending": JobState.ABORTING, "over": JobState.COMMITTED}
    changes += [job_change(job(job_id, state)) for job_id, state in states.items()]
    changes.append(application_change("other", Forgotten(1, 2)))
    table = read_table({key: value for key, value in changes if value is not None})
    assert table.tasks == {"open": {3: 4_000}, "ending": {3: 4_000}}
    assert table.record_count == len(list(all_changes(table))) == 6
