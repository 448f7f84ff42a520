"""The store of load jobs: a table, the log that remembers it, and the locks under which it changes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from app.engine.engine import Engine
from app.engine.state import Change
from app.event_loop.lasting_tasks import LastingTasks
from app.event_loop.piecewise import pieces
from app.load_jobs import refusals
from app.load_jobs.progress import Attempt
from app.load_jobs.records import (
    TOPIC,
    all_changes,
    application_change,
    job_change,
    job_forgotten,
    read_table,
    task_change,
)
from app.load_jobs.state import Forgotten, JobState, JobTable, LoadJob
from log_model.clock import Ages

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

SHORTEN_ABOVE_COUNT = 10_000
SHORTEN_ABOVE_RATIO = 10
_VERSIONS_KEPT_MAX = 100
"""Limit on the committed jobs that are kept of one application. Of older jobs only the highest version is kept."""


class JobLimits(NamedTuple):
    """Limits on the number of jobs and attempts, on their memory and on their time."""

    timeout_ms_max: int = 86_400_000
    expiration_ms: int = 604_800_000
    count_max: int = 10_000
    attempt_count_max: int = 20_000
    lists_bytes_max: int = 64 * 1024 * 1024
    """Limit on the memory of lists of topics and partitions: of the lists of open jobs, and as much again of the lists
    of jobs that are over."""


@dataclass(slots=True)
class Activity:
    """The activity in a job that is not over."""

    touched_ms: int
    """When the job last gave a sign of life, in elapsed time."""
    application_id: str
    attempts: dict[int, Attempt] = field(default_factory=dict)
    """The attempts by producer id."""
    is_deciding: bool = False
    """Whether records and attempts must wait."""
    is_unknown: bool = False
    """Whether the log failed while the decision was written."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def names(self) -> list[str]:
        """The transactional ids of the attempts."""
        return [attempt.name for attempt in self.attempts.values() if attempt.name]

    @property
    def task_count(self) -> int:
        """Number of tasks that have enlisted."""
        return len({attempt.task for attempt in self.attempts.values()})


