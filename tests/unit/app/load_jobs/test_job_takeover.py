"""After a driver died: how soon its next run, and how soon everybody else, is seen by readers of committed records.

Issue 5, acceptance 6, by the service's own clock: within 5 s of the next run's begin, and of ``transactionTimeout``.
"""

from __future__ import annotations

from app.engine.appending import AppendOptions
from app.engine.transactions import ProducerIdentity
from app.load_jobs.decisions import BegunJob, Winner
from app.load_jobs.endings import RETRY_MS
from app.load_jobs.state import AbortReason, JobMode, JobState
from app.produce.enlisting import submit_append
from app.settings import Settings
from storage.log.partition_log import AppendResult, PartitionLog
from tests.crash.job_crashes import jobs_settled
from tests.support.stands import Stand, on_stand
from tests.support.transactions import committed_values, valid_transactional

TIMEOUT_MS = 600_000
WAIT_MS = 30_000
BOUND_MS = 5_000


async def begin(stand: Stand, application: str, timeout_ms: int = TIMEOUT_MS) -> BegunJob:
    return await stand.parts.load_jobs.begin(
        application, 1, mode=JobMode.TRANSACTIONAL, timeout_ms=timeout_ms, topics=(), join=False, wait_ms=WAIT_MS
    )


async def write(stand: Stand, begun: BegunJob, log: PartitionLog, value: bytes) -> Winner:
    """An attempt of a task that writes one record."""
    producer_id = await stand.parts.load_jobs.enlist(begun.job.job_id, 0, 0)
    batches = valid_transactional(log, ProducerIdentity(producer_id, 0), 0, value)
    submitted = await submit_append(stand.parts.producing, log, batches, AppendOptions())
    if not isinstance(submitted, AppendResult):
        await stand.parts.engine.appends.outcome_of(submitted, AppendOptions())
    return Winner(producer_id, 1)


def is_held_up(log: PartitionLog) -> bool:
    return log.snapshot.last_stable_offset < log.snapshot.high_watermark


def test_the_next_run_waits_for_no_timeout() -> None:
    """Its begin ends what the dead one left, and its commit is visible when it returns: no time passes."""

    async def scenario(stand: Stand) -> None:
        (log,) = await stand.topic("t")
        dead = await begin(stand, "loader")
        await write(stand, dead, log, b"old")
        assert is_held_up(log)
        following = await begin(stand, "loader")
        ended = stand.parts.load_jobs.find(dead.job.job_id)
        assert (ended.state, ended.reason, is_held_up(log)) == (JobState.ABORTED, AbortReason.FENCED, False)
        winner = await write(stand, following, log, b"new")
        done = await stand.parts.load_jobs.commit(following.job.job_id, [winner], WAIT_MS)
        assert (done.state, committed_values(log.snapshot)) == (JobState.COMMITTED, [b"new"])

    on_stand(scenario)


def test_an_orphan_is_aborted_by_the_first_check_after_its_timeout() -> None:
    """And what others committed behind it is seen."""

    async def scenario(stand: Stand) -> None:
        (log,) = await stand.topic("t")
        orphan = await begin(stand, "orphan", timeout_ms=2_000)
        stand.clock.advance(1_500)
        await write(stand, orphan, log, b"never")
        other = await begin(stand, "other")
        winner = await write(stand, other, log, b"seen")
        await stand.parts.load_jobs.commit(other.job.job_id, [winner], WAIT_MS)
        stand.clock.advance(2_000)
        await stand.scheduler.run("load_jobs")
        assert stand.parts.load_jobs.find(orphan.job.job_id).is_open
        assert is_held_up(log)
        stand.clock.advance(1)
        await stand.scheduler.run("load_jobs")
        await jobs_settled(stand.parts)
        ended = stand.parts.load_jobs.find(orphan.job.job_id)
        assert (ended.state, ended.reason, is_held_up(log)) == (JobState.ABORTED, AbortReason.TIMED_OUT, False)
        assert committed_values(log.snapshot) == [b"seen"]

    on_stand(scenario)


def test_checks_come_often_enough() -> None:
    """One interval passes at most until an orphan is found, and one more try if the disk refuses its end once."""

    async def scenario(stand: Stand) -> None:
        interval_ms = stand.scheduler.intervals_ms["load_jobs"]
        assert interval_ms == Settings().load_job_check_interval_ms
        assert 2 * interval_ms + RETRY_MS < BOUND_MS

    on_stand(scenario)
