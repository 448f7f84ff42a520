"""The writer: groups, order, acknowledgement, failure, and what happens when somebody gives up."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from itertools import count, repeat
from typing import Any

import pytest

from app.engine_local.partitions import partition_writer
from app.engine_local.partitions.mailbox import MailboxLimits
from app.problems.engine import problem_for
from app.problems.problem import Problem
from log_model.errors import (
    DiskFullError,
    ExpectedOffsetMismatchError,
    PartitionFailedError,
    PartitionOfflineError,
    ShuttingDownError,
    UnknownTopicOrPartitionError,
)
from log_model.offsets import Offset
from storage.log.partition_log import AppendRequest
from tests.crash.disk_faults import SPACE_KINDS, Fault, Operation
from tests.support.writers import Gate, WriterStand, append_request, eventually, held, on_stand, valid_batches


def append(stand: WriterStand, *values: bytes, **options: Any) -> Any:
    return stand.writer.append(append_request(stand.log, *values), size_bytes=100, **options)


def test_appends_that_wait_together_become_one_group_with_consecutive_offsets() -> None:
    """Spec A9."""

    async def scenario(stand: WriterStand) -> None:
        waiting = [append(stand, b"%d" % number, b"x") for number in range(50)]
        results = [await pending.fsynced for pending in waiting]
        assert [result.base_offset for result in results] == list(range(0, 100, 2))
        assert [result.last_offset for result in results] == list(range(1, 101, 2))
        assert stand.observed.groups == [50]
        assert stand.log.snapshot.high_watermark == 100

    on_stand(scenario)


def test_a_group_has_limits_of_count_and_bytes() -> None:
    async def scenario(stand: WriterStand) -> None:
        await asyncio.gather(*(append(stand, b"x").written for _ in range(25)))
        assert stand.observed.groups == [10, 10, 5]
        await asyncio.gather(
            *(stand.writer.append(append_request(stand.log, b"x"), size_bytes=size).written for size in (900, 50, 2000))
        )
        assert stand.observed.groups[3:] == [2, 1]

    on_stand(scenario, MailboxLimits(group_count_max=10, group_bytes_max=1000))


def test_written_comes_before_the_fsync_and_readers_see_it_after() -> None:
    """What an acknowledgement means: docs/explanation/durability.md#the-three-answers."""

    async def scenario(stand: WriterStand) -> None:
        gate = Gate(stand.disk, "sync")
        pending = append(stand, b"x")
        assert (await pending.written).base_offset == 0
        await gate.reached()
        assert not pending.fsynced.done()
        assert (stand.log.snapshot.high_watermark, stand.log.snapshot.log_end_offset) == (0, 1)
        gate.open()
        await pending.fsynced
        assert stand.log.snapshot.high_watermark == 1

    on_stand(scenario)


def test_the_next_group_is_written_while_the_last_is_fsynced_and_one_fsync_covers_many() -> None:
    async def scenario(stand: WriterStand) -> None:
        gate = Gate(stand.disk, "sync")
        first = append(stand, b"first")
        await gate.reached()
        later = [append(stand, b"later") for _ in range(20)]
        for pending in later:
            await pending.written
        assert not first.fsynced.done()
        gate.open()
        await asyncio.gather(first.fsynced, *(pending.fsynced for pending in later))
        assert stand.observed.flush_count == 2
        assert stand.log.recovery_point == 21

    on_stand(scenario)


def test_flush_policy_interval_flushes_only_who_asks() -> None:
    async def scenario(stand: WriterStand) -> None:
        await append(stand, b"x").written
        assert stand.log.snapshot.high_watermark == 1
        assert stand.observed.flush_count == 0
        await append(stand, b"y", wants_fsync=True).fsynced
        assert stand.observed.flush_count == 1
        assert stand.log.recovery_point == 2

    on_stand(scenario, flush_policy="interval")


def test_ask_flush_makes_what_is_written_durable() -> None:
    """Spec B4, by the scheduler."""

    async def scenario(stand: WriterStand) -> None:
        await append(stand, b"x").written
        stand.writer.ask_flush()
        await eventually(lambda: stand.writer.is_idle)
        assert stand.log.recovery_point == 1

    on_stand(scenario, flush_policy="interval")


def test_an_idle_writer_has_no_task() -> None:
    async def scenario(stand: WriterStand) -> None:
        before = asyncio.all_tasks()
        await append(stand, b"x").fsynced
        await stand.writer.run(stand.log.roll)
        await eventually(lambda: asyncio.all_tasks() == before)
        assert stand.writer.is_idle

    on_stand(scenario)


