"""What the coordinator does by itself, and when nobody waits for it."""

from __future__ import annotations

import asyncio
import gc

import pytest

from app.engine.transactions import Transaction
from app.problems.problem import Problem
from log_model.errors import DiskFullError, PartitionOfflineError
from tests.support.stands import Stand, on_stand
from tests.support.transactions import TestProducer, settled


async def producer_on(made: Stand, name: str = "t", **options: int) -> TestProducer:
    producer = TestProducer(made.parts, name, **options)
    await producer.initialise()
    return producer


def test_a_commit_that_fails_when_nobody_waits_any_more_is_logged(caplog):
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        await producer.send(log, b"a")
        is_time = asyncio.Event()

        async def fail_late(_: Transaction) -> None:
            await is_time.wait()
            raise PartitionOfflineError("the disk is gone")

        made.engine.transactions._markers.make_records_durable = fail_late
        with pytest.raises(Problem) as late:
            await producer.end(commit=True, wait_ms=1)
        assert late.value.code == "request_timed_out"
        is_time.set()
        await settled(made.parts)
        assert made.engine.transactions.open_count() == 1

    on_stand(scenario)
    gc.collect()
    assert [record.name for record in caplog.records] == ["app.engine_local.transactions.turns"]
    assert "the disk is gone" in caplog.text


def test_a_transaction_that_cannot_be_aborted_now_keeps_no_other_open():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producers = [await producer_on(made, f"t{number}", timeout_ms=1_000) for number in range(3)]
        for producer in producers:
            await producer.send(log, b"slow")
        made.clock.advance(1_001)
        write = made.engine.transactions._state_log.write

        async def refuse_the_first(transaction: Transaction) -> None:
            if transaction.transactional_id == "t0":
                raise DiskFullError("no room for this one")
            await write(transaction)

        made.engine.transactions._state_log.write = refuse_the_first
        await made.scheduler.run("transactions")
        await settled(made.parts)
        states = {each.transactional_id: each.state.name for each in made.engine.transactions._table}
        assert states == {"t0": "ONGOING", "t1": "COMPLETE_ABORT", "t2": "COMPLETE_ABORT"}
        made.engine.transactions._state_log.write = write
        await made.scheduler.run("transactions")
        await settled(made.parts)
        assert made.engine.transactions.open_count() == 0

    on_stand(scenario)
