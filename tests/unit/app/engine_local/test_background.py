"""Background jobs: each does what is due, may run again, and never stops the others."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from app.engine.appending import AppendOptions
from app.engine.engine import Job
from storage.log.partition_log import PartitionLog
from tests.crash.disk_faults import Fault
from tests.support.stands import Stand, on_stand
from tests.support.writers import eventually, valid_batches


class NoRoomInJournal(Fault):
    """A fault of writes to the files of the journal."""

    def strikes(self, kind: str, path: Path) -> bool:
        return path.suffix == ".journal" and kind in ("extend", "write") and super().strikes(kind, path)


def test_flush_covers_partitions_whose_time_has_come() -> None:
    """Spec B4."""

    async def scenario(made: Stand) -> None:
        due, later = await made.topic("t", 2, flush_policy="interval", flush_ms=1000)
        await made.append(due, b"x")
        made.clock.advance(1000)
        await made.append(later, b"y")
        await made.scheduler.run("flush")
        await eventually(lambda: due.recovery_point == 1)
        assert made.count("rollway_job_runs_total", "flush") == 1

    on_stand(scenario)


def test_roll_seals_segments_that_are_too_old_and_no_empty_ones() -> None:
    async def scenario(made: Stand) -> None:
        old, empty = await made.topic("t", 2, segment_ms=1000)
        await made.append(old, b"x")
        await made.scheduler.run("roll")
        assert len(old.snapshot.segments) == 1
        made.clock.advance(1001)
        for _ in range(2):
            await made.scheduler.run("roll")
        assert (len(old.snapshot.segments), len(empty.snapshot.segments)) == (2, 1)

    on_stand(scenario)


def test_only_writers_whose_files_may_be_touched_run_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition that was appended to within a second held up its appends for a job."""
    checked: list[int] = []
    check = PartitionLog.check_files
    monkeypatch.setattr(PartitionLog, "check_files", lambda log: (checked.append(log.name.partition), check(log))[1])

    async def scenario(made: Stand) -> None:
        logs = await made.topic("t", 3, flush_policy="interval")

        async def run(cut: bool = False) -> list[int]:
            checked.clear()
            for log in logs[:2]:
                await made.append(log, b"x" * 100)
            if cut:
                made.disk.open(logs[1].directory / f"{0:020}.log").truncate(10)
            await made.scheduler.run("check_files")
            return list(checked)

        assert await run() == [0, 1], "the first time nothing is known of them"
        assert await run() == []
        assert await run(cut=True) == [1]
        assert [log.offline_reason is None for log in logs] == [True, False, True]

    on_stand(scenario)


def test_retention_deletes_what_is_due_and_files_follow() -> None:
    """Spec E4, E5, E7."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t", retention_ms=1000, file_delete_delay_ms=500)
        await made.append(log, b"x")
        made.clock.advance(5000)
        for _ in range(2):
            await made.scheduler.run("retention")
        assert log.snapshot.log_start_offset == 1
        deleted = [name for name in made.disk.list_directory(log.directory) if name.endswith(".deleted")]
        assert deleted
        await made.scheduler.run("delete_files")
        assert set(deleted) <= set(made.disk.list_directory(log.directory))
        made.clock.advance(500)
        await made.scheduler.run("delete_files")
        assert not set(deleted) & set(made.disk.list_directory(log.directory))

    on_stand(scenario)


def test_checkpoints_are_written() -> None:
    """Spec E24, E25."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        options = AppendOptions()
        await made.engine.appends.outcome_of(
            made.engine.appends.submit(log, valid_batches(log, b"x"), options), options
        )
        # Recovery has nothing to scan where the segment itself is durable, and not the journal alone.
        await made.engine.partitions.run_in_log(log, lambda: log.flush(to_segment=True))
        await made.scheduler.run("checkpoint")
        await made.scheduler.run("checkpoint_high_watermarks")
        tree = made.disk.tree()
        (recovery,) = [content for name, content in tree.items() if name.endswith("recovery-point-offset-checkpoint")]
        (watermark,) = [content for name, content in tree.items() if name.endswith("replication-offset-checkpoint")]
        assert b"t 0 1" in recovery
        assert b"t 0 1" in watermark

    on_stand(scenario)