def test_a_full_mailbox_refuses_and_takes_again_when_there_is_room() -> None:
    """Invariant 9."""

    async def scenario(stand: WriterStand) -> None:
        gate = Gate(stand.disk, "write")
        first = append(stand, b"x")
        await gate.reached()
        waiting = [append(stand, b"y") for _ in range(3)]
        with pytest.raises(Problem) as refused:
            append(stand, b"z")
        assert (refused.value.status, refused.value.code) == (503, "overloaded")
        assert refused.value.retryable
        assert refused.value.applied == "no"
        assert refused.value.retry_after_ms
        with pytest.raises(Problem):
            await stand.writer.run(stand.log.roll)
        gate.open()
        await asyncio.gather(first.fsynced, *(pending.fsynced for pending in waiting))
        assert (await append(stand, b"z").fsynced).base_offset == 4

    on_stand(scenario, MailboxLimits(count_max=3))


def test_a_mailbox_is_limited_in_bytes_but_takes_one_large_request() -> None:
    async def scenario(stand: WriterStand) -> None:
        gate = Gate(stand.disk, "write")
        append(stand, b"x")
        await gate.reached()
        large = stand.writer.append(append_request(stand.log, b"y"), size_bytes=5000)
        with pytest.raises(Problem, match="too much waits"):
            append(stand, b"z")
        assert stand.writer.mailbox.size_bytes == 5000
        gate.open()
        await large.fsynced
        assert stand.writer.mailbox.size_bytes == 0

    on_stand(scenario, MailboxLimits(bytes_max=1000))


def test_cancelling_who_waits_does_not_cancel_the_group() -> None:
    """Invariant 8."""

    async def scenario(stand: WriterStand) -> None:
        gate = Gate(stand.disk, "write")
        pending = append(stand, b"given up")

        async def wait() -> None:
            await pending.fsynced

        waiting = asyncio.ensure_future(wait())
        neighbour = append(stand, b"kept")
        await gate.reached()
        waiting.cancel()
        gate.open()
        assert (await neighbour.fsynced).base_offset == 1
        assert waiting.cancelled() or waiting.cancelling()
        assert stand.log.snapshot.high_watermark == 2

    on_stand(scenario)


def test_cancelling_who_waits_for_a_job_does_not_cancel_the_job() -> None:
    async def scenario(stand: WriterStand) -> None:
        await append(stand, b"x").fsynced
        gate = Gate(stand.disk, "create")
        job = asyncio.ensure_future(stand.writer.run(stand.log.roll))
        await gate.reached()
        job.cancel()
        gate.open()
        await append(stand, b"y").fsynced
        assert len(stand.log.snapshot.segments) == 2

    on_stand(scenario)


def test_a_refused_request_leaves_its_neighbours_alone() -> None:
    async def scenario(stand: WriterStand) -> None:
        good = append(stand, b"x")
        mistaken = stand.writer.append(AppendRequest(valid_batches(stand.log, b"y"), Offset(7)), size_bytes=100)
        after = append(stand, b"z")
        with pytest.raises(ExpectedOffsetMismatchError):
            await mistaken.fsynced
        with pytest.raises(ExpectedOffsetMismatchError):
            await mistaken.written
        assert [(await pending.fsynced).base_offset for pending in (good, after)] == [0, 1]
        assert stand.observed.groups == [3]

    on_stand(scenario)


def test_after_a_failed_write_the_group_is_unknown_and_the_queue_is_not_applied() -> None:
    """Invariant 10, disk rule 3."""

    async def scenario(stand: WriterStand) -> None:
        await append(stand, b"safe").fsynced
        gate = Gate(stand.disk, "write")
        in_flight = append(stand, b"in flight")
        await gate.reached()
        queued = append(stand, b"queued")
        stand.disk.fault = Fault(0, errno.EIO, kinds=frozenset({"extend"}))
        gate.open()
        with pytest.raises(PartitionFailedError) as unknown:
            await in_flight.fsynced
        assert problem_for(unknown.value).applied == "unknown"
        with pytest.raises(PartitionOfflineError) as offline:
            await queued.written
        assert problem_for(offline.value).applied == "no"
        with pytest.raises(PartitionOfflineError):
            await append(stand, b"later").written
        assert stand.log.snapshot.high_watermark == 1
        assert len(stand.observed.failures) == 1

    on_stand(scenario)


def test_after_a_failed_fsync_nothing_it_covered_is_acknowledged() -> None:
    """Disk rule 3: a failed fsync is never tried again."""

    async def scenario(stand: WriterStand) -> None:
        await append(stand, b"safe").fsynced
        stand.disk.fault = Fault(0, errno.EIO, lasting=True, kinds=frozenset({"sync"}))
        pending = append(stand, b"lost?")
        assert (await pending.written).base_offset == 1
        with pytest.raises(PartitionFailedError):
            await pending.fsynced
        stand.disk.fault = None
        with pytest.raises(PartitionOfflineError):
            await append(stand, b"later").fsynced
        assert stand.log.snapshot.high_watermark == 1
        assert stand.log.recovery_point == 1

    on_stand(scenario)


