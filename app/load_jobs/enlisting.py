"""Producer ids for the attempts of tasks."""

from __future__ import annotations

import functools

from app.engine.attempt_names import AttemptName
from app.engine.engine import Engine
from app.load_jobs import refusals
from app.load_jobs.progress import Attempt
from app.load_jobs.state import JobMode, LoadJob
from app.load_jobs.store import Activity, JobStore
from app.problems.problem import Problem
from log_model.errors import ConcurrentTransactionsError, StorageError


class Enlisting:
    """Enlists attempts in jobs that are open. Thread: the event loop."""

    def __init__(self, engine: Engine, store: JobStore) -> None:
        self._engine = engine
        self._store = store

    async def enlist(self, job_id: str, task: int, attempt: int) -> int:
        """Return the producer id of an attempt; see ``LoadJobs.enlist``."""
        job, activity = self._open(job_id)
        if len(activity.attempts) >= self._store.limits.attempt_count_max:
            raise refusals.overloaded(f"load job {job_id} has {len(activity.attempts)} attempts")
        activity.touched_ms = self._engine.protected_clock.elapsed_ms()
        if job.mode is JobMode.IDEMPOTENT:
            return await self._store.in_turn(job.application_id, functools.partial(self._enlist_task, job_id, task))
        return await self._store.tasks.run(self._enlist(job, task, attempt), f"enlisting in job {job_id}")

    async def _enlist(self, job: LoadJob, task: int, attempt: int) -> int:
        def name_of(producer_id: int) -> str:
            return str(AttemptName(job.job_id, task, attempt, producer_id, job.application_id))

        made = await self._engine.transactions.attempts.create(name_of)
        try:
            _, activity = self._open(job.job_id)
        except (Problem, StorageError):
            # The job was decided meanwhile, without this attempt. The guard keeps the attempt from writing.
            await self._engine.transactions.attempts.forget([made.transactional_id])
            raise
        self._store.note_attempt(activity, Attempt(made.producer_id, task, attempt, made.transactional_id))
        return made.producer_id

    async def _enlist_task(self, job_id: str, task: int) -> int:
        job, activity = self._open(job_id)
        known = self._store.table.tasks.get(job.job_id, {}).get(task)
        if known is not None:
            return known
        producer_id = (await self._engine.transactions.allocate()).producer_id
        await self._store.write_task(job_id, task, producer_id)
        self._store.note_attempt(activity, Attempt(producer_id, task, 0))
        return producer_id

    def _open(self, job_id: str) -> tuple[LoadJob, Activity]:
        job = self._store.find(job_id)
        activity = self._store.active.get(job_id)
        if not job.is_open or activity is None:
            raise refusals.invalid_state(job)
        if activity.is_deciding:
            raise ConcurrentTransactionsError(f"load job {job_id} is being decided")
        return job, activity
