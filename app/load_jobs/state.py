"""The states and transitions of a load job, without a clock, a loop or a disk.

::

    open ──commit──> committing ──markers written──> committed
      └──abort, fence, timeout──> aborting ──markers written──> aborted

The record of ``committing`` is the decision to commit, with the producers whose records count. The record of
``aborting`` is the decision to abort. Either is final, whatever happens to the process.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from log_model.names import PartitionName

LOADED_COUNT_MAX = 5_000
"""Limit on the partitions whose rows are kept one by one: a job's record must fit into a batch."""


_NAME_BYTES = 60
_LOADED_BYTES = 256
"""About the memory that Python takes for a topic's name beside its text, and for the counts of one partition."""


class JobState(StrEnum):
    """The state of a job."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


class JobMode(StrEnum):
    """How a job's records arrive: in a transaction of each attempt, or by one idempotent producer of each task."""

    TRANSACTIONAL = "transactional"
    IDEMPOTENT = "idempotent"


class AbortReason(StrEnum):
    """Why a job was aborted."""

    ASKED = "asked"
    FENCED = "fenced"
    TIMED_OUT = "timed_out"


class Loaded(NamedTuple):
    """The writes of a job to one partition; ``size_bytes`` as far as this process has seen them."""

    partition: PartitionName
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One job. Immutable: a transition makes another object. Times are milliseconds since 1970."""

    job_id: str
    application_id: str
    version: int
    mode: JobMode
    timeout_ms: int
    topics: tuple[str, ...]
    begun_ms: int
    updated_ms: int
    state: JobState = JobState.OPEN
    winners: tuple[int, ...] = ()
    """Producer ids whose records count, sorted; none before the decision."""
    loaded: tuple[Loaded, ...] = ()
    """The writes of the winners in at most ``LOADED_COUNT_MAX`` partitions; none for an aborted job."""
    rows: int = 0
    size_bytes: int = 0
    """Bytes that the winners wrote in all."""
    reason: AbortReason | None = None
    task_count: int = 0
    """Number of tasks that had enlisted when the job was decided."""
    driver_id: str | None = None
    """The id that the deciding driver has given itself, by which it finds its jobs."""
    once: bool = False
    """Whether the application never begins this version again, so that a forgotten job leaves no trace."""

    @property
    def lists_bytes(self) -> int:
        """About the memory of the job's lists of topics and of partitions.

        Example: 10 topics with names of 20 ASCII characters hold 10 * (20 + 60) = 800 bytes.
        """
        return sum(_NAME_BYTES + len(name.encode()) for name in self.topics) + _LOADED_BYTES * len(self.loaded)

    @property
    def is_open(self) -> bool:
        """Whether the job takes attempts and records."""
        return self.state is JobState.OPEN

    @property
    def is_ending(self) -> bool:
        """Whether the job is decided and its markers are being written."""
        return self.state in (JobState.COMMITTING, JobState.ABORTING)

    @property
    def is_over(self) -> bool:
        """Whether readers see how the job ended."""
        return self.state in (JobState.COMMITTED, JobState.ABORTED)

    @property
    def commits(self) -> bool:
        """Whether the decision was to commit."""
        return self.state in (JobState.COMMITTING, JobState.COMMITTED)


def is_begun(job: LoadJob, made: LoadJob, *, join: bool) -> bool:
    """Return whether a request to begin ``made`` receives ``job`` instead. Both are jobs of one application.

    That is so if ``job`` has the same version and is committed, or open and to be joined, or open and begun by the same
    driver.
    """
    if job.version != made.version:
        return False
    # A request may be overtaken by its own repetition, whose job is under way when the first request arrives at last.
    is_own = made.driver_id is not None and job.driver_id == made.driver_id
    return job.commits or (job.is_open and job.mode is made.mode and (join or is_own))


def commit(job: LoadJob, winners: Iterable[int], loaded: Iterable[Loaded], task_count: int, now_ms: int) -> LoadJob:
    """Decide that the records of the winners count, and no other records."""
    _check_open(job)
    written = tuple(loaded)
    return replace(
        job,
        state=JobState.COMMITTING,
        winners=tuple(sorted(winners)),
        loaded=written[:LOADED_COUNT_MAX],
        rows=sum(each.rows for each in written),
        size_bytes=sum(each.size_bytes for each in written),
        task_count=task_count,
        updated_ms=now_ms,
    )


def abort(job: LoadJob, reason: AbortReason, task_count: int, now_ms: int) -> LoadJob:
    """Decide that no record counts."""
    _check_open(job)
    return replace(job, state=JobState.ABORTING, reason=reason, task_count=task_count, updated_ms=now_ms)


def complete(job: LoadJob, now_ms: int) -> LoadJob:
    """Return the job as it is once the markers are in every partition."""
    if not job.is_ending:
        raise AssertionError(f"job {job.job_id} is {job.state}, not being ended")
    return replace(job, state=JobState.COMMITTED if job.commits else JobState.ABORTED, updated_ms=now_ms)


def _check_open(job: LoadJob) -> None:
    if not job.is_open:
        raise AssertionError(f"job {job.job_id} is {job.state}: it is decided")


def without_lists(job: LoadJob) -> LoadJob:
    """Return a job that is over without its lists, to save memory: its end and its totals are kept."""
    return replace(job, topics=(), loaded=())


def newest_first(job: LoadJob) -> tuple[int, str]:
    """Return the sort key by which jobs are listed."""
    return -job.begun_ms, job.job_id


class Forgotten(NamedTuple):
    """The rest of an application's forgotten jobs: the highest committed version, and when the last was forgotten."""

    version: int
    at_ms: int