def test_a_full_disk_refuses_and_takes_again_when_there_is_room() -> None:
    """Disk rule 8."""

    async def scenario(stand: WriterStand) -> None:
        stand.disk.fault = Fault(0, errno.ENOSPC, lasting=True, kinds=SPACE_KINDS - {"sync"})
        with pytest.raises(DiskFullError):
            await append(stand, b"x").fsynced
        stand.disk.fault = None
        assert (await append(stand, b"y").fsynced).base_offset == 0

    on_stand(scenario)


def test_an_unforeseen_failure_leaves_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stand: WriterStand) -> None:
        def explode(group: object) -> None:
            raise MemoryError("no memory")

        stand.log.append = explode  # type: ignore[method-assign, assignment]
        with pytest.raises(PartitionFailedError, match="no memory"):
            await append(stand, b"x").fsynced

    on_stand(scenario)
    assert "unexpected" in caplog.text


def test_jobs_run_in_their_turn_and_never_beside_an_fsync() -> None:
    async def scenario(stand: WriterStand) -> None:
        order: list[str] = []
        gate = Gate(stand.disk, "sync")
        before = append(stand, b"before")
        await gate.reached()
        job = asyncio.ensure_future(stand.writer.run(lambda: order.append("job")))
        await eventually(lambda: len(stand.writer.mailbox) == 1)
        after = append(stand, b"after")
        before.fsynced.add_done_callback(lambda _: order.append("before"))
        after.written.add_done_callback(lambda _: order.append("after"))
        gate.open()
        await asyncio.gather(job, after.fsynced)
        assert order == ["before", "job", "after"]

    on_stand(scenario)


def test_a_job_publishes_and_hands_on_what_it_returns_or_raises() -> None:
    async def scenario(stand: WriterStand) -> None:
        await append(stand, b"x").fsynced
        assert await stand.writer.run(lambda: stand.log.delete_records(1)) == 1
        assert stand.log.snapshot.log_start_offset == 1
        assert stand.observed.snapshots[-1].log_start_offset == 1
        with pytest.raises(ZeroDivisionError):
            await stand.writer.run(lambda: 1 // 0)
        await append(stand, b"y").fsynced

    on_stand(scenario)


def test_a_held_writer_writes_nothing_until_it_is_let_go() -> None:
    async def scenario(stand: WriterStand) -> None:
        async with held(stand.writer):
            pending = append(stand, b"x")
            operations = len(stand.disk.operations)
            await asyncio.to_thread(lambda: None)
            assert not pending.written.done()
            assert len(stand.disk.operations) == operations
        assert (await pending.fsynced).base_offset == 0

    on_stand(scenario)


def test_a_retired_writer_refuses_what_waits_and_what_comes() -> None:
    async def scenario(stand: WriterStand) -> None:
        async with held(stand.writer):
            waiting = append(stand, b"x")
            stand.writer.retire(lambda: UnknownTopicOrPartitionError("gone"))
        with pytest.raises(UnknownTopicOrPartitionError):
            await waiting.fsynced
        with pytest.raises(UnknownTopicOrPartitionError):
            append(stand, b"y")
        await eventually(lambda: stand.writer.is_idle)

    on_stand(scenario)


def test_closing_finishes_what_was_taken() -> None:
    async def scenario(stand: WriterStand) -> None:
        taken = [append(stand, b"x") for _ in range(10)]
        await stand.writer.close()
        assert [pending.fsynced.result().base_offset for pending in taken] == list(range(10))
        with pytest.raises(ShuttingDownError):
            append(stand, b"y")

    on_stand(scenario)


INLINE = MailboxLimits(inline_bytes_max=10_000)


def test_a_small_append_to_an_idle_writer_is_written_at_once() -> None:
    async def scenario(stand: WriterStand) -> None:
        pending = stand.writer.append(append_request(stand.log, b"a"), size_bytes=100)
        assert pending.result is not None
        assert pending.result.base_offset == 0
        assert stand.log.snapshot.log_end_offset == 1
        assert stand.writer.is_idle
        assert (await pending.written).base_offset == 0

    on_stand(scenario, INLINE, flush_policy="interval")


def test_what_is_large_or_comes_to_a_busy_writer_waits_its_turn() -> None:
    async def scenario(stand: WriterStand) -> None:
        large = stand.writer.append(append_request(stand.log, b"large"), size_bytes=20_000)
        behind = stand.writer.append(append_request(stand.log, b"behind"), size_bytes=100)
        assert large.result is None
        assert behind.result is None
        assert [(await large.written).base_offset, (await behind.written).base_offset] == [0, 1]

    on_stand(scenario, INLINE)


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [((100, 100, 100), [1, 1, 1, 1]), ((5_000, 5_000, 100), [1, 3]), ((100,) * 4, [1, 4])],
)
def test_few_small_appends_that_waited_are_written_on_the_loop(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], groups: list[int]
) -> None:
    """Clients that ask again as soon as they have an answer keep no writer busy for ever."""
    monkeypatch.setattr(partition_writer, "INLINE_COUNT_MAX", 3)

    async def scenario(stand: WriterStand) -> None:
        gate = Gate(stand.disk, "write")
        large = stand.writer.append(append_request(stand.log, b"large"), size_bytes=20_000)
        await gate.reached()
        behind = [stand.writer.append(append_request(stand.log, b"behind"), size_bytes=size) for size in sizes]
        assert not any(pending.result for pending in (large, *behind))
        gate.open()
        assert [(await each.written).base_offset for each in (large, *behind)] == [*range(len(sizes) + 1)]
        assert stand.observed.groups == groups
        again = stand.writer.append(append_request(stand.log, b"again"), size_bytes=100)
        assert again.result is not None

    on_stand(scenario, INLINE, flush_policy="interval")


