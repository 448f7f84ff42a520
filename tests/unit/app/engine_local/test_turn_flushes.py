"""The flushes of one turn of the loop: one fsync of the journal for all partitions, and what stays each one's own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.engine.appending import AppendOptions
from app.engine_local.partitions.flush_pace import TRUST_MIN, FlushPace
from app.engine_local.partitions.mailbox import MailboxLimits
from app.engine_local.partitions.partition_writer import PartitionWriter
from app.engine_local.partitions.pending_append import PendingAppend
from app.engine_local.partitions.turn_flushes import TurnFlushes
from log_model.clock import ManualClock
from log_model.errors import PartitionFailedError, PartitionOfflineError
from storage.journal.entries import BLOCK_BYTES
from storage.journal.journal import Journal
from storage.journal.journal_files import JournalLimits
from storage.journal.pieces import PIECE_BYTES_MAX
from storage.log.files_at_rest import begin_change
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.disk_faults import Fault, Operation
from tests.crash.simulated_disk import SMALL_INDEXES, SimulatedDisk
from tests.support import stands
from tests.support.writers import DATA, Gate, Observed, append_request, eventually, valid_batches

pytestmark = pytest.mark.usefixtures("twin")

INLINE = MailboxLimits(inline_bytes_max=10_000)
LARGE = JournalLimits(3, 1024 * BLOCK_BYTES, 64 * BLOCK_BYTES)
SMALL = JournalLimits(3, 4 * BLOCK_BYTES, BLOCK_BYTES)


@dataclass
class TurnStand:
    """Partitions of one topic, with writers that share the journal's fsyncs."""

    disk: SimulatedDisk
    manager: LogManager
    writers: list[PartitionWriter]
    turns: TurnFlushes
    pace: FlushPace
    observed: Observed = field(default_factory=Observed)
    seconds: list[float] = field(default_factory=list)

    @property
    def logs(self) -> list[PartitionLog]:
        return [writer.log for writer in self.writers]

    def append(self, number: int, value: bytes = b"x") -> PendingAppend:
        writer = self.writers[number]
        return writer.append(append_request(writer.log, value), size_bytes=100, wants_fsync=True)

    async def commit(self, *numbers: int) -> None:
        await asyncio.gather(*(self.append(number).fsynced for number in numbers))

    def syncs(self, suffix: str) -> int:
        """The fsyncs of files with this suffix so far."""
        return len([each for each in self.disk.operations if each.kind == "sync" and each.path.suffix == suffix])

    def ends_after_power_cut(self) -> list[int]:
        manager = LogManager.open(
            DATA, file_system=self.disk.power_cut(), clock=ManualClock(), topic_defaults=SMALL_INDEXES
        )
        return [log.written_end_offset for log in manager.topic("t").partitions]


@contextlib.asynccontextmanager
async def turn_stand(
    partitions: int, limits: JournalLimits, pace: FlushPace | None, **config: object
) -> AsyncIterator[TurnStand]:
    clock = ManualClock()
    disk = SimulatedDisk(clock)
    disk.make_directory(DATA)
    disk.sync_directory(DATA.parent)
    manager = LogManager.open(DATA, file_system=disk, clock=clock, journal_limits=limits, topic_defaults=SMALL_INDEXES)
    topic, _ = manager.create_topic(
        "t", partitions, {"flush.policy": "group", **{name.replace("_", "."): value for name, value in config.items()}}
    )
    pace = pace or FlushPace(0)
    with ThreadPoolExecutor(2) as write_pool, ThreadPoolExecutor(4) as flush_pool:
        seconds: list[float] = []
        turns = TurnFlushes(manager.journal, flush_pool, pace, seconds.append)
        stand = TurnStand(disk, manager, [], turns, pace, seconds=seconds)
        stand.writers = [
            PartitionWriter(
                log,
                write_pool=write_pool,
                flush_pool=flush_pool,
                observer=stand.observed,
                limits=INLINE,
                pace=pace,
                turns=turns,
            )
            for log in topic.partitions
        ]
        for log in topic.partitions:
            # As an earlier append would: the first change of a partition that rested takes a thread.
            begin_change(log.writer)
        yield stand
        disk.before_operation = None
        for writer in stand.writers:
            await writer.close()
        await turns.close()


def on_stand(
    scenario: Callable[[TurnStand], Coroutine[Any, Any, None]],
    partitions: int = 4,
    limits: JournalLimits = LARGE,
    pace: FlushPace | None = None,
    **config: object,
) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), turn_stand(partitions, limits, pace, **config) as stand:
            await scenario(stand)

    asyncio.run(run())


# One fsync for many


