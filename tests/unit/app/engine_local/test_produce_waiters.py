"""Appends with acks=all on partitions with other copies: what completes them, exactly once, and with what."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from app.engine.appending import AppendOptions
from app.engine_local.partitions.pending_append import PendingAppend
from app.problems.engine import problem_for
from app.problems.problem import Problem
from app.service.parts import Parts
from log_model.errors import (
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    PartitionFailedError,
    UnknownTopicOrPartitionError,
)
from log_model.offsets import Offset
from storage.log.partition_log import AppendResult, PartitionLog
from storage.log.replica_set import ReplicaSet
from tests.support.stands import Stand, on_stand
from tests.support.writers import eventually, valid_batches

FOLLOWER = 2
ALL = AppendOptions(timeout_ms=60_000)
SOON = AppendOptions(timeout_ms=20)


async def replicated(made: Stand, name: str = "t", count: int = 1, **config: object) -> list[PartitionLog]:
    """Partitions with a follower that is in sync and has fetched nothing."""
    logs = await made.topic(name, count, **config)
    for log in logs:
        log.replicas = ReplicaSet(follower_ids=[FOLLOWER], min_insync_replicas=log.config.min_insync_replicas)
    return list(logs)


def fetched(made: Stand, log: PartitionLog, end: int) -> None:
    """The follower asks for what comes at ``end``."""
    log.replicas.note_fetch(
        FOLLOWER,
        log.snapshot.log_end_metadata._replace(offset=Offset(end)),
        log_start_offset=Offset(0),
        leader_end_offset=log.snapshot.log_end_offset,
        now_ms=made.clock.elapsed_ms(),
    )
    log.publish()
    made.engine.partitions.published(log)


def submit(parts: Parts, log: PartitionLog, *values: bytes, options: AppendOptions = ALL) -> PendingAppend:
    return parts.engine.appends.submit(log, valid_batches(log, *values), options)


async def waiting(made: Stand, log: PartitionLog, options: AppendOptions = ALL) -> asyncio.Task[AppendResult]:
    """An append that waits for the follower."""
    pending = submit(made.parts, log, b"x", b"y", options=options)
    task = asyncio.ensure_future(made.engine.appends.outcome_of(pending, options))
    await eventually(lambda: len(made.engine.partitions.produce_waiters) == 1)
    return task


def test_all_copies_must_have_it() -> None:
    """Spec A5: done when the high watermark has passed the last offset."""

    async def scenario(made: Stand) -> None:
        (log,) = await replicated(made)
        task = await waiting(made, log)
        fetched(made, log, 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
        fetched(made, log, 2)
        assert (await task).base_offset == 0
        assert log.snapshot.high_watermark == 2
        assert len(made.engine.partitions.produce_waiters) == 0

    on_stand(scenario)


def test_a_follower_that_never_comes_is_a_timeout_with_the_offset_and_the_data_stays() -> None:
    """Spec A6: code 7 at the timeout; the record is visible after the high watermark moves."""

    async def scenario(made: Stand) -> None:
        (log,) = await replicated(made)
        with pytest.raises(Problem) as late:
            await made.engine.appends.outcome_of(submit(made.parts, log, b"x", options=SOON), SOON)
        assert (late.value.status, late.value.kafka_code, late.value.applied) == (504, 7, "unknown")
        assert late.value.extra["base_offset"] == 0
        assert (log.snapshot.log_end_offset, log.snapshot.high_watermark) == (1, 0)
        # On a busy machine the timeout comes before the fsync.
        await eventually(lambda: log.durable_end_offset == 1)
        fetched(made, log, 1)
        assert log.snapshot.high_watermark == 1

    on_stand(scenario)


def test_acks_1_and_a_single_copy_do_not_wait_for_others() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await replicated(made)
        one = AppendOptions(acks="1", timeout_ms=60_000)
        assert (await made.engine.appends.outcome_of(submit(made.parts, log, b"x", options=one), one)).base_offset == 0
        (alone,) = await made.topic("alone")
        assert (await made.engine.appends.outcome_of(submit(made.parts, alone, b"x"), ALL)).base_offset == 0

    on_stand(scenario)


def test_durability_written_waits_for_the_copies_but_for_no_fsync_of_its_own() -> None:
    async def scenario(made: Stand) -> None:
        options = AppendOptions(durability="written", timeout_ms=60_000)
        (log,) = await replicated(made)
        task = await waiting(made, log, options)
        fetched(made, log, 2)
        assert (await task).base_offset == 0

    on_stand(scenario)


def test_too_few_copies_in_sync_is_19_before_and_20_after() -> None:
    """Spec A5: nothing is written before; the data stays after."""

    async def scenario(made: Stand) -> None:
        (log,) = await replicated(made, min_insync_replicas=2)
        task = await waiting(made, log)
        log.replicas.note_fetch(
            FOLLOWER,
            log.snapshot.log_end_metadata,
            log_start_offset=Offset(0),
            leader_end_offset=log.snapshot.log_end_offset,
            now_ms=0,
        )
        log.publish()
        made.engine.partitions.published(log)
        # Out of the set after the high watermark has risen, and before anybody has looked.
        assert log.replicas.shrink(Offset(10), 10**9) == (FOLLOWER,)
        with pytest.raises(NotEnoughReplicasAfterAppendError) as after:
            await task
        assert (problem_for(after.value).kafka_code, log.snapshot.log_end_offset) == (20, 2)
        with pytest.raises(NotEnoughReplicasError) as before:
            submit(made.parts, log, b"z")
        assert (problem_for(before.value).kafka_code, log.snapshot.log_end_offset) == (19, 2)

    on_stand(scenario)


def test_a_deleted_topic_a_failed_disk_and_the_stop_complete_what_waits() -> None:
    """Spec A6: leadership loss completes all."""

    async def scenario(made: Stand) -> None:
        (log,) = await replicated(made)
        task = await waiting(made, log)
        await made.engine.topics.delete("t")
        with pytest.raises(UnknownTopicOrPartitionError):
            await task

        (broken,) = await replicated(made, "broken")
        task = await waiting(made, broken)
        broken.take_offline("the disk is gone")
        made.engine.partitions.partition_failed(broken, OSError())
        with pytest.raises(PartitionFailedError) as failed:
            await task
        assert problem_for(failed.value).applied == "unknown"

        (last,) = await replicated(made, "last")
        task = await waiting(made, last)
        made.parts.release()
        with pytest.raises(Problem) as stopped:
            await task
        assert (stopped.value.code, stopped.value.applied) == ("shutting_down", "unknown")
        assert stopped.value.extra["base_offset"] == 0

    on_stand(scenario)


def test_partitions_of_one_request_have_outcomes_of_their_own() -> None:
    """Spec A6: pending becomes 0, 6, 7 for each; at the timeout the others have their answer."""

    async def scenario(made: Stand) -> None:
        copied, never = await replicated(made, "t", 2)
        (gone,) = await replicated(made, "gone")
        options = AppendOptions(timeout_ms=1_500)
        pendings = [submit(made.parts, log, b"x", options=options) for log in (copied, never, gone)]
        task = asyncio.ensure_future(made.engine.appends.outcomes_of(pendings, options))
        await eventually(lambda: len(made.engine.partitions.produce_waiters) == 1)
        fetched(made, copied, 1)
        await made.engine.topics.delete("gone")
        first, second, third = await task
        assert isinstance(first, AppendResult)
        assert (cast("Problem", second).kafka_code, isinstance(third, UnknownTopicOrPartitionError)) == (7, True)

    on_stand(scenario)


def test_a_3_a_thousand_requests_that_race_their_timeouts_have_a_thousand_answers() -> None:
    """Spec A3: never two answers, never none."""

    async def scenario(made: Stand) -> None:
        (log,) = await replicated(made)
        answers: list[AppendResult | BaseException] = []

        async def request(number: int) -> None:
            options = AppendOptions(timeout_ms=1 + number % 40)
            try:
                answers.append(
                    await made.engine.appends.outcome_of(submit(made.parts, log, b"x", options=options), options)
                )
            except Problem as late:
                answers.append(late)

        async def follow() -> None:
            while len(answers) < 1_000:
                fetched(made, log, log.snapshot.log_end_offset)
                await asyncio.sleep(0)

        await asyncio.gather(follow(), *(request(number) for number in range(1_000)))
        offsets = [answer.base_offset for answer in answers if isinstance(answer, AppendResult)]
        assert len(answers) == 1_000
        assert len(set(offsets)) == len(offsets)
        assert {answer.code for answer in answers if isinstance(answer, Problem)} <= {"request_timed_out"}
        await eventually(lambda: log.snapshot.log_end_offset == 1_000)
        assert len(made.engine.partitions.produce_waiters) == 0

    on_stand(scenario)