def test_a_roll_among_appends_that_waited_is_done_in_a_thread() -> None:
    async def scenario(stand: WriterStand) -> None:
        gate = Gate(stand.disk, "write")
        stand.writer.append(append_request(stand.log, b"large"), size_bytes=20_000)
        await gate.reached()
        behind = [stand.writer.append(append_request(stand.log, b"x" * 4_000), size_bytes=3_000) for _ in range(3)]
        gate.open()
        assert [(await pending.written).base_offset for pending in behind] == [1, 2, 3]
        assert stand.observed.groups == [1, 1, 1, 1]
        assert len(stand.log.snapshot.segments) == 2

    on_stand(scenario, INLINE, segment_bytes=10_000)


def test_a_roll_is_done_in_a_thread() -> None:
    async def scenario(stand: WriterStand) -> None:
        first = stand.writer.append(append_request(stand.log, b"x" * 9_000), size_bytes=9_100)
        second = stand.writer.append(append_request(stand.log, b"x" * 9_000), size_bytes=9_100)
        assert first.result is not None
        assert second.result is None
        assert (await second.written).base_offset == 1
        assert len(stand.log.snapshot.segments) == 2

    on_stand(scenario, INLINE, segment_bytes=10_000)


def test_an_append_on_the_loop_that_the_disk_fails_takes_the_partition_offline() -> None:
    async def scenario(stand: WriterStand) -> None:
        def fail(operation: Operation) -> None:
            if operation.path.suffix == ".log":
                raise OSError(errno.EIO, "broken")

        stand.disk.before_operation = fail
        pending = stand.writer.append(append_request(stand.log, b"a"), size_bytes=100)
        assert isinstance(pending.error, PartitionFailedError)
        with pytest.raises(PartitionFailedError):
            await pending.written
        assert stand.observed.failures
        later = stand.writer.append(append_request(stand.log, b"b"), size_bytes=100)
        with pytest.raises(PartitionOfflineError):
            await later.written

    on_stand(scenario, INLINE)


@pytest.mark.parametrize(("waits", "on_the_loop"), [(count(), [True, True, False]), (repeat(0), [True, True, True])])
def test_writes_on_the_loop_that_wait_for_the_disk_twice_send_the_next_to_a_thread(
    monkeypatch: pytest.MonkeyPatch, waits: Iterator[int], on_the_loop: list[bool]
) -> None:
    """Slow without waiting is the scheduler's doing."""

    async def scenario(stand: WriterStand) -> None:
        # Every write counts as slow.
        monkeypatch.setattr(partition_writer, "STALL_SECONDS", -1.0)
        monkeypatch.setattr(partition_writer, "waits_of_thread", waits.__next__)
        appends = [stand.writer.append(append_request(stand.log, b"a"), size_bytes=100) for _ in range(3)]
        assert [pending.result is not None for pending in appends] == on_the_loop
        assert (await appends[2].written).base_offset == 2

    on_stand(scenario, INLINE)


def test_an_append_on_the_loop_is_fsynced_beside_the_next() -> None:
    async def scenario(stand: WriterStand) -> None:
        gate = Gate(stand.disk, "sync")
        first = stand.writer.append(append_request(stand.log, b"a"), size_bytes=100)
        await gate.reached()
        second = stand.writer.append(append_request(stand.log, b"b"), size_bytes=100)
        assert second.result is not None
        assert not first.fsynced.done()
        gate.open()
        assert [(await first.fsynced).base_offset, (await second.fsynced).base_offset] == [0, 1]

    on_stand(scenario, INLINE, flush_policy="group")
