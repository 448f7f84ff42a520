"""An fsync that is waited for on the event loop: of small groups, on a disk that has been quick."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from app.engine_local.partitions.flush_pace import TRUST_MIN, FlushPace
from app.engine_local.partitions.mailbox import MailboxLimits
from app.engine_local.partitions.pending_append import PendingAppend
from log_model.errors import PartitionFailedError
from tests.crash.disk_faults import Operation
from tests.support.writers import WriterStand, append_request, eventually, on_stand

INLINE = MailboxLimits(inline_bytes_max=10_000)


def append(stand: WriterStand, value: bytes) -> PendingAppend:
    return stand.writer.append(append_request(stand.log, value), size_bytes=100, wants_fsync=True)


def trusting() -> FlushPace:
    """The pace of a disk that has been quick for long."""
    pace = FlushPace(10_000, lambda: 0.0)
    for _ in range(TRUST_MIN):
        pace.note_in_thread(0.0)
    return pace


def threads_of_syncs(stand: WriterStand, error: OSError | None = None) -> list[threading.Thread]:
    """The threads in which the log file is fsynced from now on; each time ``error`` is raised, if one is given."""
    threads: list[threading.Thread] = []

    def note(operation: Operation) -> None:
        if operation.kind == "sync" and operation.path.suffix == ".log":
            threads.append(threading.current_thread())
            if error is not None:
                raise error

    stand.disk.before_operation = note
    return threads


def test_the_fsync_of_a_quick_disk_is_waited_for_on_the_loop_once_for_all_that_came() -> None:
    async def scenario(stand: WriterStand) -> None:
        threads = threads_of_syncs(stand)
        taken = [append(stand, b"a") for _ in range(3)]
        answered: list[int] = []
        for pending in taken:
            assert pending.result is not None
            pending.call_when_done(lambda done: answered.append(done.outcome().base_offset))
        assert not answered
        await eventually(lambda: len(answered) == 3)
        assert answered == [0, 1, 2]
        assert threads == [threading.current_thread()]
        assert stand.log.snapshot.high_watermark == 3

    on_stand(scenario, INLINE, trusting(), flush_policy="group")


def test_a_large_group_is_fsynced_in_a_thread_whatever_the_disk() -> None:
    async def scenario(stand: WriterStand) -> None:
        threads = threads_of_syncs(stand)
        pending = stand.writer.append(append_request(stand.log, b"x" * 11_000), size_bytes=11_100)
        await pending.fsynced
        assert threads
        assert threading.current_thread() not in threads

    on_stand(scenario, INLINE, trusting(), flush_policy="group")


def test_a_slow_fsync_on_the_loop_sends_the_next_to_threads() -> None:
    async def scenario(stand: WriterStand) -> None:
        threads = threads_of_syncs(stand)
        await append(stand, b"a").fsynced
        stand.writer.flushes.pace.note_here(1.0)
        await append(stand, b"b").fsynced
        assert [thread is threading.current_thread() for thread in threads] == [True, False]

    on_stand(scenario, INLINE, trusting(), flush_policy="group")


def test_an_fsync_on_the_loop_that_fails_takes_the_partition_offline_and_tells_all_that_waited() -> None:
    async def scenario(stand: WriterStand) -> None:
        threads = threads_of_syncs(stand, OSError(errno.EIO, "broken"))
        errors: list[BaseException | None] = []
        pending = append(stand, b"a")
        assert pending.result is not None
        pending.call_when_done(lambda done: errors.append(done.error))
        future = append(stand, b"b").fsynced
        with pytest.raises(PartitionFailedError):
            await future
        assert threads == [threading.current_thread()]
        assert [type(error) for error in errors] == [PartitionFailedError]
        assert stand.observed.failures
        with pytest.raises(PartitionFailedError):
            pending.outcome()

    on_stand(scenario, INLINE, trusting(), flush_policy="group")


def test_an_answer_that_cannot_be_made_takes_none_from_the_others() -> None:
    async def scenario(stand: WriterStand) -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        first, second = append(stand, b"a"), append(stand, b"a")
        answered: list[PendingAppend] = []

        def fail(_: PendingAppend) -> None:
            raise ZeroDivisionError

        first.call_when_done(fail)
        second.call_when_done(answered.append)
        await eventually(lambda: bool(answered))
        assert [type(error) for error in told] == [ZeroDivisionError]

    on_stand(scenario, INLINE, trusting(), flush_policy="group")