class JobTable:
    """Every job that is known, and the rest of forgotten jobs."""

    def __init__(self) -> None:
        self._jobs: dict[str, LoadJob] = {}
        self._of_application: dict[str, dict[str, None]] = {}
        self.open_lists_bytes = 0
        """Memory of the lists of jobs that are not over."""
        self.over_lists_bytes = 0
        """Memory of the lists of jobs that are over."""
        self._over: dict[str, None] = {}
        self._over_newest_first: list[tuple[int, str]] = []
        self._over_of_application: Counter[str] = Counter()
        self.forgotten: dict[str, Forgotten] = {}
        """The rest of forgotten jobs by application, the latest entry at the end; see ``keep_forgotten``."""
        self.tasks: dict[str, dict[int, int]] = {}
        """The producer id of each task, by the id of an idempotent job that is not over."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[LoadJob]:
        return iter(tuple(self._jobs.values()))

    @property
    def record_count(self) -> int:
        """Number of records that it takes to write the table down."""
        return len(self._jobs) + sum(map(len, self.tasks.values())) + len(self.forgotten)

    def find(self, job_id: str) -> LoadJob | None:
        """Return the job; ``None`` if it is unknown."""
        return self._jobs.get(job_id)

    def of_application(self, application_id: str) -> list[LoadJob]:
        """Return the application's jobs, the oldest first."""
        return [self._jobs[job_id] for job_id in self._of_application.get(application_id, ())]

    @property
    def over_count(self) -> int:
        """Number of jobs that are over."""
        return len(self._over)

    def over_while(self, is_old: Callable[[str], bool]) -> list[LoadJob]:
        """Return the jobs that ended first, up to the first that is not old. The time grows with the result alone."""
        return [self._jobs[job_id] for job_id in itertools.takewhile(is_old, self._over)]

    def over_beyond(self, count_max: int) -> list[LoadJob]:
        """Return the jobs that are over, except the ``count_max`` newest."""
        return [self._jobs[job_id] for _, job_id in self._over_newest_first[count_max:]]

    def over_beyond_of_each(self, count_max: int) -> list[LoadJob]:
        """Return the jobs that are over, except the ``count_max`` newest of each application."""
        crowded = [name for name, count in self._over_of_application.items() if count > count_max]
        return [
            job
            for name in crowded
            for job in sorted((job for job in self.of_application(name) if job.is_over), key=newest_first)[count_max:]
        ]

    def sort_over(self) -> None:
        """Put the jobs that are over in the order of their ends: a start reads them in any order."""
        self._over = dict.fromkeys(sorted(self._over, key=lambda job_id: self._jobs[job_id].updated_ms))

    def lists_to_drop(self, coming: Iterable[LoadJob], bytes_max: int) -> list[LoadJob]:
        """Return the jobs that must lose their lists when the jobs of ``coming`` are put, already without their lists.

        They are the jobs that ended first. Without their lists, all lists of jobs that are over hold at most
        ``bytes_max``. Jobs of ``coming`` keep their lists.
        """
        held_bytes = self.over_lists_bytes + sum(job.lists_bytes for job in coming if job.is_over)
        dropped = []
        for job_id in self._over:
            if held_bytes <= bytes_max:
                break
            lists_bytes = self._jobs[job_id].lists_bytes
            if lists_bytes:
                held_bytes -= lists_bytes
                dropped.append(without_lists(self._jobs[job_id]))
        return dropped

    def _count(self, job: LoadJob, sign: int) -> None:
        if job.is_over:
            self.over_lists_bytes += sign * job.lists_bytes
        else:
            self.open_lists_bytes += sign * job.lists_bytes

    def put(self, job: LoadJob) -> None:
        """Record a transition, or a new job."""
        before = self._jobs.get(job.job_id)
        if before is not None:
            self._count(before, -1)
        self._count(job, 1)
        if job.is_over and job.job_id not in self._over:
            self._over[job.job_id] = None
            insort(self._over_newest_first, newest_first(job))
            self._over_of_application[job.application_id] += 1
        self._jobs[job.job_id] = job
        self._of_application.setdefault(job.application_id, {})[job.job_id] = None

    def keep_forgotten(self, application_id: str, forgotten: Forgotten) -> None:
        """Record the rest of an application's forgotten jobs.

        A later call has a later ``at_ms``, unless the clock was set back.
        """
        self.forgotten.pop(application_id, None)
        self.forgotten[application_id] = forgotten

    def forgotten_while(self, is_old: Callable[[str], bool]) -> list[tuple[str, Forgotten]]:
        """Return the applications whose jobs were forgotten first, with the rest of these jobs.

        The result ends before the first application that is not old. The time grows with the result alone.
        """
        return list(itertools.takewhile(lambda left: is_old(left[0]), self.forgotten.items()))

    def drop_tasks(self, job_id: str) -> None:
        """Forget the producers of the tasks of a job that is over."""
        self.tasks.pop(job_id, None)

    def remove(self, job_id: str) -> None:
        """Forget a job, and the producers of its tasks."""
        gone = self._jobs.pop(job_id, None)
        self.tasks.pop(job_id, None)
        if gone is not None:
            self._count(gone, -1)
            if self._over.pop(job_id, 0) is None:
                del self._over_newest_first[bisect_left(self._over_newest_first, newest_first(gone))]
                self._over_of_application[gone.application_id] -= 1
                if not self._over_of_application[gone.application_id]:
                    del self._over_of_application[gone.application_id]
            others = self._of_application[gone.application_id]
            del others[job_id]
            if not others:
                del self._of_application[gone.application_id]