def test_the_partitions_of_a_turn_share_one_fsync() -> None:
    async def scenario(stand: TurnStand) -> None:
        await stand.commit(0)
        before = stand.syncs(".journal")
        await stand.commit(*range(8), *range(4))
        assert stand.syncs(".journal") == before + 1
        assert stand.syncs(".log") == 0
        assert [log.snapshot.high_watermark for log in stand.logs] == [3, 2, 2, 2, 1, 1, 1, 1]
        assert len(stand.seconds) == 2
        assert stand.ends_after_power_cut() == [3, 2, 2, 2, 1, 1, 1, 1]

    on_stand(scenario, partitions=8)


def test_flushes_during_a_flush_gather_for_the_next_one() -> None:
    async def scenario(stand: TurnStand) -> None:
        await stand.commit(0)
        before = stand.syncs(".journal")
        gate = Gate(stand.disk, "sync", ".journal")
        first = stand.append(0)
        await gate.reached()
        later = [stand.append(number) for number in (0, 1, 2, 3, 1, 0)]
        for pending in later:
            await pending.written
        assert not first.fsynced.done()
        gate.open()
        await asyncio.gather(first.fsynced, *(pending.fsynced for pending in later))
        assert stand.syncs(".journal") == before + 2
        assert stand.ends_after_power_cut() == [4, 2, 1, 1]

    on_stand(scenario)


def test_records_are_visible_after_the_fsync_and_not_before() -> None:
    async def scenario(stand: TurnStand) -> None:
        await stand.commit(0)
        gate = Gate(stand.disk, "sync", ".journal")
        pending = stand.append(1)
        await gate.reached()
        assert (stand.logs[1].snapshot.high_watermark, stand.logs[1].snapshot.log_end_offset) == (0, 1)
        assert not pending.fsynced.done()
        gate.open()
        await pending.fsynced
        assert stand.logs[1].snapshot.high_watermark == 1

    on_stand(scenario)


def test_a_quick_disk_is_waited_for_on_the_loop() -> None:
    pace = FlushPace(10_000, lambda: 0.0)
    for _ in range(TRUST_MIN):
        pace.note_in_thread(0.0)

    async def scenario(stand: TurnStand) -> None:
        threads: list[threading.Thread] = []

        def note(operation: Operation) -> None:
            if operation.kind == "sync" and operation.path.suffix == ".journal":
                threads.append(threading.current_thread())

        stand.disk.before_operation = note
        await stand.commit(0, 1, 2)
        assert set(threads) == {threading.current_thread()}

    on_stand(scenario, pace=pace)


def test_asked_flushes_share_an_fsync_as_well() -> None:
    async def scenario(stand: TurnStand) -> None:
        stand.writers[0].ask_flush()
        await eventually(lambda: stand.writers[0].is_idle)
        for number in range(4):
            writer = stand.writers[number]
            await writer.append(append_request(writer.log, b"x"), size_bytes=100).written
        assert stand.ends_after_power_cut() == [0] * 4
        before = stand.syncs(".journal")
        for writer in stand.writers:
            writer.ask_flush()
        await eventually(lambda: all(writer.is_idle for writer in stand.writers))
        assert stand.syncs(".journal") <= before + 2  # The first entry makes the file longer.
        assert stand.syncs(".log") == 0
        assert stand.ends_after_power_cut() == [1] * 4

    on_stand(scenario, flush_policy="interval")


# A log's own fsync


def test_a_large_flush_is_the_logs_own() -> None:
    async def scenario(stand: TurnStand) -> None:
        await stand.commit(0)
        before = stand.syncs(".journal")
        await stand.append(1, b"x" * PIECE_BYTES_MAX).fsynced
        assert (stand.syncs(".journal"), stand.syncs(".log")) == (before, 1)
        await stand.commit(1)
        assert stand.syncs(".log") == 1
        assert stand.ends_after_power_cut() == [1, 2, 0, 0]

    on_stand(scenario)


def test_logs_that_the_journal_leaves_are_flushed_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = Journal.flush

    def leave_odd(self: Journal, logs: Sequence[PartitionLog]) -> list[bool | PartitionFailedError]:
        answers = flush(self, [log for log in logs if log.name.partition % 2 == 0])
        return [answers.pop(0) if log.name.partition % 2 == 0 else False for log in logs]

    monkeypatch.setattr(Journal, "flush", leave_odd)

    async def scenario(stand: TurnStand) -> None:
        await stand.commit(0, 1, 2, 3)
        assert stand.syncs(".log") == 2
        assert stand.ends_after_power_cut() == [1] * 4
        assert all(writer.is_idle for writer in stand.writers)

    on_stand(scenario)


