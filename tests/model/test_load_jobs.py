"""Random drivers and tasks against a few lines that say what a load job is."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from app.engine.appending import AppendOptions
from app.engine.transactions import ProducerIdentity
from app.load_jobs.decisions import Winner
from app.load_jobs.state import JobMode
from app.problems.problem import Problem
from app.produce.enlisting import submit_append
from app.service.parts import Parts
from log_model.clock import ManualClock
from log_model.errors import InvalidPidMappingError, ProducerFencedError
from storage.log.partition_log import AppendResult
from tests.crash.job_crashes import jobs_settled
from tests.crash.transaction_workload import CONFIG, open_parts
from tests.crash.workload import new_disk
from tests.support.transactions import committed_values, valid_transactional

TIMEOUT_MS = 10_000
STEPS = 250


@dataclass
class Attempt:
    """What one attempt sent that was taken."""

    producer_id: int
    task: int
    values: list[bytes] = field(default_factory=list)


@dataclass
class Job:
    """What is expected of a job."""

    job_id: str
    application: str
    version: int
    touched_ms: int
    state: str = "open"
    attempts: list[Attempt] = field(default_factory=list)
    winners: frozenset[int] = frozenset()


class Machine:
    """The service, and what it should be like."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.clock = ManualClock()
        self.disk = new_disk(self.clock)
        self.parts: Parts = open_parts(self.disk, self.clock)
        self.jobs: list[Job] = []
        self.number = 0
        self.refusals: set[str] = set()

    async def run(self) -> None:
        (self.log,) = (await self.parts.engine.topics.ensure("t", 1, CONFIG))[0].partitions
        steps = [self.begin] * 3 + [self.enlist] * 4 + [self.send] * 8 + [self.commit] * 3
        steps += [self.abort, self.wait, self.wait, self.restart]
        for _ in range(STEPS):
            await self.source.choice(steps)()
            await self.check()
        assert self.refusals <= {"invalid_job_state"}

    def any_job(self) -> Job | None:
        """One that is over now and then."""
        alive = [job for job in self.jobs if job.state == "open"]
        return self.source.choice(alive if alive and self.source.random() < 0.8 else self.jobs) if self.jobs else None

    async def begin(self) -> None:
        application = self.source.choice("ab")
        versions = [job.version for job in self.jobs if job.application == application]
        version = self.source.choice([*versions[-2:], max(versions, default=0) + 1])
        join = self.source.random() < 0.4
        own = [job for job in self.jobs if job.application == application]
        done = next((job for job in own if job.version == version and job.state == "committed"), None)
        joined = next((job for job in own if join and job.version == version and job.state == "open"), None)
        begun = await self.parts.load_jobs.begin(
            application,
            version,
            mode=JobMode.TRANSACTIONAL,
            timeout_ms=TIMEOUT_MS,
            topics=(),
            join=join,
            wait_ms=30_000,
        )
        expected = done or joined
        assert begun.is_new is (expected is None)
        if expected is not None:
            assert begun.job.job_id == expected.job_id
            return
        for job in own:
            if job.state == "open":
                job.state = "aborted"
        self.jobs.append(Job(begun.job.job_id, application, version, self.clock.now_ms()))

    async def enlist(self) -> None:
        job = self.any_job()
        if job is None:
            return
        task = self.source.randrange(3)
        try:
            producer_id = await self.parts.load_jobs.enlist(job.job_id, task, 0)
        except Problem as problem:
            self.refusals.add(problem.code)
            assert job.state != "open"
            return
        assert job.state == "open"
        assert producer_id not in {each.producer_id for other in self.jobs for each in other.attempts}
        job.attempts.append(Attempt(producer_id, task))
        job.touched_ms = self.clock.now_ms()

    async def send(self) -> None:
        job = self.any_job()
        if job is None or not job.attempts:
            return
        attempt = self.source.choice(job.attempts)
        self.number += 1
        value = b"%d" % self.number
        identity = ProducerIdentity(attempt.producer_id, 0)
        batches = valid_transactional(self.log, identity, len(attempt.values), value)
        try:
            submitted = await submit_append(self.parts.producing, self.log, batches, AppendOptions())
            if not isinstance(submitted, AppendResult):
                await self.parts.engine.appends.outcome_of(submitted, AppendOptions())
        except (ProducerFencedError, InvalidPidMappingError):
            assert job.state != "open"
            return
        assert job.state == "open"
        attempt.values.append(value)
        job.touched_ms = self.clock.now_ms()

    async def commit(self) -> None:
        job = self.any_job()
        if job is None:
            return
        chosen = {attempt.task: attempt for attempt in self.source.sample(job.attempts, len(job.attempts))}
        ids = frozenset(attempt.producer_id for attempt in chosen.values())
        winners = [Winner(attempt.producer_id, len(attempt.values)) for attempt in chosen.values()]
        try:
            done = await self.parts.load_jobs.commit(job.job_id, winners, 30_000)
        except Problem as problem:
            self.refusals.add(problem.code)
            assert job.state == "aborted" or (job.state == "committed" and job.winners != ids)
            return
        assert job.state == "open" or (job.state == "committed" and job.winners == ids)
        assert done.state.value == "committed"
        job.state, job.winners = "committed", ids

    async def abort(self) -> None:
        job = self.any_job()
        if job is not None:
            job.state = "aborted" if job.state == "open" else job.state
            assert (await self.parts.load_jobs.abort(job.job_id, 30_000)).state.value == job.state

    async def wait(self) -> None:
        self.clock.advance(self.source.choice((1_000, TIMEOUT_MS // 2, TIMEOUT_MS + 1)))
        await self.parts.load_jobs.run_jobs()
        for job in self.jobs:
            if job.state == "open" and self.clock.now_ms() - job.touched_ms > TIMEOUT_MS:
                job.state = "aborted"

    async def restart(self) -> None:
        """A kill or a clean stop; either counts as a sign of life."""
        if self.source.random() < 0.5:
            await self.parts.close()
        self.disk = self.disk.killed()
        self.parts = open_parts(self.disk, self.clock)
        await self.parts.load_jobs.start()
        (self.log,) = self.parts.engine.topic("t").partitions
        for job in self.jobs:
            job.touched_ms = self.clock.now_ms()

    async def check(self) -> None:
        await jobs_settled(self.parts)
        states = {job.job_id: self.parts.load_jobs.find(job.job_id).state.value for job in self.jobs}
        assert states == {job.job_id: job.state for job in self.jobs}
        is_held_up = any(job.state == "open" and any(each.values for each in job.attempts) for job in self.jobs)
        snapshot = self.log.snapshot
        assert (snapshot.last_stable_offset < snapshot.high_watermark) == is_held_up
        if not is_held_up:
            expected = [
                value
                for job in self.jobs
                for attempt in job.attempts
                if attempt.producer_id in job.winners
                for value in attempt.values
            ]
            assert sorted(committed_values(snapshot)) == sorted(expected)
        for job in self.jobs:
            if job.state == "open":
                _, rows, _ = await self.parts.load_jobs.loaded(self.parts.load_jobs.find(job.job_id))
                assert rows == sum(len(attempt.values) for attempt in job.attempts)


@pytest.mark.parametrize("seed", range(8))
def test_jobs_are_what_the_model_says(seed: int) -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await Machine(seed).run()

    asyncio.run(scenario())
