"""The consequences of a decision: markers, forgotten attempts, and the record that the job is over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from app.engine.attempt_names import parse_attempt
from app.engine.engine import Engine
from app.engine.transactions import Attempts
from app.load_jobs import refusals, state
from app.load_jobs.state import LoadJob
from app.load_jobs.store import JobStore
from app.problems.problem import Problem
from log_model.errors import StorageError

logger = logging.getLogger(__name__)

RETRY_MS = 1_000


class JobEndings:
    """Carries each decision out in a task of its own, which tries until it succeeds. Thread: the event loop."""

    def __init__(self, engine: Engine, store: JobStore) -> None:
        self.is_stopping = False
        self._engine = engine
        self._store = store
        self._stopped = asyncio.Event()

    @property
    def _attempts(self) -> Attempts:
        return self._engine.transactions.attempts

    def stop(self) -> None:
        """Give up the ends that wait. The next start goes on with them."""
        self.is_stopping = True
        self._stopped.set()

    def begin(self, job: LoadJob) -> None:
        """Carry out the decision about this job in the background."""
        self._store.tasks.spawn(self._end(job), f"ending job {job.job_id}")

    async def _end(self, job: LoadJob) -> None:
        """Write the markers, forget the attempts, and record that the job is over. Repeat it all until it succeeds."""
        activity = self._store.activity_of(job)
        names = activity.names
        winners = {activity.attempts[each].name for each in job.winners if each in activity.attempts}
        while not self.is_stopping:
            try:
                await self._attempts.finish(names, winners)
                await self._attempts.forget(names)
                over = state.complete(job, self._engine.now_ms())
                await self._store.write_jobs([over], durable=False)
                break
            except (StorageError, Problem) as error:
                if not self.is_stopping:
                    logger.warning("the end of load job %s waits: %s", job.job_id, error)
                    await self._pause()
        else:
            activity.ended.set()
            return
        self._store.drop(job)

    async def clear(self, job_id: str, names: Sequence[str]) -> None:
        """End and forget the attempts that a start finds although their job is over or unknown."""
        job = self._store.table.find(job_id)
        winning = set(job.winners) if job is not None else set()
        winners = {name for name in names if parse_attempt(name).producer_id in winning}
        while not self.is_stopping:
            try:
                await self._attempts.finish(names, winners)
                await self._attempts.forget(names)
                return
            except (StorageError, Problem) as error:
                logger.warning("attempts of load job %s are left: %s", job_id, error)
                await self._pause()

    async def _pause(self) -> None:
        """Wait before another try, or until the service stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_MS / 1000):
                await self._stopped.wait()

    async def wait(self, job_ids: Sequence[str], wait_ms: int) -> None:
        """Return when these jobs are over, or after ``wait_ms``."""
        waits = [self._store.active[job_id].ended for job_id in job_ids if job_id in self._store.active]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                for ended in waits:
                    await ended.wait()

    async def ended(self, job_id: str, wait_ms: int) -> LoadJob:
        """Return the job once it is over.

        Raises:
            Problem: request_timed_out; or shutting_down_unfinished, and the next start ends the job.
        """
        await self.wait([job_id], wait_ms)
        job = self._store.find(job_id)
        if job.is_ending:
            raise refusals.ends_later(job) if self.is_stopping else refusals.too_late(job, wait_ms)
        return job