def test_a_journal_that_a_full_disk_has_ended_begins_again_with_a_checkpoint() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        journal, options = made.engine.manager.journal, AppendOptions()

        async def append() -> None:
            submitted = made.engine.appends.submit(log, valid_batches(log, b"x"), options)
            await made.engine.appends.outcome_of(submitted, options)

        await append()
        made.disk.fault = NoRoomInJournal(0, errno.ENOSPC, lasting=True)
        await append()
        assert not journal.is_usable
        await eventually(lambda: not journal.needs_freeing)
        await made.scheduler.run("checkpoint")
        assert not journal.is_usable
        made.disk.fault = None
        await made.scheduler.run("checkpoint")
        assert journal.is_usable
        await append()
        assert (log.durable_end_offset, log.offline_reason) == (3, None)

    on_stand(scenario)


def test_a_job_that_fails_is_counted_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        await made.append(log, b"x")
        made.disk.fault = Fault(0, errno.EIO, lasting=True, kinds=frozenset({"create", "write", "rename"}))
        await made.scheduler.run("checkpoint")
        assert made.count("rollway_job_failures_total", "checkpoint") == 1
        made.disk.fault = None
        await made.scheduler.run("checkpoint")
        assert made.count("rollway_job_failures_total", "checkpoint") == 1
        assert made.count("rollway_job_runs_total", "checkpoint") == 2

    on_stand(scenario)
    assert "checkpoint failed" in caplog.text


def test_a_partition_that_cannot_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(made: Stand) -> None:
        broken, healthy = await made.topic("t", 2, retention_ms=1000)
        await made.append(broken, b"x")
        await made.append(healthy, b"x")
        made.clock.advance(5000)
        real = broken.delete_old_segments

        def fail(now_ms: int) -> Any:
            broken.take_offline("the disk is gone")
            return real(now_ms)

        broken.delete_old_segments = fail  # type: ignore[method-assign]
        await made.scheduler.run("retention")
        assert (broken.snapshot.log_start_offset, healthy.snapshot.log_start_offset) == (0, 1)
        assert made.count("rollway_job_failures_total", "retention") == 0

    on_stand(scenario)
    assert "the disk is gone" in caplog.text


def test_the_close_waits_for_a_job_that_runs(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(made: Stand) -> None:
        began, go_on = asyncio.Event(), asyncio.Event()

        async def job() -> None:
            began.set()
            await go_on.wait()

        made.scheduler._jobs["flush"] = Job(job, 1)
        made.scheduler.start()
        await began.wait()
        closing = asyncio.ensure_future(made.scheduler.close())
        await asyncio.sleep(0)
        assert not closing.done()
        go_on.set()
        await closing
        assert made.count("rollway_job_runs_total", "flush") == 1

    on_stand(scenario)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_nothing_runs_after_the_close() -> None:
    async def scenario(made: Stand) -> None:
        made.scheduler.start()
        await made.scheduler.close()
        await made.scheduler.run("flush")
        assert made.count("rollway_job_runs_total", "flush") == 0

    on_stand(scenario)


def test_ps_6_idle_producers_are_forgotten_in_the_writers_turn() -> None:
    """Spec E19: producer.id.expiration.ms, checked every ten minutes."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        batches = valid_batches(log, b"x")
        batches[0].set_producer(7, 0, 0)
        await made.engine.appends.outcome_of(made.engine.appends.submit(log, batches, AppendOptions()), AppendOptions())
        expiration_ms = made.parts.settings.producer_id_expiration_ms
        made.clock.advance(expiration_ms - 1)
        await made.scheduler.run("expire_producers")
        assert len(log.producers) == 1
        made.clock.advance(1)
        await made.scheduler.run("expire_producers")
        assert len(log.producers) == 0

    on_stand(scenario)
