"""Rows of a task in one partition beyond 2^31, where its sequences begin again."""

from __future__ import annotations

import pytest

from app.engine.appending import AppendOptions
from app.engine.transactions import ProducerIdentity
from app.load_jobs.decisions import Winner
from app.load_jobs.progress import SEQUENCE_COUNT, Attempt, is_row_count, rows_of
from app.load_jobs.state import JobMode, JobState
from app.problems.problem import Problem
from app.produce.enlisting import submit_append
from storage.log.partition_log import AppendResult, PartitionLog
from tests.support.stands import Stand, on_stand
from tests.support.transactions import valid_transactional


async def send(stand: Stand, log: PartitionLog, producer_id: int, sequence: int, count: int) -> None:
    values = [b"%d" % number for number in range(count)]
    batches = valid_transactional(log, ProducerIdentity(producer_id, 0), sequence, *values)
    submitted = await submit_append(stand.parts.producing, log, batches, AppendOptions())
    if not isinstance(submitted, AppendResult):
        await stand.parts.engine.appends.outcome_of(submitted, AppendOptions())


@pytest.mark.parametrize("is_elsewhere_too", [False, True])
def test_a_task_that_wrote_more_rows_than_there_are_sequences_is_committed(is_elsewhere_too: bool) -> None:
    """All but its last records are as if the log had deleted them since, by its retention."""

    async def scenario(stand: Stand) -> None:
        jobs = stand.parts.load_jobs
        logs = await stand.topic("t", 2)
        begun = await jobs.begin(
            "loader", 1, mode=JobMode.TRANSACTIONAL, timeout_ms=60_000, topics=(), join=False, wait_ms=30_000
        )
        producer_id = await jobs.enlist(begun.job.job_id, 0, 0)
        await send(stand, logs[0], producer_id, SEQUENCE_COUNT - 3, 2)
        await send(stand, logs[0], producer_id, SEQUENCE_COUNT - 1, 4)
        rows = SEQUENCE_COUNT + 3
        if is_elsewhere_too:
            await send(stand, logs[1], producer_id, 0, 5)
            rows += 5
        for wrong in (rows - 1, rows + 1):
            with pytest.raises(Problem, match="were expected"):
                await jobs.commit(begun.job.job_id, [Winner(producer_id, wrong)], 30_000)
        done = await jobs.commit(begun.job.job_id, [Winner(producer_id, rows)], 30_000)
        assert done.state is JobState.COMMITTED

    on_stand(scenario)


@pytest.mark.parametrize(
    ("last_sequence", "seen", "expected"),
    [
        # All was seen.
        (4, 5, 5),
        (SEQUENCE_COUNT - 1, SEQUENCE_COUNT, SEQUENCE_COUNT),
        (0, SEQUENCE_COUNT + 1, SEQUENCE_COUNT + 1),
        (SEQUENCE_COUNT - 1, 2 * SEQUENCE_COUNT, 2 * SEQUENCE_COUNT),
        (6, 3 * SEQUENCE_COUNT + 7, 3 * SEQUENCE_COUNT + 7),
        # There was a restart in between.
        (99, 0, 100),
        (99, 10, 100),
        (SEQUENCE_COUNT - 1, 0, SEQUENCE_COUNT),
        (9, SEQUENCE_COUNT - 90, SEQUENCE_COUNT + 10),
        # Some of what was seen has been cut off.
        (99, 1_000, 100),
        (SEQUENCE_COUNT - 1, SEQUENCE_COUNT + 10, SEQUENCE_COUNT),
    ],
)
def test_how_often_sequences_went_round_is_known_from_what_was_seen(
    last_sequence: int, seen: int, expected: int
) -> None:
    async def scenario(stand: Stand) -> None:
        (log,) = await stand.topic("t")
        begun = await stand.parts.load_jobs.begin(
            "loader", 1, mode=JobMode.TRANSACTIONAL, timeout_ms=60_000, topics=(), join=False, wait_ms=30_000
        )
        producer_id = await stand.parts.load_jobs.enlist(begun.job.job_id, 0, 0)
        await send(stand, log, producer_id, last_sequence, 1)
        attempt = Attempt(producer_id, 0, 0, rows={log.name: seen})
        assert await rows_of(stand.engine, attempt, log.name) == expected

    on_stand(scenario)


def test_counts_are_compared_as_far_as_sequences_tell() -> None:
    assert is_row_count(7, 7)
    assert is_row_count(7, SEQUENCE_COUNT + 7)
    assert is_row_count(2 * SEQUENCE_COUNT + 7, 7)
    assert not is_row_count(7, 8)
    assert not is_row_count(0, SEQUENCE_COUNT - 1)
