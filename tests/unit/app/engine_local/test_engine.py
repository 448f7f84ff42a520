"""The parts: what is waited for, and topics that change while they are written."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from app.engine.appending import AppendOptions
from app.engine.reading import Read, ReadOutcome
from app.problems.engine import problem_for
from app.produce import producing
from app.record_json.translate import ParsedRecords, parse_record_list
from app.service.parts import Parts
from log_model.config import TopicConfig
from log_model.errors import (
    OffsetOutOfRangeError,
    ShuttingDownError,
    StorageError,
    UnavailableError,
    UnknownTopicOrPartitionError,
)
from storage.log.partition_log import PartitionLog
from tests.support.stands import Stand, on_stand
from tests.support.writers import Gate, eventually, held, valid_batches

Result = TypeVar("Result")
FSYNCED = (".log", ".journal")
"""The files whose fsync makes records durable."""


async def fetch(parts: Parts, log: PartitionLog, request: Read, then: Callable[[ReadOutcome], Result]) -> Result:
    pending = await parts.engine.reads.begin(log, request)
    if pending.waiting is not None:
        await pending.waiting.done
    return await pending.outcome(then)


@pytest.mark.parametrize(
    ("acks", "durability", "policy", "waits"),
    [
        ("all", None, "group", True),
        ("all", None, "interval", False),
        ("1", None, "group", False),
        ("1", None, "interval", False),
        ("all", "written", "group", False),
        ("1", "fsynced", "interval", True),
        ("0", None, "group", False),
    ],
)
def test_what_an_acknowledgement_waits_for(acks: str, durability: str | None, policy: str, waits: bool) -> None:
    """What an acknowledgement means: docs/explanation/durability.md#the-three-answers."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t", flush_policy=policy)
        options = AppendOptions(acks=acks, durability=durability)  # type: ignore[arg-type]
        assert options.waits_for_fsync(log) is waits
        gate = Gate(made.disk, "sync", FSYNCED)
        pending = made.engine.appends.submit(log, valid_batches(log, b"x"), options)
        answer = asyncio.ensure_future(made.engine.appends.outcome_of(pending, options))
        await pending.written
        await eventually(lambda: answer.done()) if not waits else await gate.reached()
        assert answer.done() is not waits
        gate.open()
        assert (await answer).base_offset == 0

    on_stand(scenario)


def test_a_topic_may_be_deleted_while_it_is_written_and_polled() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        options = AppendOptions()
        request = Read(offset="latest", wait_ms=60_000)
        poll = asyncio.ensure_future(
            fetch(made.parts, made.engine.manager.partition("t", 0), request, lambda outcome: outcome)
        )
        await eventually(lambda: len(made.engine.partitions.waiters) == 1)
        gate = Gate(made.disk, "write")
        first = made.engine.appends.submit(log, valid_batches(log, b"x"), options)
        await gate.reached()
        deleting = asyncio.ensure_future(made.engine.topics.delete("t"))
        await eventually(lambda: len(made.engine.writer_of(log).mailbox) == 1)
        late = made.engine.appends.submit(log, valid_batches(log, b"late"), options)
        gate.open()
        await deleting
        assert (await first.written).base_offset == 0
        with pytest.raises(UnknownTopicOrPartitionError):
            await late.written
        with pytest.raises(StorageError):
            made.engine.manager.partition("t", 0)
        assert (await asyncio.gather(poll, return_exceptions=True))[0] is not None
        (again,) = await made.topic("t")
        assert again is not log
        assert (await made.engine.appends.submit(again, valid_batches(again, b"new"), options).fsynced).base_offset == 0

    on_stand(scenario)


def test_settings_reach_every_partition_before_the_answer() -> None:
    async def scenario(made: Stand) -> None:
        logs = list(await made.topic("t", 3))
        await made.engine.topics.alter("t", config={"segment.ms": 5}, partition_count=4)
        assert {log.config.segment_ms for log in made.engine.topic("t").partitions} == {5}
        assert made.engine.topic("t").partitions[:3] == logs

    on_stand(scenario)


def test_a_fetch_reads_one_snapshot_even_while_records_come() -> None:
    """Invariant 3."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        options = AppendOptions()
        await made.engine.appends.submit(log, valid_batches(log, b"x"), options).fsynced

        outcome = await fetch(made.parts, log, Read(offset=0, end_offset=1), lambda outcome: outcome)
        assert (outcome.limits, outcome.start, outcome.end) == (log.snapshot, 0, 1)
        assert outcome.data.next_offset == outcome.limits.high_watermark

    on_stand(scenario)


def test_a_closed_broker_refuses_and_does_not_wait() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        options = AppendOptions()
        taken = made.engine.appends.submit(log, valid_batches(log, b"x"), options)
        await made.parts.close()
        assert taken.fsynced.result().base_offset == 0
        with pytest.raises(ShuttingDownError):
            made.engine.appends.submit(log, valid_batches(log, b"y"), options)
        request = Read(offset="latest", wait_ms=60_000)
        await fetch(made.parts, log, request, lambda outcome: outcome)

    on_stand(scenario)


def test_offsets_outside_are_told_with_all_that_is_known() -> None:
    """Spec B8."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        await made.engine.appends.submit(log, valid_batches(log, b"x", b"y"), AppendOptions()).fsynced
        await made.engine.topics.delete_records(log, 1, dry_run=False)
        for offset, status in ((0, 410), (3, 416)):
            with pytest.raises(OffsetOutOfRangeError) as refused:
                await made.engine.reads.begin(log, Read(offset=offset))
            problem = problem_for(refused.value)
            assert (problem.status, problem.kafka_code) == (status, 1)
            assert problem.extra["log_start_offset"] == 1
            assert problem.headers["Log-Start-Offset"] == "1"
            assert problem.extra.get("log_start_moved_by") == ("delete-records" if status == 410 else None)
        with pytest.raises(OffsetOutOfRangeError) as refused:
            await made.engine.reads.begin(log, Read(offset=2, below_bound=True))
        assert problem_for(refused.value).status == 416

    on_stand(scenario)


