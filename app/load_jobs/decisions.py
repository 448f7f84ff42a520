"""Decisions about jobs: begin, commit and abort, each made while no other decision runs for the application."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.engine.engine import Engine
from app.load_jobs import refusals, state
from app.load_jobs.endings import JobEndings
from app.load_jobs.progress import Attempt, is_row_count, progress_of
from app.load_jobs.state import AbortReason, LoadJob
from app.load_jobs.store import Activity, JobStore
from app.problems.problem import Problem
from log_model.errors import PartitionFailedError, StorageError

logger = logging.getLogger(__name__)


class Winner(NamedTuple):
    """A producer whose records count, and the number of its records; with ``None`` the number is not checked."""

    producer_id: int
    rows: int | None = None


class BegunJob(NamedTuple):
    """The job to write in, or the job that has written already; ``is_new`` if it did not exist before."""

    job: LoadJob
    is_new: bool


class Decisions:
    """Makes decisions durable and hands them to ``JobEndings``. Thread: the event loop."""

    def __init__(self, engine: Engine, store: JobStore, endings: JobEndings) -> None:
        self._engine = engine
        self._store = store
        self._endings = endings

    async def begin(self, made: LoadJob, *, join: bool) -> tuple[BegunJob, list[str]]:
        """Begin ``made`` unless its version has a job; see ``LoadJobs.begin``. Also return the ids of the aborted jobs.

        Raises:
            The errors of ``LoadJobs.begin``.
        """
        return await self._store.in_turn(made.application_id, functools.partial(self._begin, made, join))

    async def commit(self, job: LoadJob, winners: Sequence[Winner]) -> None:
        """Decide to commit these winners; see ``LoadJobs.commit``."""
        await self._store.in_turn(job.application_id, functools.partial(self._commit, job.job_id, winners))

    async def abort(self, job: LoadJob, reason: AbortReason) -> None:
        """Decide to abort the job if it is open; see ``LoadJobs.abort``."""
        await self._store.in_turn(job.application_id, functools.partial(self._abort, job.job_id, reason))

    async def abort_timed_out(self) -> None:
        """Decide to abort every job without a sign of life for longer than its timeout."""
        for job_id in tuple(self._store.active):
            job, activity = self._store.table.find(job_id), self._store.active.get(job_id)
            if job is not None and activity is not None and job.is_open and self._is_timed_out(job, activity):
                try:
                    await self.abort(job, AbortReason.TIMED_OUT)
                except (StorageError, Problem) as error:
                    # A job that cannot be aborted must not keep the next one from being aborted.
                    logger.warning("load job %s is too old and cannot be aborted: %s", job_id, error)

    async def _begin(self, made: LoadJob, join: bool) -> tuple[BegunJob, list[str]]:
        others = self._store.table.of_application(made.application_id)
        for job in others:
            if state.is_begun(job, made, join=join):
                refusals.check_topics(job, made.topics)
                return BegunJob(await self._handed_over(job, made.driver_id), False), []
        forgotten = self._store.table.forgotten.get(made.application_id)
        if forgotten is not None and made.version <= forgotten.version:
            raise refusals.version_forgotten(made.application_id, made.version, forgotten.version)
        if len(self._store.active) >= self._store.limits.count_max:
            raise refusals.overloaded(f"there are {len(self._store.active)} load jobs open")
        doomed = [job for job in others if job.is_open]
        with self._store.room_for_lists(made):
            await self._abort_all(doomed, AbortReason.FENCED, made)
        self._store.activity_of(made)
        return BegunJob(made, True), [job.job_id for job in doomed]

    async def _handed_over(self, job: LoadJob, driver_id: str | None) -> LoadJob:
        """Return the job. If it is open and another driver is given, hand it over: the earlier driver is dead."""
        if driver_id in (None, job.driver_id) or not job.is_open:
            return job
        handed_over = replace(job, driver_id=driver_id)
        await self._store.write_jobs([handed_over])
        return handed_over

    async def _commit(self, job_id: str, winners: Sequence[Winner]) -> None:
        job = self._store.find(job_id)
        if job.commits and set(job.winners) == {winner.producer_id for winner in winners}:
            return
        activity = self._store.active.get(job_id)
        if not job.is_open or activity is None:
            raise refusals.invalid_state(job)
        chosen = [_attempt_of(activity.attempts, place, winner) for place, winner in enumerate(winners)]
        refusals.check_one_of_each_task(chosen)

        async def decision() -> None:
            loaded, rows = await progress_of(self._engine, job, chosen)
            for producer_id, expected in winners:
                there = rows.get(producer_id, 0)
                if expected is not None and not is_row_count(there, expected):
                    raise refusals.incomplete(job_id, producer_id, expected, there)
            ids = [attempt.producer_id for attempt in chosen]
            decided = state.commit(job, ids, loaded, activity.task_count, self._engine.now_ms())
            try:
                await self._store.write_jobs([decided])
            except PartitionFailedError:
                # It is unknown whether the job is decided. It takes no records until the next start reads the log.
                activity.is_unknown = True
                raise

        activity.is_deciding = True
        try:
            names = [attempt.name for attempt in chosen if attempt.name]
            await self._engine.transactions.attempts.decide(activity.names, names, decision)
        finally:
            activity.is_deciding = activity.is_unknown
        self._endings.begin(self._store.find(job_id))

    async def _abort(self, job_id: str, reason: AbortReason) -> None:
        job = self._store.find(job_id)
        activity = self._store.active.get(job_id)
        is_late = activity is not None and not self._is_timed_out(job, activity)
        if job.is_open and not (reason is AbortReason.TIMED_OUT and is_late):
            await self._abort_all([job], reason)

    async def _abort_all(self, jobs: Sequence[LoadJob], reason: AbortReason, made: LoadJob | None = None) -> None:
        """Decide to abort jobs, and begin ``made`` in the same write."""
        now_ms = self._engine.now_ms()
        decided = [state.abort(job, reason, self._store.task_count(job), now_ms) for job in jobs]
        await self._store.write_jobs([*decided, *([made] if made is not None else [])])
        for job in decided:
            logger.warning("load job %s of %r is aborted: %s", job.job_id, job.application_id, reason.value)
            self._endings.begin(job)

    def _is_timed_out(self, job: LoadJob, activity: Activity) -> bool:
        idle_ms = self._engine.protected_clock.elapsed_ms() - activity.touched_ms
        return not activity.is_deciding and idle_ms > job.timeout_ms


def _attempt_of(attempts: Mapping[int, Attempt], place: int, winner: Winner) -> Attempt:
    found = attempts.get(winner.producer_id)
    if found is None:
        raise refusals.unknown_winner(place, winner.producer_id)
    return found
