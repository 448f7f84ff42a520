"""Load jobs on the event loop: every decision is durable in ``__load_jobs`` before it has consequences.

A task of its own carries out each decision and repeats its steps until they succeed. The next start begins it again.
Decisions of one application run one after the other, and one write to the log runs at a time.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence

from app.engine.appending import PendingAppend
from app.engine.attempt_names import parse_attempt
from app.engine.engine import Engine
from app.event_loop.piecewise import smallest
from app.load_jobs import refusals
from app.load_jobs.decisions import BegunJob, Decisions, Winner
from app.load_jobs.endings import JobEndings
from app.load_jobs.enlisting import Enlisting
from app.load_jobs.progress import Attempt, progress_of
from app.load_jobs.state import AbortReason, JobMode, Loaded, LoadJob, newest_first
from app.load_jobs.store import JobLimits, JobStore
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import (
    ConcurrentTransactionsError,
    PartitionOfflineError,
    ProducerFencedError,
    ShuttingDownError,
    StorageError,
)

logger = logging.getLogger(__name__)


class LoadJobs:
    """All load jobs of one data directory.

    Thread: the event loop. Call ``start`` before every other method.
    """

    def __init__(self, engine: Engine, limits: JobLimits | None = None) -> None:
        self._engine = engine
        self._limits = limits or JobLimits()
        self._transactions = engine.transactions
        self._store = JobStore(engine, self._limits)
        self._endings = JobEndings(engine, self._store)
        self._enlisting = Enlisting(engine, self._store)
        self._decisions = Decisions(engine, self._store, self._endings)
        self._failure: str | None = None
        self._loading: asyncio.Task[None] | None = None
        self._loaded = False
        self._transactions.attempts.guard = self._check_takes_records

    # Start and stop

    async def start(self) -> None:
        """Read the jobs that were known at the last stop, and go on ending the decided ones.

        A damaged log does not keep the service from starting. Jobs are then refused, and the reason is shown.
        """
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load(), name="reading load jobs")
        await asyncio.shield(self._loading)

    async def _load(self) -> None:
        await self._transactions.start()
        self._failure = self._transactions.failure
        if self._failure is not None:
            # The writes of the attempts are unknown: no job can be decided, and no job is over.
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
                self._endings.begin(job)
        for job_id, names in left_over.items():
            self._store.tasks.spawn(self._endings.clear(job_id, names), f"clearing up behind job {job_id}")

    async def close(self) -> None:
        """Finish the running work. Call ``stop`` first, and then end the operations that the work waits for."""
        await self._store.tasks.finished()

    def stop(self) -> None:
        """Take no more requests, and give up the ends that wait. The next start goes on with them."""
        self._endings.stop()

    @property
    def is_busy(self) -> bool:
        """Whether a job is being decided or ended."""
        return bool(self._store.tasks)

    async def _check_ready(self) -> None:
        if self._endings.is_stopping:
            raise ShuttingDownError("the service is stopping")
        await self.start()
        self._check_known()
        self._store.log.check_online()

    def _check_known(self) -> None:
        if not self._loaded:
            raise PartitionOfflineError(f"there are no load jobs: {self._failure or 'they are being read'}")

    # Looking

    def find(self, job_id: str) -> LoadJob:
        """Return the job.

        Raises:
            Problem: job_not_found.
            PartitionOfflineError: the log of jobs could not be read.
        """
        self._check_known()
        return self._store.find(job_id)

    async def page(
        self, is_shown: Callable[[LoadJob], bool], after: tuple[int, str] | None, limit: int
    ) -> list[LoadJob]:
        """Return the first ``limit`` jobs that are shown, the newest first, behind a job given by begin time and id."""
        jobs: Iterable[LoadJob] = self._store.table
        if after is not None:
            jobs = (job for job in jobs if newest_first(job) > (-after[0], after[1]))
        return await smallest(jobs, limit, newest_first, is_shown)

    def open_count(self) -> int:
        """Return the number of jobs that are not over."""
        return len(self._store.active)

    def application_of(self, producer_id: int) -> str | None:
        """Return the application of the open job that an attempt with this producer belongs to."""
        known = self._store.by_producer.get(producer_id)
        return None if known is None else known[0].application_id

    @property
    def largest_producer_id(self) -> int:
        """The largest producer id that an open job has given to an attempt; -1 for none."""
        return max(self._store.by_producer, default=-1)

    def attempt_count(self, job: LoadJob) -> int:
        """Return the number of attempts that have enlisted; 0 if the job is over."""
        activity = self._store.active.get(job.job_id)
        return 0 if activity is None else len(activity.attempts)

    def elapsed_ms(self, job: LoadJob) -> int:
        """Return the milliseconds that the job has run, or ran."""
        return self._store.elapsed_ms(job)

    def task_count(self, job: LoadJob) -> int:
        """Return the number of tasks that have enlisted."""
        return self._store.task_count(job)

    async def loaded(self, job: LoadJob) -> tuple[Sequence[Loaded], int, int]:
        """Return the job's writes by partition, and its rows and bytes in all.

        While the job is open, the writes of every attempt count.
        """
        activity = self._store.active.get(job.job_id)
        if not job.is_open or activity is None:
            return job.loaded, job.rows, job.size_bytes
        loaded, _ = await progress_of(self._engine, job, activity.attempts.values())
        return loaded, sum(each.rows for each in loaded), sum(each.size_bytes for each in loaded)

    # Incoming records

    def note_append(self, batches: Sequence[ValidBatch], pending: PendingAppend) -> None:
        """Count an append of attempts: as a sign of life of their jobs, and its bytes once they are written.

        An append that the log refuses is also a sign of life. Appends of other producers do not count.

        Each caller that submits batches of clients must call this method.
        """
        for batch in batches:
            known = self._store.by_producer.get(batch.header.producer_id)
            if known is not None:
                activity, attempt = known
                activity.touched_ms = self._engine.protected_clock.elapsed_ms()
                attempt.watch(pending, batch)

    def _check_takes_records(self, name: str) -> None:
        """Return if the attempt with this name may take records; see ``Attempts.guard``."""
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
        """Return a job in which to write this version of an application's data, or the job that has committed it.

        Every other open job of the application is aborted first. With ``join`` the application's open job of this
        version is returned instead, and belongs to this driver from then on. An open job of this version that this
        ``driver_id`` has begun is also returned, so that a late or repeated request begins no other job. The call waits
        at most ``wait_ms`` for the markers of the aborted jobs, which are decided in any case. With ``once`` the
        application never begins this version again after the job is forgotten, and no trace of it is kept then.

        Raises:
            Problem: job_version_forgotten; job_topics_differ; overloaded; a timeout above the limit.
            StorageError: the change could not be written down.
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
        begun, fenced = await self._decisions.begin(made, join=join)
        await self._endings.wait([*fenced, begun.job.job_id] if begun.job.is_ending else fenced, wait_ms)
        return BegunJob(self._store.table.find(begun.job.job_id) or begun.job, begun.is_new)

    # Enlist

    async def enlist(self, job_id: str, task: int, attempt: int) -> int:
        """Return a producer id of epoch 0 for one attempt of a task: a new id each time, unless the job is idempotent.

        Raises:
            Problem: job_not_found, invalid_job_state, overloaded.
            StorageError: the change could not be written down.
        """
        await self._check_ready()
        return await self._enlisting.enlist(job_id, task, attempt)

    # Decide

    async def commit(self, job_id: str, winners: Sequence[Winner], wait_ms: int) -> LoadJob:
        """Let the records of the winners count, and no other records. On return every reader sees it.

        A repeated call with the same winners succeeds and changes nothing.

        Raises:
            Problem: job_not_found, invalid_job_state, job_incomplete, overloaded, request_timed_out, or a winner that
                cannot be one.
            StorageError: a partition of a winner is offline, or the decision could not be written down.
        """
        await self._check_ready()
        await self._decisions.commit(self.find(job_id), winners)
        return await self._endings.ended(job_id, wait_ms)

    async def abort(self, job_id: str, wait_ms: int, reason: AbortReason = AbortReason.ASKED) -> LoadJob:
        """Let no record count, unless the job is committed: it stays committed. On return every reader sees it.

        Raises:
            Problem: job_not_found, request_timed_out, overloaded.
            StorageError: the decision could not be written down.
        """
        await self._check_ready()
        await self._decisions.abort(self.find(job_id), reason)
        return await self._endings.ended(job_id, wait_ms)

    # Background

    async def run_jobs(self) -> None:
        """Abort timed-out jobs, forget expired ones, and shorten the log, as far as that is due."""
        if not self._loaded or self._endings.is_stopping:
            return
        await self._decisions.abort_timed_out()
        await self._store.expire()