def test_an_acknowledgement_waits_for_what_was_promised_when_it_was_asked_for() -> None:
    """A topic that turns to flush.policy=interval meanwhile leaves nobody waiting for a flush that nobody begins."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t", flush_policy="group")
        options = AppendOptions(timeout_ms=30_000)
        gate = Gate(made.disk, "write")
        pending = made.engine.appends.submit(log, valid_batches(log, b"x"), options)
        await gate.reached()
        altering = asyncio.ensure_future(made.engine.topics.alter("t", config={"flush.policy": "interval"}))
        log.update_config(replace(log.config, flush_policy="interval"))
        gate.open()
        assert (await made.engine.appends.outcome_of(pending, options)).base_offset == 0
        assert log.durable_end_offset == 1
        await altering

    on_stand(scenario)


def test_a_deleted_log_gets_no_writer_beside_its_successors() -> None:
    async def scenario(made: Stand) -> None:
        (old,) = await made.topic("t")
        await made.engine.topics.delete("t")
        (new,) = await made.topic("t")
        await made.append(new, b"x")
        writer = made.engine.writer_of(new)
        with pytest.raises(UnknownTopicOrPartitionError):
            made.engine.writer_of(old)
        assert made.engine.writer_of(new) is writer

    on_stand(scenario)


def test_a_fetch_does_not_wait_for_a_topic_that_was_deleted_before_it_could() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        await made.engine.topics.delete("t")
        request = Read(offset=0, wait_ms=60_000)
        with pytest.raises(UnknownTopicOrPartitionError):
            await made.engine.reads.begin(log, request)
        # A new topic of that name wakes nobody who asks for the old one either.
        await made.topic("t")
        with pytest.raises(UnknownTopicOrPartitionError):
            await made.engine.reads.begin(log, request)
        assert len(made.engine.partitions.waiters) == 0

    on_stand(scenario)


@pytest.mark.parametrize("held_by", ["writer", "encoder"])
def test_partitions_of_one_request_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch, held_by: str) -> None:
    """The first partition is held up: what goes to the second is in its log meanwhile."""
    go_on = threading.Event()
    encode = producing.validated_batches

    def held_encode(parsed: ParsedRecords, config: TopicConfig, rows: list[int], **more: Any) -> Any:
        if rows == [0]:
            assert go_on.wait(30)
        return encode(parsed, config, rows, **more)

    async def scenario(made: Stand) -> None:
        # Compressed in threads.
        first, second = await made.topic("t", 2, compression_type="gzip")
        parsed = parse_record_list(
            b'{"records":[{"value":"a","partition":0},{"value":"b","partition":1}]}',
            "utf8",
            now_ms=made.engine.now_ms(),
        )
        async with contextlib.AsyncExitStack() as stack:
            if held_by == "writer":
                await stack.enter_async_context(held(made.engine.writer_of(first)))
            else:
                stack.callback(go_on.set)
                monkeypatch.setattr(producing, "validated_batches", held_encode)
            answer = asyncio.ensure_future(
                producing.produce_to_topic(made.parts.producing, "t", parsed, AppendOptions(acks="1"))
            )
            await eventually(lambda: second.snapshot.log_end_offset == 1)
            assert (first.snapshot.log_end_offset, answer.done()) == (0, False)
        outcomes = await answer
        assert [outcome.partition for outcome in outcomes if outcome.problem is None] == [0, 1]
        assert first.snapshot.log_end_offset == 1

    on_stand(scenario)


@pytest.mark.parametrize("failures", [0, 1, 10])
def test_a_partition_that_rests_is_opened_once(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    """Requests that come meanwhile wait for it; if it fails, each of them tries, one after the other."""

    async def scenario(made: Stand) -> None:
        await made.engine.topics.ensure("t", 1, {})
        opened, running, go_on = made.engine.manager.partition, [0], threading.Event()
        calls: list[int] = []

        def slow(topic: str, number: int) -> PartitionLog:
            calls.append(running[0])
            running[0] += 1
            assert go_on.wait(30)
            running[0] -= 1
            if len(calls) <= failures:
                raise UnavailableError(f"try {len(calls)}")
            return opened(topic, number)

        monkeypatch.setattr(made.engine.manager, "partition", slow)
        asked = [asyncio.ensure_future(made.engine.partition("t", 0)) for _ in range(10)]
        await eventually(lambda: len(calls) == 1)
        go_on.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(each) for each in found[:failures]] == [f"try {number + 1}" for number in range(failures)]
        assert len({id(each) for each in found[failures:]}) <= 1
        assert calls == [0] * min(failures + 1, 10)

    on_stand(scenario)


def test_who_asked_first_for_a_partition_may_leave() -> None:
    async def scenario(made: Stand) -> None:
        await made.engine.topics.ensure("t", 1, {})
        first, second = (asyncio.ensure_future(made.engine.partition("t", 0)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second is made.engine.manager.partition("t", 0)
        assert await made.engine.partition("t", 0) is await second
        with pytest.raises(asyncio.CancelledError):
            await first

    on_stand(scenario)
