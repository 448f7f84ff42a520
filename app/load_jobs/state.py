"""What a load job may become, without a clock, a loop or a disk.

::

    open ──commit──> committing ──markers written──> committed
      └──abort, fence, timeout──> aborting ──markers written──> aborted

The record of ``committing`` is the decision, with the producers whose records count; that of ``aborting`` is the other
one. Either is final, whatever happens to the process.
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
"""Partitions whose rows are kept one by one: a job's record must fit into a batch."""


_NAME_BYTES = 60
_LOADED_BYTES = 256
"""About what Python takes for a name of a topic beside its text, and for what was loaded into a partition."""


class JobState(StrEnum):
    """Where a job is."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


class JobMode(StrEnum):
    """How its records arrive: in a transaction of each attempt, or by one idempotent producer of each task."""

    TRANSACTIONAL = "transactional"
    IDEMPOTENT = "idempotent"


class AbortReason(StrEnum):
    """Why a job was aborted."""

    ASKED = "asked"
    FENCED = "fenced"
    TIMED_OUT = "timed_out"


class Loaded(NamedTuple):
    """What a job has written to one partition; ``size_bytes`` as far as this process has seen it."""

    partition: PartitionName
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One job. Immutable: a transition makes another. Times are milliseconds since 1970."""

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
    """What the winners wrote, by partition, of at most ``LOADED_COUNT_MAX``; of an aborted job nothing."""
    rows: int = 0
    size_bytes: int = 0
    """What they wrote in all."""
    reason: AbortReason | None = None
    task_count: int = 0
    """Tasks that had enlisted when it was decided."""
    driver_id: str | None = None
    """Of whoever decides it, in words of its own: it finds its jobs by this."""
    once: bool = False
    """Nobody begins this version again, so that nothing is kept of it once it is forgotten."""

    @property
    def lists_bytes(self) -> int:
        """About what its lists of topics and of partitions hold in memory.

        Example: 10 topics with names of 20 ASCII characters hold 10 * (20 + 60) = 800 bytes.
        """
        return sum(_NAME_BYTES + len(name.encode()) for name in self.topics) + _LOADED_BYTES * len(self.loaded)

    @property
    def is_open(self) -> bool:
        """Whether it takes attempts and records."""
        return self.state is JobState.OPEN

    @property
    def is_ending(self) -> bool:
        """Whether it is decided and its markers are being written."""
        return self.state in (JobState.COMMITTING, JobState.ABORTING)

    @property
    def is_over(self) -> bool:
        """Whether readers see how it ended."""
        return self.state in (JobState.COMMITTED, JobState.ABORTED)

    @property
    def commits(self) -> bool:
        """Whether it was decided to commit."""
        return self.state in (JobState.COMMITTING, JobState.COMMITTED)


def is_begun(job: LoadJob, made: LoadJob, *, join: bool) -> bool:
    """Whether ``job`` is the answer to who would begin ``made``, both of one application: the version is committed, or
    open and to be joined, or open and begun by the same driver."""
    if job.version != made.version:
        return False
    # A request may be overtaken by its own repetition, whose job is under way when the first one arrives at last.
    is_own = made.driver_id is not None and job.driver_id == made.driver_id
    return job.commits or (job.is_open and job.mode is made.mode and (join or is_own))


def commit(job: LoadJob, winners: Iterable[int], loaded: Iterable[Loaded], task_count: int, now_ms: int) -> LoadJob:
    """Decide that the records of the winners count, and no others."""
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
    """The markers are in every partition."""
    if not job.is_ending:
        raise AssertionError(f"job {job.job_id} is {job.state}, not being ended")
    return replace(job, state=JobState.COMMITTED if job.commits else JobState.ABORTED, updated_ms=now_ms)


def _check_open(job: LoadJob) -> None:
    if not job.is_open:
        raise AssertionError(f"job {job.job_id} is {job.state}: it is decided")


def without_lists(job: LoadJob) -> LoadJob:
    """Return what is kept of a job that is over, for want of memory: how it ended and what it wrote in all."""
    return replace(job, topics=(), loaded=())


def newest_first(job: LoadJob) -> tuple[int, str]:
    """The order in which jobs are listed."""
    return -job.begun_ms, job.job_id


class Forgotten(NamedTuple):
    """What is left of an application's jobs that were forgotten: the highest version that was committed, and when the
    last of them was forgotten."""

    version: int
    at_ms: int


class JobTable:
    """Every job that is known, and what is left of those that are not."""

    def __init__(self) -> None:
        self._jobs: dict[str, LoadJob] = {}
        self._of_application: dict[str, dict[str, None]] = {}
        self.open_lists_bytes = 0
        """What the lists of jobs hold that are not over."""
        self.over_lists_bytes = 0
        """What the lists of jobs hold that are over."""
        self._over: dict[str, None] = {}
        self._over_newest_first: list[tuple[int, str]] = []
        self._over_of_application: Counter[str] = Counter()
        self.forgotten: dict[str, Forgotten] = {}
        """By application, the one that was put last at the end; see ``keep_forgotten``."""
        self.tasks: dict[str, dict[int, int]] = {}
        """Of idempotent jobs that are not over, the producer id of each task."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[LoadJob]:
        return iter(tuple(self._jobs.values()))

    @property
    def record_count(self) -> int:
        """Records that it takes to write all of it down."""
        return len(self._jobs) + sum(map(len, self.tasks.values())) + len(self.forgotten)

    def find(self, job_id: str) -> LoadJob | None:
        """What is known of a job."""
        return self._jobs.get(job_id)

    def of_application(self, application_id: str) -> list[LoadJob]:
        """The application's jobs, oldest first."""
        return [self._jobs[job_id] for job_id in self._of_application.get(application_id, ())]

    @property
    def over_count(self) -> int:
        """Jobs that are over."""
        return len(self._over)

    def over_while(self, is_old: Callable[[str], bool]) -> list[LoadJob]:
        """The jobs that ended first, up to the first that is not old: as quick as there are few, however many stay."""
        return [self._jobs[job_id] for job_id in itertools.takewhile(is_old, self._over)]

    def over_beyond(self, count_max: int) -> list[LoadJob]:
        """The jobs that are over, but for the ``count_max`` newest."""
        return [self._jobs[job_id] for _, job_id in self._over_newest_first[count_max:]]

    def over_beyond_of_each(self, count_max: int) -> list[LoadJob]:
        """The jobs that are over, but for the ``count_max`` newest of each application."""
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
        """The jobs without their lists that ended first, so that all lists of jobs that are over hold at most
        ``bytes_max`` when these have come; each list of a job that comes is kept."""
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
        """Take note of a transition, or of a new job."""
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
        """Note what is left of an application's jobs. What is noted later has a later ``at_ms``, but for clocks that
        are set back."""
        self.forgotten.pop(application_id, None)
        self.forgotten[application_id] = forgotten

    def forgotten_while(self, is_old: Callable[[str], bool]) -> list[tuple[str, Forgotten]]:
        """What is left of the applications that were forgotten first, up to the first that is not old: as quick as
        there are few, however many stay."""
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
