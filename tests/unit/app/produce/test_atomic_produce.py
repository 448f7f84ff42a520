"""Requests that are one transaction each: visible in all their partitions, or in none."""

from __future__ import annotations

import asyncio
import dataclasses
import errno

import pytest

from app.engine.appending import AppendOptions
from app.engine.transactions import ProducerIdentity, Transaction, TransactionState
from app.engine_local.transactions.pool import ProducerPool, UntilEnded, Wait
from app.produce.atomic_produce import AtomicOutcome, produce_atomically
from app.produce.enlisting import PartitionAppend
from log_model.errors import DiskFullError
from storage.log.partition_log import AppendResult, PartitionLog
from tests.crash.disk_faults import FULL_DISK_KINDS, Fault
from tests.support.stands import Stand, on_stand
from tests.support.transactions import visible
from tests.support.writers import eventually, valid_batches


def plain_appends(made: Stand, logs: tuple[PartitionLog, ...], *values: bytes) -> list[PartitionAppend]:
    return [PartitionAppend(log, valid_batches(log, *values)) for log in logs]


def test_an_atomic_request_is_visible_in_all_partitions_or_in_none():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 3)
        for value in (b"a", b"b"):
            done = await produce_atomically(
                made.parts.producing, plain_appends(made, logs, value, value), AppendOptions()
            )
            assert done.is_committed
        assert visible(logs) == [[b"a", b"a", b"b", b"b"]] * 3
        # The same producer both times, with sequences that count on.
        assert made.engine.transactions.id_count() == 1
        refusing = AppendOptions(expected_offset=logs[0].snapshot.log_end_offset)
        await made.append(logs[1], b"moves the end")
        refused = await produce_atomically(made.parts.producing, plain_appends(made, logs, b"no"), refusing)
        assert not refused.is_committed
        assert [isinstance(result, AppendResult) for result in refused.results] == [True, False, True]
        after = await produce_atomically(made.parts.producing, plain_appends(made, logs, b"c"), AppendOptions())
        assert after.is_committed
        assert [values[-1] for values in visible(logs)] == [b"c"] * 3
        assert not any(b"no" in values for values in visible(logs))

    on_stand(scenario)


def test_atomic_requests_beside_each_other():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        values = [b"%d" % number for number in range(20)]
        done = await asyncio.gather(
            *(
                produce_atomically(made.parts.producing, plain_appends(made, logs, value), AppendOptions())
                for value in values
            )
        )
        assert all(each.is_committed for each in done)
        assert [sorted(seen) for seen in visible(logs)] == [sorted(values)] * 2

    on_stand(scenario)


def test_a_producer_that_was_forgotten_while_idle_is_made_anew():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        assert (
            await produce_atomically(made.parts.producing, plain_appends(made, logs, b"a"), AppendOptions())
        ).is_committed
        made.clock.advance(made.parts.settings.transactional_id_expiration_ms)
        await made.scheduler.run("transactions")
        assert made.engine.transactions.id_count() == 0
        assert (
            await produce_atomically(made.parts.producing, plain_appends(made, logs, b"b"), AppendOptions())
        ).is_committed
        assert visible(logs) == [[b"a", b"b"]] * 2

    on_stand(scenario)


def test_a_request_that_a_full_disk_cuts_short_is_answered_and_holds_up_none_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Only what frees space makes the next attempt.
    monkeypatch.setattr("app.engine_local.transactions.markers.RETRY_MS_MIN", 60_000)

    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        elsewhere = await made.topic("elsewhere", 2)

        async def produce(to: tuple[PartitionLog, ...], **options: int) -> AtomicOutcome:
            return await produce_atomically(
                made.parts.producing, plain_appends(made, to, b"a"), AppendOptions(**options)
            )

        assert (await produce(logs)).is_committed
        write, full = made.engine.transactions._state_log.write, Fault(at=0, error=errno.ENOSPC, lasting=True)

        async def write_and_fill(transaction: Transaction) -> None:
            await write(transaction)
            if transaction.state is TransactionState.PREPARE_ABORT:
                # The decision has room and the markers have none, as on a disk that fills up just then.
                made.disk.fault = dataclasses.replace(full, kinds=FULL_DISK_KINDS)

        made.engine.transactions._state_log.write = write_and_fill
        await made.append(logs[1], b"moves the end")
        cut_short = await produce(logs, expected_offset=logs[0].snapshot.log_end_offset)
        assert [isinstance(result, AppendResult) for result in cut_short.results] == [True, False]
        waits_for_space = made.engine.transactions._markers.waits_for_space
        await eventually(lambda: all(waits_for_space(log.name) for log in logs))
        made.disk.fault = None
        made.engine.transactions._state_log.write = write
        # Its markers wait for their next attempt: another name is used, and its partitions take no other transaction.
        assert (await produce(elsewhere)).is_committed
        again = await produce(logs)
        assert [type(result) for result in again.results] == [DiskFullError, DiskFullError]
        made.engine.transactions.hurry()
        await eventually(lambda: not any(waits_for_space(log.name) for log in logs))
        assert (await produce(logs)).is_committed
        assert visible(logs) == [[b"a", b"a"], [b"a", b"moves the end", b"a"]]

    on_stand(scenario)


def test_a_pool_whose_names_all_wait_for_space_refuses_at_once() -> None:
    async def initialise(name: str, timeout_ms: int, wait_ms: int, *, until_ended: UntilEnded) -> ProducerIdentity:
        await until_ended(asyncio.get_running_loop().create_future())
        return ProducerIdentity(1, 0)

    async def scenario(*waits: Wait) -> str:
        left = list(waits)
        pool = ProducerPool(
            initialise, lambda *_: False, lambda _: left.pop(0) if len(left) > 1 else left[0], count_max=2
        )
        async with asyncio.timeout(5), pool.producer(1_000, 1_000) as producer:
            return producer.name

    with pytest.raises(DiskFullError, match="earlier transactions"):
        asyncio.run(scenario(Wait.SPACE))
    # Free when its turn came; then it is found to wait.
    with pytest.raises(DiskFullError, match="__rollway_atomic_0"):
        asyncio.run(scenario(Wait.NONE, Wait.NONE, Wait.MARKERS, Wait.SPACE))


def test_an_idle_producer_whose_last_end_is_not_noted_yet_waits_while_another_is_used() -> None:
    waits = {"__rollway_atomic_0": Wait.NONE, "__rollway_atomic_1": Wait.NONE}

    async def initialise(name: str, timeout_ms: int, wait_ms: int, *, until_ended: UntilEnded) -> ProducerIdentity:
        return ProducerIdentity(1, 0)

    async def scenario() -> list[str]:
        pool = ProducerPool(initialise, lambda *_: True, waits.__getitem__, count_max=2)
        used = []
        for wait in (Wait.NONE, Wait.SPACE, Wait.NONE, Wait.MARKERS):
            waits["__rollway_atomic_0"] = wait
            async with pool.producer(1_000, 1_000) as producer:
                used.append(producer.name[-1])
                producer.keep(producer.identity)
        # Both are idle; the one that waits for its markers is better than the one that waits for space.
        waits.update({"__rollway_atomic_0": Wait.MARKERS, "__rollway_atomic_1": Wait.SPACE})
        async with pool.producer(1_000, 1_000) as producer:
            used.append(producer.name[-1])
        return used

    assert asyncio.run(scenario()) == ["0", "1", "1", "1", "0"]