class JobStore:
    """Jobs and their log. Thread: the event loop."""

    def __init__(self, engine: Engine, limits: JobLimits) -> None:
        self.engine = engine
        self.limits = limits
        self.log = engine.state(TOPIC)
        self.table = JobTable()
        self.active: dict[str, Activity] = {}
        """The activity of every job that is not over, by job id."""
        self.by_producer: dict[int, tuple[Activity, Attempt]] = {}
        self.tasks = LastingTasks(logger)
        self._over: Ages[str] = Ages(engine.protected_clock)
        self._forgotten: Ages[str] = Ages(engine.protected_clock)
        self._begun: Ages[str] = Ages(engine.protected_clock)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._writing = asyncio.Lock()
        self._coming_lists_bytes = 0

    async def load(self) -> None:
        """Read the jobs that were known at the last stop.

        Raises:
            CorruptionError: the log is damaged.
        """
        self.table = read_table(await self.log.load())
        self.table.sort_over()
        for job in self.table:
            if job.is_over:
                self._over.restore(job.job_id, job.updated_ms)
            else:
                self._begun.restore(job.job_id, job.begun_ms)
        for name, left in self.table.forgotten.items():
            self._forgotten.restore(name, left.at_ms)

    def find(self, job_id: str) -> LoadJob:
        """Return the job.

        Raises:
            Problem: job_not_found.
        """
        job = self.table.find(job_id)
        if job is None:
            raise refusals.not_found(job_id)
        return job

    def task_count(self, job: LoadJob) -> int:
        """Return the number of tasks that have enlisted."""
        activity = self.active.get(job.job_id)
        return job.task_count if activity is None or not job.is_open else activity.task_count

    async def write(self, changes: Sequence[Change], *, durable: bool = True) -> None:
        """Write changes down, all or none. Durable: on return with ``durable``, else with the next durable write.

        ``durable=False`` suits changes that the next start can derive again.

        Raises:
            Problem: overloaded; nothing was written.
            DiskFullError, PartitionOfflineError: nothing was written.
            PartitionFailedError: it is not known whether the changes were written.
        """
        async with self._writing:
            await self.log.write(changes, durable=durable)

    async def write_jobs(self, jobs: Sequence[LoadJob], *, durable: bool = True) -> None:
        """Write jobs down as they are now, and put them into the table.

        If a job is over and the lists of all such jobs do not fit into memory, jobs that ended earlier are written
        with it, without their lists.

        Raises:
            The errors of ``write``.
        """
        async with self._writing:
            jobs = [*jobs, *self.table.lists_to_drop(jobs, self.limits.lists_bytes_max)]
            await self.log.write([job_change(job) for job in jobs], durable=durable)
        known_over = [job.job_id for job in jobs if (known := self.table.find(job.job_id)) and known.is_over]
        for job in jobs:
            if self.table.find(job.job_id) is None:
                self._begun.note(job.job_id)
            self.table.put(job)
            if job.is_over and job.job_id not in known_over:
                self._over.note(job.job_id)

    @contextlib.contextmanager
    def room_for_lists(self, made: LoadJob) -> Iterator[None]:
        """Reserve memory for the lists of a job until it is in the table, or until it fails to begin.

        Raises:
            Problem: overloaded.
        """
        wanted_bytes = self.table.open_lists_bytes + self._coming_lists_bytes + made.lists_bytes
        if made.topics and wanted_bytes > self.limits.lists_bytes_max:
            raise refusals.overloaded(
                f"the lists of topics of open load jobs would hold more than {self.limits.lists_bytes_max} bytes"
            )
        self._coming_lists_bytes += made.lists_bytes
        try:
            yield
        finally:
            self._coming_lists_bytes -= made.lists_bytes

    async def write_task(self, job_id: str, task: int, producer_id: int) -> None:
        """Give a task of an idempotent job its producer.

        Raises:
            The errors of ``write``.
        """
        await self.write([task_change(job_id, task, producer_id)])
        self.table.tasks.setdefault(job_id, {})[task] = producer_id

    # Forgetting

    async def expire(self) -> None:
        """Forget jobs that are too old or too many, and shorten a log of mostly replaced records.

        Raises:
            The errors of ``write``.
        """
        await self._expire()
        # Every record that would be written again counts. Otherwise a log of minimal length would always be shortened.
        if self.log.record_count > max(SHORTEN_ABOVE_COUNT, SHORTEN_ABOVE_RATIO * self.table.record_count):
            await self.log.shorten(self._live())

    async def _expire(self) -> None:
        """Forget jobs that are over and too old, and jobs beyond the number that is kept."""
        doomed = {
            job.job_id: job
            for job in (
                *self.table.over_while(lambda job_id: self._over.age_ms(job_id) >= self.limits.expiration_ms),
                *self.table.over_beyond(self.limits.count_max),
                *self.table.over_beyond_of_each(_VERSIONS_KEPT_MAX),
            )
        }
        async for piece in pieces(doomed.values()):
            for job in piece:
                await self.in_turn(job.application_id, functools.partial(self._forget, job))
        for name, forgotten in self.table.forgotten_while(
            lambda name: self._forgotten.age_ms(name) >= self.limits.expiration_ms
        ):
            await self.in_turn(name, functools.partial(self._forget_application, name, forgotten))

    async def _forget(self, job: LoadJob) -> None:
        changes = [job_forgotten(job.job_id)]
        forgotten: Forgotten | None = None
        if job.state is JobState.COMMITTED and not job.once:
            before = self.table.forgotten.get(job.application_id)
            version = max(job.version, -1 if before is None else before.version)
            forgotten = Forgotten(version, self.engine.now_ms())
            changes.append(application_change(job.application_id, forgotten))
        await self.write(changes)
        self.table.remove(job.job_id)
        self._over.forget(job.job_id)
        if forgotten is not None:
            self.table.keep_forgotten(job.application_id, forgotten)
            self._forgotten.note(job.application_id)

    async def _forget_application(self, name: str, forgotten: Forgotten) -> None:
        if self.table.forgotten.get(name) == forgotten:
            await self.write([application_change(name, None)])
            del self.table.forgotten[name]
            self._forgotten.forget(name)

    async def _live(self) -> AsyncGenerator[Sequence[Change], None]:
        async with self._writing:
            # The table does not change meanwhile: each change is written to the log first, which takes this lock.
            async for piece in pieces(all_changes(self.table)):
                yield piece

    # Work that outlives its caller

    async def in_turn(self, application_id: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Do ``work`` alone for this application, in a task that survives the cancellation of its caller."""
        lock = self._locks.get(application_id)
        if lock is None:
            lock = self._locks[application_id] = asyncio.Lock()

        async def locked() -> Result:
            async with lock:
                return await work()

        return await self.tasks.run(locked(), f"load jobs of {application_id!r}")

    def elapsed_ms(self, job: LoadJob) -> int:
        """Return the milliseconds that the job has run, or ran.

        They come from wall-clock times if this run of the service has not seen the job's begin and end.
        """
        if job.is_open and not self._begun.is_restored(job.job_id):
            return self._begun.age_ms(job.job_id)
        return max(0, (self.engine.now_ms() if job.is_open else job.updated_ms) - job.begun_ms)

    def activity_of(self, job: LoadJob) -> Activity:
        """Return the activity of a job, which is made when first needed."""
        activity = self.active.get(job.job_id)
        if activity is None:
            activity = self.active[job.job_id] = Activity(self.engine.protected_clock.elapsed_ms(), job.application_id)
        return activity

    def note_attempt(self, activity: Activity, attempt: Attempt) -> None:
        """Record that an attempt has enlisted."""
        activity.attempts[attempt.producer_id] = attempt
        self.by_producer[attempt.producer_id] = (activity, attempt)

    def drop(self, job: LoadJob) -> None:
        """Drop the activity of a job that is over, and wake the callers that wait for its end."""
        activity = self.active.pop(job.job_id)
        self._begun.forget(job.job_id)
        self.table.drop_tasks(job.job_id)
        for producer_id in activity.attempts:
            self.by_producer.pop(producer_id, None)
        activity.ended.set()