def test_appends_that_come_while_the_journal_declines_are_covered_by_the_own_fsync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def decline(self: Journal, logs: Sequence[PartitionLog]) -> list[bool | PartitionFailedError]:
        reached.set()
        assert go_on.wait(30)
        return [False] * len(logs)

    monkeypatch.setattr(Journal, "flush", decline)

    async def scenario(stand: TurnStand) -> None:
        first = stand.append(0)
        assert await asyncio.to_thread(reached.wait, 30)
        second = stand.append(0)
        await second.written
        go_on.set()
        await asyncio.gather(first.fsynced, second.fsynced)
        assert stand.syncs(".log") == 1

    on_stand(scenario)


def test_without_a_journal_every_log_has_its_own_fsync() -> None:
    async def scenario(stand: TurnStand) -> None:
        await stand.commit(0, 1, 2, 3)
        assert (stand.syncs(".journal"), stand.syncs(".log")) == (0, 4)

    on_stand(scenario, limits=JournalLimits.of(0))


# Failures


def fail_syncs(stand: TurnStand, suffix: str) -> None:
    def refuse(operation: Operation) -> None:
        if operation.kind == "sync" and operation.path.suffix == suffix:
            raise OSError(errno.EIO, "refused by the test")

    stand.disk.before_operation = refuse


