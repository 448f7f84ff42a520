"""Crashes load jobs before every operation of the disk, recovers, lets the timeout pass, and looks at what is there.

After every crash each job is wholly committed or wholly aborted: what its winners wrote and was acknowledged, and
nothing of any other attempt. A commit that was acknowledged stays, and its version is not loaded again; nothing holds
up readers once the timeout has passed; no producer id is given twice.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from app.engine.appending import AppendOptions
from app.engine.transactions import ProducerIdentity
from app.load_jobs.decisions import Winner
from app.load_jobs.state import JobMode, JobState
from app.produce.enlisting import submit_append
from app.service.parts import Parts
from log_model.clock import ManualClock
from storage.log.partition_log import AppendResult, PartitionLog
from tests.crash.disk_faults import Operation
from tests.crash.ledger import require
from tests.crash.service_crashes import ServiceCrashes
from tests.crash.simulated_disk import SimulatedDisk
from tests.crash.transaction_workload import CONFIG, Promise, open_parts
from tests.crash.workload import new_disk
from tests.support.transactions import all_values, committed_values, settled, valid_transactional

TIMEOUT_MS = 60_000
APPLICATIONS = ("one", "two")


@dataclass
class AttemptLedger:
    """One attempt: what it sent, and what of that was acknowledged."""

    producer_id: int
    task: int
    sent: set[bytes] = field(default_factory=set)
    acknowledged: set[bytes] = field(default_factory=set)
    sequences: dict[int, int] = field(default_factory=dict)


@dataclass
class JobLedger:
    """One job: its attempts, its winners once it is to be committed, and what was said of its end."""

    job_id: str
    application_id: str
    version: int
    attempts: list[AttemptLedger] = field(default_factory=list)
    winners: list[AttemptLedger] = field(default_factory=list)
    promise: Promise = Promise.OPEN


@dataclass
class Ledger:
    """Everything that was promised."""

    jobs: list[JobLedger] = field(default_factory=list)
    ids: set[int] = field(default_factory=set)
    now_ms: int = 0

    def copy(self) -> Ledger:
        copied = Ledger([], set(self.ids), self.now_ms)
        for job in self.jobs:
            attempts = [
                replace(each, sent=set(each.sent), acknowledged=set(each.acknowledged)) for each in job.attempts
            ]
            by_id = {each.producer_id: each for each in attempts}
            winners = [by_id[each.producer_id] for each in job.winners]
            copied.jobs.append(replace(job, attempts=attempts, winners=winners))
        return copied


async def jobs_settled(parts: Parts) -> None:
    """Return when neither jobs nor transactions have anything more to do by themselves."""
    while parts.load_jobs.is_busy or parts.engine.transactions.is_busy:
        await settled(parts)
        await asyncio.sleep(0)


class JobWorkload:
    """Does one random step after the other; ``observe`` is called before every operation of the disk."""

    def __init__(self, seed: int, observe: Callable[[JobWorkload, Operation], None]) -> None:
        self.source = random.Random(seed)
        self.clock = ManualClock()
        self.ledger = Ledger()
        self.step_name = "start"
        self._observe = observe
        self._mark = 0
        self._open: dict[str, JobLedger] = {}
        self._use(new_disk(self.clock))
        self.parts = open_parts(self.disk, self.clock)
        self._is_made = False

    def _use(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        disk.before_operation = lambda operation: self._observe(self, operation)

    def _logs(self) -> list[PartitionLog]:
        return list(self.parts.engine.topic("t").partitions)

    async def step(self) -> None:
        """Do the next thing."""
        if not self._is_made:
            self.step_name = "create topic"
            await self.parts.engine.topics.ensure("t", 2, CONFIG)
            self._is_made = True
            return
        application = self.source.choice(APPLICATIONS)
        job = self._open.get(application)
        if job is None:
            self.step_name = "begin"
            await self._begin(application)
            return
        steps: list[tuple[Callable[[JobLedger], object], int]] = [
            (self._enlist, 24),
            (self._send, 46),
            (self._commit, 9),
            (self._abort, 2),
            (self._begin_again, 2),
            (self._time_out, 1),
            (self._roll, 2),
            (self._kill_and_start, 3),
        ]
        kinds, weights = zip(*steps, strict=True)
        step = self.source.choices(kinds, weights)[0]
        self.step_name = step.__name__.strip("_").replace("_", " ")
        await step(job)

    async def _begin(self, application: str) -> None:
        committed = [
            job for job in self.ledger.jobs if job.promise is Promise.COMMITTED and job.application_id == application
        ]
        if committed and self.source.random() < 0.2:
            again = await self._begun(application, committed[-1].version)
            require(again == committed[-1].job_id, "a version that was committed was begun again")
            return
        self._mark += 1
        job_id = await self._begun(application, self._mark)
        job = self._open[application] = JobLedger(job_id, application, self._mark)
        self.ledger.jobs.append(job)

    async def _begun(self, application: str, version: int) -> str:
        begun = await self.parts.load_jobs.begin(
            application,
            version,
            mode=JobMode.TRANSACTIONAL,
            timeout_ms=TIMEOUT_MS,
            topics=(),
            join=False,
            wait_ms=30_000,
        )
        return begun.job.job_id

    async def _begin_again(self, job: JobLedger) -> None:
        """The driver was killed: its successor begins the same version, and the old job is aborted."""
        job.promise = Promise.ABORTING
        job_id = await self._begun(job.application_id, job.version)
        job.promise = Promise.ABORTED
        following = self._open[job.application_id] = JobLedger(job_id, job.application_id, job.version)
        self.ledger.jobs.append(following)

    async def _enlist(self, job: JobLedger) -> None:
        task = self.source.randrange(2)
        producer_id = await self.parts.load_jobs.enlist(job.job_id, task, len(job.attempts))
        require(producer_id not in self.ledger.ids, f"producer id {producer_id} was given twice")
        self.ledger.ids.add(producer_id)
        job.attempts.append(AttemptLedger(producer_id, task))

    async def _send(self, job: JobLedger) -> None:
        if not job.attempts:
            await self._enlist(job)
            return
        attempts = self.source.sample(job.attempts, min(len(job.attempts), self.source.choice((1, 1, 2))))
        await asyncio.gather(*(self._send_one(attempt) for attempt in attempts))

    async def _send_one(self, attempt: AttemptLedger) -> None:
        log = self.source.choice(self._logs())
        values = []
        for _ in range(self.source.choice((1, 1, 3))):
            self._mark += 1
            values.append(b"%d:" % self._mark + b"v" * self.source.choice((0, 20, 200)))
        attempt.sent.update(values)
        number = log.name.partition
        sequence = attempt.sequences.get(number, 0)
        batches = valid_transactional(log, ProducerIdentity(attempt.producer_id, 0), sequence, *values)
        options = AppendOptions()
        submitted = await submit_append(self.parts.producing, log, batches, options)
        if not isinstance(submitted, AppendResult):
            await self.parts.engine.appends.outcome_of(submitted, options)
        attempt.sequences[number] = sequence + len(values)
        attempt.acknowledged.update(values)

    async def _commit(self, job: JobLedger) -> None:
        of_task = {attempt.task: attempt for attempt in self.source.sample(job.attempts, len(job.attempts))}
        job.winners = list(of_task.values())
        winners = [Winner(each.producer_id, sum(each.sequences.values())) for each in job.winners]
        job.promise = Promise.COMMITTING
        done = await self.parts.load_jobs.commit(job.job_id, winners, 30_000)
        require(done.state is JobState.COMMITTED, f"a commit ended as {done.state}")
        job.promise = Promise.COMMITTED
        del self._open[job.application_id]
        if self.source.random() < 0.3:
            require(await self.parts.load_jobs.commit(job.job_id, winners, 30_000) == done, "committed otherwise")
            require(await self.parts.load_jobs.abort(job.job_id, 30_000) == done, "an abort changed a commit")

    async def _abort(self, job: JobLedger) -> None:
        job.promise = Promise.ABORTING
        await self.parts.load_jobs.abort(job.job_id, 30_000)
        job.promise = Promise.ABORTED
        del self._open[job.application_id]

    async def _time_out(self, _: JobLedger) -> None:
        doomed, self._open = self._open, {}
        for job in doomed.values():
            job.promise = Promise.ABORTING
        self.clock.advance(TIMEOUT_MS + 1)
        await self.parts.load_jobs.run_jobs()
        await jobs_settled(self.parts)
        for job in doomed.values():
            job.promise = Promise.ABORTED

    async def _roll(self, _: JobLedger) -> None:
        log = self.source.choice(self._logs())
        await self.parts.engine.partitions.run_in_log(log, log.roll)

    async def _kill_and_start(self, _: JobLedger) -> None:
        self._use(self.disk.killed())
        self.parts = open_parts(self.disk, self.clock)
        await self.parts.load_jobs.start()
        await jobs_settled(self.parts)


class JobCrashes(ServiceCrashes[Ledger]):
    """Load jobs of some applications."""

    # What other crash tests look at already is crashed seldom, so that there are many decisions.
    CRASHED_AT: ClassVar[Mapping[str, float]] = {
        "start": 0.0,
        "create topic": 0.0,
        "begin": 0.3,
        "enlist": 0.2,
        "send": 0.15,
        "roll": 0.1,
        "kill and start": 0.2,
    }

    def make_workload(self, seed: int) -> JobWorkload:
        """See ``ServiceCrashes``."""
        return JobWorkload(seed, lambda load, operation: self.crash_here(load, load.ledger, operation))

    async def look(self, parts: Parts, disk: SimulatedDisk, clock: ManualClock, ledger: Ledger) -> None:
        """See ``ServiceCrashes``."""
        await parts.load_jobs.start()
        await jobs_settled(parts)
        clock.advance(TIMEOUT_MS + 1)
        await parts.load_jobs.run_jobs()
        await jobs_settled(parts)
        require(not disk.violations, f"mappings: {disk.violations}")
        require(parts.load_jobs.open_count() == 0, "a job is open after its timeout")
        require(parts.engine.transactions.id_count() == 0, "attempts of jobs that are over are remembered")
        committed: Counter[bytes] = Counter()
        stored: Counter[bytes] = Counter()
        for log in parts.engine.topic("t").partitions:
            snapshot = log.snapshot
            require(snapshot.last_stable_offset == snapshot.log_end_offset, f"{log.name} keeps readers waiting")
            committed.update(committed_values(snapshot))
            stored.update(all_values(snapshot))
        require(not [value for value, times in stored.items() if times > 1], "stored twice")
        for job in ledger.jobs:
            _check_job(parts, job, committed)
        await self._try_again(parts, ledger)

    async def _try_again(self, parts: Parts, ledger: Ledger) -> None:
        """What was committed is not loaded again; ids go on above all that were given."""
        for job in ledger.jobs[-3:]:
            begun = await parts.load_jobs.begin(
                job.application_id,
                job.version,
                mode=JobMode.TRANSACTIONAL,
                timeout_ms=TIMEOUT_MS,
                topics=(),
                join=False,
                wait_ms=30_000,
            )
            if job.promise is Promise.COMMITTED:
                require(begun.job.state is JobState.COMMITTED, f"version {job.version} would be loaded again")
            elif begun.is_new:
                producer_id = await parts.load_jobs.enlist(begun.job.job_id, 0, 0)
                require(producer_id not in ledger.ids, f"producer id {producer_id} was given before")


def _check_job(parts: Parts, job: JobLedger, committed: Counter[bytes]) -> None:
    winners = {each.producer_id for each in job.winners}
    for attempt in job.attempts:
        if attempt.producer_id not in winners:
            require(not attempt.sent & committed.keys(), f"an attempt that did not win is visible: job {job.job_id}")
    sent = set().union(*(each.sent for each in job.winners)) if job.winners else set()
    whole = set().union(*(each.acknowledged for each in job.winners)) if job.winners else set()
    seen = sent & committed.keys()
    match job.promise:
        case Promise.COMMITTED:
            require(whole <= seen, f"committed, but {len(whole - seen)} of {len(whole)} records are not there")
            require(parts.load_jobs.find(job.job_id).state is JobState.COMMITTED, "committed, and not known to be")
        case Promise.COMMITTING:
            require(not seen or whole <= seen, f"half committed: {len(seen)} of {len(whole)} records are there")
            state = parts.load_jobs.find(job.job_id).state
            require((state is JobState.COMMITTED) == bool(seen) or not whole, f"{state}, and {len(seen)} are visible")
        case _:
            require(not seen, f"{job.promise.value}, but {len(seen)} records are there")
