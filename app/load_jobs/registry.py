"""Load jobs on the event loop: every decision durable in ``__load_jobs`` before anything follows from it.

A decision is carried out by a task of its own until it is done, and begun again by the next start. What runs for one
application runs one after the other; the log is written by one at a time.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.engine.attempt_names import AttemptName, parse_attempt
from app.engine.engine import Engine
from app.event_loop.piecewise import smallest
from app.load_jobs import refusals, state
from app.load_jobs.progress import Attempt, Progress, WatchedAppend, is_row_count, progress_of
from app.load_jobs.state import AbortReason, JobMode, Loaded, LoadJob, newest_first
from app.load_jobs.store import Activity, JobLimits, JobStore
from app.problems.problem import Problem
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import (
    ConcurrentTransactionsError,
    PartitionFailedError,
    PartitionOfflineError,
    ProducerFencedError,
    ShuttingDownError,
    StorageError,
)

logger = logging.getLogger(__name__)

RETRY_MS = 1_000


class Winner(NamedTuple):
    """A producer whose records count, and how many those must be; ``None``: not checked."""

    producer_id: int
    rows: int | None = None


class BegunJob(NamedTuple):
    """The job to write in, or the one that has written already; ``is_new`` if it did not exist before."""

    job: LoadJob
    is_new: bool


class LoadJobs:
    """All load jobs of one data directory.

    Thread: the event loop. ``start`` comes before everything else.
    """

    def __init__(self, engine: Engine, limits: JobLimits | None = None) -> None:
        self._engine = engine
        self._limits = limits or JobLimits()
        self._transactions = engine.transactions
        self._store = JobStore(engine, self._limits)
        self._hurry = asyncio.Event()
        self._stopping = False
        self._failure: str | None = None
        self._loading: asyncio.Task[None] | None = None
        self._loaded = False
        self._transactions.attempts.guard = self._check_takes_records

    # The life of it

    async def start(self) -> None:
        """Read what was known at the last stop, and go on ending what was decided then.

        A damaged log does not keep the service from starting: jobs are refused then, and the reason is shown.
        """
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load(), name="reading load jobs")
        await asyncio.shield(self._loading)

    async def _load(self) -> None:
        await self._transactions.start()
        self._failure = self._transactions.failure
        if self._failure is not None:
            # What their attempts have written is not known: nothing can be decided, and nothing is over.
            return
        try:
            await self._store.load()
        except (StorageError, OSError) as error:
            self._failure = str(error)
            logger.error("there are no load jobs: %s", error)
            return
        self._loaded = True
        left_over: dict[str, list[str]] = {}
        for transaction in await self._transactions.attempts.all():
            name = transaction.transactional_id
            parsed = parse_attempt(name)
            job = self._store.table.find(parsed.job_id)
            if job is None or job.is_over:
                left_over.setdefault(parsed.job_id, []).append(name)
            else:
                attempt = Attempt(transaction.producer_id, parsed.task, parsed.attempt, name)
                self._store.note_attempt(self._store.activity_of(job), attempt)
        for job in self._store.table:
            if not job.is_over:
                activity = self._store.activity_of(job)
                for task, producer_id in self._store.table.tasks.get(job.job_id, {}).items():
                    self._store.note_attempt(activity, Attempt(producer_id, task, 0))
            if job.is_ending:
                self._begin_ending(job)
        for job_id, names in left_over.items():
            self._store.spawn(self._clear(job_id, names), f"clearing up behind job {job_id}")

    async def close(self) -> None:
        """Finish what runs; call ``stop`` first, and then end what it waits for."""
        while self._store.tasks:
            await asyncio.wait(tuple(self._store.tasks))

    def stop(self) -> None:
        """Take nothing more, and give up what waits; the next start goes on with it."""
        self._stopping = True
        self.hurry()

    def hurry(self) -> None:
        """Try again now what waits for its next attempt."""
        self._hurry.set()
        self._hurry = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether something is being decided or ended."""
        return bool(self._store.tasks)

    async def _check_ready(self) -> None:
        if self._stopping:
            raise ShuttingDownError("the service is stopping")
        await self.start()
        self._check_known()
        self._store.log.check_online()

    def _check_known(self) -> None:
        if not self._loaded:
            raise PartitionOfflineError(f"there are no load jobs: {self._failure or 'they are being read'}")

    # Looking

    def find(self, job_id: str) -> LoadJob:
        """What is known of a job.

        Raises:
            Problem: job_not_found.
            PartitionOfflineError: nobody can tell.
        """
        self._check_known()
        job = self._store.table.find(job_id)
        if job is None:
            raise refusals.not_found(job_id)
        return job

    async def page(
        self, is_shown: Callable[[LoadJob], bool], after: tuple[int, str] | None, limit: int
    ) -> list[LoadJob]:
        """The first ``limit`` jobs that are shown, the newest first, behind the one begun at a time with an id."""
        jobs: Iterable[LoadJob] = self._store.table
        if after is not None:
            jobs = (job for job in jobs if newest_first(job) > (-after[0], after[1]))
        return await smallest(jobs, limit, newest_first, is_shown)

    def open_count(self) -> int:
        """Jobs that are not over."""
        return len(self._store.active)

    def application_of(self, producer_id: int) -> str | None:
        """The application of the open job that an attempt with this producer belongs to."""
        known = self._store.by_producer.get(producer_id)
        return None if known is None else known[0].application_id

    @property
    def largest_producer_id(self) -> int:
        """The largest producer id that an open job has given to an attempt; -1 for none."""
        return max(self._store.by_producer, default=-1)

    def attempt_count(self, job: LoadJob) -> int:
        """Attempts that have enlisted; 0 when the job is over."""
        activity = self._store.active.get(job.job_id)
        return 0 if activity is None else len(activity.attempts)

    def elapsed_ms(self, job: LoadJob) -> int:
        """How long the job has run, or ran."""
        return self._store.elapsed_ms(job)

    def task_count(self, job: LoadJob) -> int:
        """Tasks that have enlisted."""
        activity = self._store.active.get(job.job_id)
        return job.task_count if activity is None or not job.is_open else activity.task_count

    async def loaded(self, job: LoadJob) -> tuple[Sequence[Loaded], int, int]:
        """What the job has written, by partition, and its rows and bytes in all: of every attempt while it is open."""
        activity = self._store.active.get(job.job_id)
        if not job.is_open or activity is None:
            return job.loaded, job.rows, job.size_bytes
        loaded, _ = await self._progress_of(job, activity.attempts.values())
        return loaded, sum(each.rows for each in loaded), sum(each.size_bytes for each in loaded)

    async def _progress_of(self, job: LoadJob, attempts: Iterable[Attempt]) -> Progress:
        return await progress_of(self._engine, attempts, job.topics if job.mode is JobMode.IDEMPOTENT else None)

    # Records on their way

    def note_append(self, batches: Sequence[ValidBatch], pending: WatchedAppend) -> None:
        """Count an append of attempts, also one that the log refuses, as a sign of life of their jobs, and its bytes
        once they are written. Nothing for any other producer.

        Whoever puts batches of clients into a mailbox has to call it.
        """
        for batch in batches:
            known = self._store.by_producer.get(batch.header.producer_id)
            if known is not None:
                activity, attempt = known
                activity.touched_ms = self._engine.protected_clock.elapsed_ms()
                attempt.watch(pending, batch)

    def _check_takes_records(self, name: str) -> None:
        """What the transactions ask before an attempt takes records; see ``Attempts.guard``."""
        self._check_known()
        job_id = parse_attempt(name).job_id
        job = self._store.table.find(job_id)
        activity = self._store.active.get(job_id)
        if job is None or activity is None or not job.is_open:
            ended = "gone" if job is None else job.state.value
            raise ProducerFencedError(f"load job {job_id} is {ended}: its attempts write nothing more")
        if activity.is_deciding:
            raise ConcurrentTransactionsError(f"load job {job_id} is being decided")

    # Begin

    async def begin(
        self,
        application_id: str,
        version: int,
        *,
        mode: JobMode,
        timeout_ms: int,
        topics: Sequence[str],
        join: bool,
        wait_ms: int,
        driver_id: str | None = None,
        once: bool = False,
    ) -> BegunJob:
        """A job to write this version of an application's data in; or the one that has done so, committed.

        Whatever else the application has open is aborted first; with ``join`` its open job of this version is the
        answer instead, and is this driver's from then on. So is one that this ``driver_id`` has begun: a request that
        was late, or is sent again, begins nothing. Waits at most ``wait_ms`` for the markers of those; they are
        decided in any case. With ``once`` nobody begins this version again after the job is forgotten: nothing of it
        is kept then.

        Raises:
            Problem: job_version_forgotten; job_topics_differ; overloaded; a timeout above the limit.
            StorageError: it could not be written down.
        """
        await self._check_ready()
        if timeout_ms > self._limits.timeout_ms_max:
            raise refusals.timeout_too_long(timeout_ms, self._limits.timeout_ms_max)
        made = LoadJob(
            job_id=secrets.token_hex(8),
            application_id=application_id,
            version=version,
            mode=mode,
            timeout_ms=timeout_ms,
            topics=tuple(topics),
            begun_ms=self._engine.now_ms(),
            updated_ms=self._engine.now_ms(),
            driver_id=driver_id,
            once=once,
        )
        begun, fenced = await self._store.in_turn(application_id, functools.partial(self._begin, made, join))
        await self._wait([*fenced, begun.job.job_id] if begun.job.is_ending else fenced, wait_ms)
        return BegunJob(self._store.table.find(begun.job.job_id) or begun.job, begun.is_new)

    async def _begin(self, made: LoadJob, join: bool) -> tuple[BegunJob, list[str]]:
        others = self._store.table.of_application(made.application_id)
        for job in others:
            if state.is_begun(job, made, join=join):
                refusals.check_topics(job, made.topics)
                return BegunJob(await self._handed_over(job, made.driver_id), False), []
        forgotten = self._store.table.forgotten.get(made.application_id)
        if forgotten is not None and made.version <= forgotten.version:
            raise refusals.version_forgotten(made.application_id, made.version, forgotten.version)
        if len(self._store.active) >= self._limits.count_max:
            raise refusals.overloaded(f"there are {len(self._store.active)} load jobs open")
        doomed = [job for job in others if job.is_open]
        with self._store.room_for_lists(made):
            await self._abort_all(doomed, AbortReason.FENCED, made)
        self._store.activity_of(made)
        return BegunJob(made, True), [job.job_id for job in doomed]

    async def _handed_over(self, job: LoadJob, driver_id: str | None) -> LoadJob:
        """The job, in the hands of another driver if it is open and there is one: the one before is dead."""
        if driver_id in (None, job.driver_id) or not job.is_open:
            return job
        handed_over = replace(job, driver_id=driver_id)
        await self._store.write_jobs([handed_over])
        return handed_over

    # Enlist

    async def enlist(self, job_id: str, task: int, attempt: int) -> int:
        """A producer id, epoch 0, for one attempt of a task: a fresh one each time, unless the job is idempotent.

        Raises:
            Problem: job_not_found, invalid_job_state, overloaded.
            StorageError: it could not be written down.
        """
        await self._check_ready()
        job, activity = self._open(job_id)
        if len(activity.attempts) >= self._limits.attempt_count_max:
            raise refusals.overloaded(f"load job {job_id} has {len(activity.attempts)} attempts")
        activity.touched_ms = self._engine.protected_clock.elapsed_ms()
        if job.mode is JobMode.IDEMPOTENT:
            return await self._store.in_turn(job.application_id, functools.partial(self._enlist_task, job_id, task))
        return await self._store.apart(self._enlist(job, task, attempt), f"enlisting in job {job_id}")

    async def _enlist(self, job: LoadJob, task: int, attempt: int) -> int:
        def name_of(producer_id: int) -> str:
            return str(AttemptName(job.job_id, task, attempt, producer_id, job.application_id))

        made = await self._transactions.attempts.create(name_of)
        try:
            _, activity = self._open(job.job_id)
        except (Problem, StorageError):
            # Decided meanwhile: nobody knew of this one, and the guard keeps it from writing.
            await self._transactions.attempts.forget([made.transactional_id])
            raise
        self._store.note_attempt(activity, Attempt(made.producer_id, task, attempt, made.transactional_id))
        return made.producer_id

    async def _enlist_task(self, job_id: str, task: int) -> int:
        job, activity = self._open(job_id)
        known = self._store.table.tasks.get(job.job_id, {}).get(task)
        if known is not None:
            return known
        producer_id = (await self._transactions.allocate()).producer_id
        await self._store.write_task(job_id, task, producer_id)
        self._store.note_attempt(activity, Attempt(producer_id, task, 0))
        return producer_id

    def _open(self, job_id: str) -> tuple[LoadJob, Activity]:
        job = self.find(job_id)
        activity = self._store.active.get(job_id)
        if not job.is_open or activity is None:
            raise refusals.invalid_state(job)
        if activity.is_deciding:
            raise ConcurrentTransactionsError(f"load job {job_id} is being decided")
        return job, activity

    # Decide

    async def commit(self, job_id: str, winners: Sequence[Winner], wait_ms: int) -> LoadJob:
        """Let the records of the winners count, and no others. When this returns every reader sees it.

        The same winners again are a success, and nothing more.

        Raises:
            Problem: job_not_found, invalid_job_state, job_incomplete, overloaded, request_timed_out, or a winner that
                cannot be one.
            StorageError: a partition of a winner is offline, or it could not be written down.
        """
        await self._check_ready()
        job = self.find(job_id)
        await self._store.in_turn(job.application_id, functools.partial(self._commit, job_id, winners))
        return await self._ended(job_id, wait_ms)

    async def _commit(self, job_id: str, winners: Sequence[Winner]) -> None:
        job = self.find(job_id)
        if job.commits and set(job.winners) == {winner.producer_id for winner in winners}:
            return
        activity = self._store.active.get(job_id)
        if not job.is_open or activity is None:
            raise refusals.invalid_state(job)
        chosen = [_attempt_of(activity.attempts, place, winner) for place, winner in enumerate(winners)]
        refusals.check_one_of_each_task(chosen)

        async def decision() -> None:
            loaded, rows = await self._progress_of(job, chosen)
            for producer_id, expected in winners:
                there = rows.get(producer_id, 0)
                if expected is not None and not is_row_count(there, expected):
                    raise refusals.incomplete(job_id, producer_id, expected, there)
            ids = [attempt.producer_id for attempt in chosen]
            decided = state.commit(job, ids, loaded, activity.task_count, self._engine.now_ms())
            try:
                await self._store.write_jobs([decided])
            except PartitionFailedError:
                # Nobody knows whether it is decided. It stays shut until the next start reads what the log has.
                activity.is_unknown = True
                raise

        activity.is_deciding = True
        try:
            names = [attempt.name for attempt in chosen if attempt.name]
            await self._transactions.attempts.decide(activity.names, names, decision)
        finally:
            activity.is_deciding = activity.is_unknown
        self._begin_ending(self.find(job_id))

    async def abort(self, job_id: str, wait_ms: int, reason: AbortReason = AbortReason.ASKED) -> LoadJob:
        """Let no record count, unless the job is committed: that stays so. When this returns every reader sees it.

        Raises:
            Problem: job_not_found, request_timed_out, overloaded.
            StorageError: it could not be written down.
        """
        await self._check_ready()
        job = self.find(job_id)
        await self._store.in_turn(job.application_id, functools.partial(self._abort, job_id, reason))
        return await self._ended(job_id, wait_ms)

    async def _abort(self, job_id: str, reason: AbortReason) -> None:
        job = self.find(job_id)
        activity = self._store.active.get(job_id)
        is_late = activity is not None and not self._is_timed_out(job, activity)
        if job.is_open and not (reason is AbortReason.TIMED_OUT and is_late):
            await self._abort_all([job], reason)

    async def _abort_all(self, jobs: Sequence[LoadJob], reason: AbortReason, made: LoadJob | None = None) -> None:
        """Decide to abort jobs, and begin another with the same write."""
        now_ms = self._engine.now_ms()
        decided = [state.abort(job, reason, self.task_count(job), now_ms) for job in jobs]
        await self._store.write_jobs([*decided, *([made] if made is not None else [])])
        for job in decided:
            logger.warning("load job %s of %r is aborted: %s", job.job_id, job.application_id, reason.value)
            self._begin_ending(job)

    # Carry out

    def _begin_ending(self, job: LoadJob) -> None:
        self._store.spawn(self._end(job), f"ending job {job.job_id}")

    async def _end(self, job: LoadJob) -> None:
        """Write the markers, forget the attempts, note that the job is over: again and again, until it is done."""
        activity = self._store.activity_of(job)
        names = activity.names
        winners = {activity.attempts[each].name for each in job.winners if each in activity.attempts}
        while not self._stopping:
            try:
                await self._transactions.attempts.finish(names, winners)
                await self._transactions.attempts.forget(names)
                over = state.complete(job, self._engine.now_ms())
                await self._store.write_jobs([over], durable=False)
                break
            except (StorageError, Problem) as error:
                if not self._stopping:
                    logger.warning("the end of load job %s waits: %s", job.job_id, error)
                    await self._pause()
        else:
            activity.ended.set()
            return
        self._store.drop(job)

    async def _clear(self, job_id: str, names: Sequence[str]) -> None:
        """End and forget attempts of a job that is over or that nobody knows, as a start finds them."""
        job = self._store.table.find(job_id)
        winning = set(job.winners) if job is not None else set()
        winners = {name for name in names if parse_attempt(name).producer_id in winning}
        while not self._stopping:
            try:
                await self._transactions.attempts.finish(names, winners)
                await self._transactions.attempts.forget(names)
                return
            except (StorageError, Problem) as error:
                logger.warning("attempts of load job %s are left: %s", job_id, error)
                await self._pause()

    async def _pause(self) -> None:
        hurry = self._hurry
        try:
            async with asyncio.timeout(RETRY_MS / 1000):
                await hurry.wait()
        except TimeoutError:
            pass

    async def _ended(self, job_id: str, wait_ms: int) -> LoadJob:
        await self._wait([job_id], wait_ms)
        job = self.find(job_id)
        if job.is_ending:
            raise refusals.ends_later(job) if self._stopping else refusals.too_late(job, wait_ms)
        return job

    async def _wait(self, job_ids: Sequence[str], wait_ms: int) -> None:
        """Return when these jobs are over, or after that time."""
        waits = [self._store.active[job_id].ended for job_id in job_ids if job_id in self._store.active]
        try:
            async with asyncio.timeout(wait_ms / 1000):
                for ended in waits:
                    await ended.wait()
        except TimeoutError:
            pass

    # Background

    async def run_jobs(self) -> None:
        """What must be done from time to time: timeouts, expiry, a shorter log."""
        if not self._loaded or self._stopping:
            return
        for job_id in tuple(self._store.active):
            job, activity = self._store.table.find(job_id), self._store.active.get(job_id)
            if job is not None and activity is not None and job.is_open and self._is_timed_out(job, activity):
                call = functools.partial(self._abort, job_id, AbortReason.TIMED_OUT)
                try:
                    await self._store.in_turn(job.application_id, call)
                except (StorageError, Problem) as error:
                    # One that cannot be aborted now keeps no other open.
                    logger.warning("load job %s is too old and cannot be aborted: %s", job_id, error)
        await self._store.expire()

    def _is_timed_out(self, job: LoadJob, activity: Activity) -> bool:
        idle_ms = self._engine.protected_clock.elapsed_ms() - activity.touched_ms
        return not activity.is_deciding and idle_ms > job.timeout_ms


def _attempt_of(attempts: Mapping[int, Attempt], place: int, winner: Winner) -> Attempt:
    found = attempts.get(winner.producer_id)
    if found is None:
        raise refusals.unknown_winner(place, winner.producer_id)
    return found