def test_a_failed_fsync_fails_every_append_that_shared_it_and_no_other() -> None:
    async def scenario(stand: TurnStand) -> None:
        await stand.commit(0, 1, 2, 3)
        fail_syncs(stand, ".journal")
        taken = [stand.append(number) for number in (0, 1, 2, 0)]
        outcomes = await asyncio.gather(*(pending.fsynced for pending in taken), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [PartitionFailedError] * 4
        assert [log.offline_reason is None for log in stand.logs] == [False, False, False, True]
        assert len(stand.observed.failures) == 3
        assert [log.snapshot.high_watermark for log in stand.logs] == [1, 1, 1, 1]
        with pytest.raises(PartitionOfflineError):
            await stand.append(0).fsynced
        # Nothing more goes through the journal: its fsync would fail, and is never tried again.
        before = stand.syncs(".log")
        await stand.commit(3)
        await stand.commit(3)
        assert stand.syncs(".log") >= before + 2
        await stand.turns.close()
        assert stand.ends_after_power_cut() == [1, 1, 1, 3]

    on_stand(scenario)


def test_the_other_logs_are_settled_when_the_journal_has_ended() -> None:
    async def scenario(stand: TurnStand) -> None:
        await stand.commit(0, 1, 2, 3)
        fail_syncs(stand, ".journal")
        with pytest.raises(PartitionFailedError):
            await stand.append(0).fsynced
        await stand.turns.close()
        assert [log.writer.fsynced_end for log in stand.logs] == [0, 1, 1, 1]
        assert stand.manager.journal.needs_freeing is False

    on_stand(scenario)


def test_an_unexpected_error_fails_the_appends_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    flush, calls = Journal.flush, []

    def fail_once(self: Journal, logs: Sequence[PartitionLog]) -> list[bool | PartitionFailedError]:
        calls.append(len(logs))
        if len(calls) == 1:
            raise ValueError("a defect")
        return flush(self, logs)

    monkeypatch.setattr(Journal, "flush", fail_once)

    async def scenario(stand: TurnStand) -> None:
        outcomes = await asyncio.gather(*(stand.append(number).fsynced for number in (0, 1)), return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["t-0: a defect", "t-1: a defect"]
        await stand.commit(0, 2)
        assert calls == [2, 2]
        assert stand.ends_after_power_cut() == [2, 0, 1, 0]

    on_stand(scenario)


# Jobs, freeing, and the end


@pytest.mark.parametrize("job", ["roll", "truncate"])
def test_a_job_waits_for_the_turns_flush_and_holds_up_no_other_partition(job: str) -> None:
    async def scenario(stand: TurnStand) -> None:
        await stand.commit(0, 1)
        gate = Gate(stand.disk, "sync", ".journal")
        pending = stand.append(0)
        await gate.reached()
        log = stand.logs[0]
        call = log.roll if job == "roll" else (lambda: log.truncate_to(1))
        working = asyncio.ensure_future(stand.writers[0].run(call))
        other = stand.append(1)
        await other.written
        await asyncio.sleep(0)
        assert not working.done()
        assert len(log.snapshot.segments) == 1
        gate.open()
        await asyncio.gather(pending.fsynced, working, other.fsynced)
        assert len(log.snapshot.segments) == (2 if job == "roll" else 1)
        assert log.written_end_offset == (2 if job == "roll" else 1)
        await stand.commit(0, 1)
        assert stand.ends_after_power_cut() == [log.written_end_offset, 3, 0, 0]

    on_stand(scenario)


def test_an_append_behind_a_job_is_flushed_after_it() -> None:
    async def scenario(stand: TurnStand) -> None:
        gate = Gate(stand.disk, "sync", ".journal")
        first = stand.append(0)
        await gate.reached()
        working = asyncio.ensure_future(stand.writers[0].run(stand.logs[0].roll))
        await asyncio.sleep(0)
        behind = stand.append(0)
        gate.open()
        await asyncio.gather(first.fsynced, working, behind.fsynced)
        assert stand.logs[0].snapshot.base_offsets == (0, 1)
        assert stand.ends_after_power_cut()[0] == 2

    on_stand(scenario)


def test_files_are_freed_beside_the_flushes_and_the_end_waits_for_that() -> None:
    async def scenario(stand: TurnStand) -> None:
        gate = Gate(stand.disk, "sync", ".log")
        while stand.turns._freeing is None:
            await stand.commit(0)
        await gate.reached()
        await stand.commit(1)
        for writer in stand.writers[1:]:
            await writer.close()
        closing = asyncio.ensure_future(stand.turns.close())
        await asyncio.sleep(0)
        assert not closing.done()
        gate.open()
        await closing
        assert not stand.manager.journal.needs_freeing
        await stand.commit(0)
        assert stand.ends_after_power_cut()[:2] == [stand.logs[0].written_end_offset, 1]

    on_stand(scenario, limits=SMALL)


def test_a_journal_in_its_circle_keeps_every_promise() -> None:
    async def scenario(stand: TurnStand) -> None:
        for number in range(60):
            await stand.commit(*range(1 + number % 4))
        assert stand.ends_after_power_cut() == [60, 45, 30, 15]
        assert stand.syncs(".journal") > 20
        assert len(stand.disk.list_directory(DATA / "rollway" / "journal")) <= 3

    on_stand(scenario, limits=SMALL)


class FakeJournal:
    """A journal that has ended while its files were being freed."""

    def __init__(self) -> None:
        self.frees = 0

    is_usable = True

    @property
    def needs_freeing(self) -> bool:
        return self.frees < 2

    def flush(self, logs: Sequence[PartitionLog]) -> list[bool | PartitionFailedError]:
        return [True] * len(logs)

    def begin(self, logs: Sequence[PartitionLog], *, may_wait: bool) -> None:
        """Leave the flush to a thread."""

    def free(self) -> None:
        self.frees += 1


def test_what_needs_freeing_meanwhile_is_freed_without_another_turn() -> None:
    async def run() -> None:
        journal: Any = FakeJournal()
        with ThreadPoolExecutor(1) as pool:
            turns = TurnFlushes(journal, pool, FlushPace(0), lambda seconds: None)
            member = _Member()
            turns.add(member)
            await eventually(lambda: bool(member.answers))
            await turns.close()
            assert journal.frees == 2
            assert member.answers == [True]

    asyncio.run(run())


def test_a_journal_that_ended_without_a_turn_is_freed_by_the_checkpoint() -> None:
    """Such as by a truncation: no flush joins a turn any more."""

    async def scenario(made: stands.Stand) -> None:
        (log,) = await made.topic("t")
        options = AppendOptions()
        pending = made.engine.appends.submit(log, valid_batches(log, b"x"), options)
        await made.engine.appends.outcome_of(pending, options)
        journal = made.engine.manager.journal
        made.disk.fault = Fault(0, errno.EIO, kinds=frozenset({"write"}))
        with pytest.raises(OSError, match=r"."):
            journal.forget(log.name, log.topic_id)
        made.disk.fault = None
        assert journal.needs_freeing
        await made.scheduler.run("checkpoint")
        await eventually(lambda: not journal.needs_freeing)
        assert log.writer.fsynced_end == 1

    stands.on_stand(scenario)


class _Member:
    log: Any = type("Log", (), {"unflushed_bytes": 1})()
    is_open_to_c = False

    def __init__(self) -> None:
        self.answers: list[bool | PartitionFailedError] = []

    def take_covered(self) -> list[Any]:
        return []

    def end_turn(self, covered: list[Any], answer: bool | PartitionFailedError) -> None:
        self.answers.append(answer)


def test_a_writer_closes_after_the_flush_of_its_turn() -> None:
    async def scenario(stand: TurnStand) -> None:
        gate = Gate(stand.disk, "sync", ".journal")
        pending = stand.append(0)
        await gate.reached()
        closing = asyncio.ensure_future(stand.writers[0].close())
        await asyncio.sleep(0)
        assert not closing.done()
        gate.open()
        await closing
        assert pending.fsynced.done()
        assert stand.manager.close()
        assert stand.ends_after_power_cut()[0] == 1

    on_stand(scenario)
