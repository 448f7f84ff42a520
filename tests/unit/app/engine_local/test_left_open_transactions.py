"""Transactions that the service's own producers have left open: aborted at once, unless they are another's by then."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from app.engine.appending import AppendOptions
from app.engine.transactions import Transaction, TransactionState
from app.produce.atomic_produce import produce_atomically
from app.produce.enlisting import PartitionAppend
from log_model.errors import DiskFullError
from tests.support.stands import Stand, on_stand
from tests.support.transactions import TestProducer, visible
from tests.support.writers import eventually, valid_batches


def test_a_transaction_of_the_names_next_producer_is_left_alone() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders", 1)
        producer = TestProducer(made.parts, "loader")
        await producer.initialise()
        left = producer.identity
        await producer.initialise()
        await producer.send(log, b"a")
        transactions = made.engine.transactions
        transactions._left_open.abort("loader", left)
        await eventually(lambda: not transactions.is_busy)
        assert transactions.open_count() == 1
        transactions._left_open.abort("loader", producer.identity)
        await eventually(lambda: transactions.open_count() == 0)
        assert visible((log,)) == [[]]

    on_stand(scenario)


def test_a_request_whose_client_goes_away_leaves_nothing_open() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders", 1)
        transactions = made.engine.transactions
        appends = [PartitionAppend(log, valid_batches(log, b"a"))]
        request = asyncio.create_task(produce_atomically(made.parts.producing, appends, AppendOptions()))
        await eventually(lambda: transactions.open_count() == 1)
        request.cancel()
        await asyncio.wait([request])
        await eventually(lambda: transactions.open_count() == 0)

    on_stand(scenario)


def test_tries_end_with_the_transactions_timeout_and_with_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only ``hurry`` makes the next attempt.
    monkeypatch.setattr("app.engine_local.transactions.left_open.RETRY_MS_MIN", 60_000)
    monkeypatch.setattr("app.engine_local.transactions.left_open.RETRY_MS_MAX", 60_000)

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders", 1)
        transactions = made.engine.transactions
        write, tries = transactions._state_log.write, Counter[str]()

        async def refuse_aborts(transaction: Transaction) -> None:
            if transaction.state is TransactionState.PREPARE_ABORT:
                tries[transaction.transactional_id] += 1
                raise DiskFullError("full")
            await write(transaction)

        def hurry_until(name: str, count: int) -> bool:
            transactions.hurry()
            return tries[name] == count

        transactions._state_log.write = refuse_aborts
        producers = [TestProducer(made.parts, f"loader-{each}", timeout_ms=each) for each in (1, 60_000)]
        for producer in producers:
            await producer.initialise()
            await producer.send(log, b"a")
        for producer in producers:
            transactions._left_open.abort(producer.name, producer.identity)
        await eventually(lambda: set(tries.values()) == {1})
        clock, tried_at = asyncio.get_running_loop().time, asyncio.get_running_loop().time()
        await eventually(lambda: clock() > tried_at + 0.01)
        await eventually(lambda: hurry_until("loader-60000", 4))
        # The other has reached its timeout, by which it is aborted from then on.
        assert tries["loader-1"] == 2
        assert transactions.is_busy
        async with asyncio.timeout(10):
            await transactions.close()
        assert not transactions.is_busy

    on_stand(scenario)
