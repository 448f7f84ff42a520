"""The log of the coordinator: who may write it, how it stays short, what damage of it stops."""

from __future__ import annotations

import asyncio

import pytest

from app.engine_local import keyed_log
from app.engine_local.partitions.mailbox import MailboxLimits
from app.engine_local.transactions.coordinator import TransactionCoordinator
from app.engine_local.transactions.log import state_log
from app.problems import kinds
from app.problems.problem import Problem
from log_model.errors import (
    DiskFullError,
    InvalidTopicError,
    PartitionOfflineError,
)
from storage.log.partition_log import AppendRequest, TransactionMarker
from tests.support.stands import Stand, on_stand
from tests.support.transactions import producer_on
from tests.support.writers import append_request


def test_clients_cannot_write_the_state_log():
    async def scenario(made: Stand) -> None:
        await producer_on(made)
        log = made.engine.manager.partition(state_log.TOPIC, 0)
        with pytest.raises(InvalidTopicError):
            await made.append(log, b"x")
        with pytest.raises(InvalidTopicError):
            await made.engine.topics.delete_records(log, 0, dry_run=False)
        with pytest.raises(InvalidTopicError):
            await made.engine.topics.delete(state_log.TOPIC)

    on_stand(scenario)


def test_a_transaction_does_not_reach_the_state_log_with_as_much_as_a_marker():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        state = made.engine.manager.partition(state_log.TOPIC, 0)
        with pytest.raises(InvalidTopicError):
            await producer.send(state, b"x")
        await producer.send(log, b"a")
        transaction = made.engine.transactions.find("t")
        assert transaction is not None
        assert transaction.partitions == {log.name}

    on_stand(scenario)


def test_markers_in_the_state_log_say_nothing_about_transactional_ids():
    async def scenario(made: Stand) -> None:
        producer = await producer_on(made)
        state = made.engine.manager.partition(state_log.TOPIC, 0)
        for commit in (True, False):
            marker = AppendRequest.marker(TransactionMarker(*producer.identity, 0, commit))
            await made.engine.writer_of(state).append(marker, size_bytes=1).written
        assert [each.transactional_id for each in await state_log.TransactionStateLog(made.engine).load()] == ["t"]

    on_stand(scenario)


def test_more_ids_than_a_mailbox_takes_do_not_keep_the_state_log_long(monkeypatch):
    monkeypatch.setattr(state_log, "SHORTEN_ABOVE_COUNT", 20)
    monkeypatch.setattr(state_log, "SHORTEN_ABOVE_RATIO", 1)
    monkeypatch.setattr(keyed_log, "_PENDING_COUNT_MAX", 3)

    async def scenario(made: Stand) -> None:
        made.engine.partitions._limits = MailboxLimits(count_max=4)
        for number in range(40):
            await producer_on(made, f"t{number % 30}")
        state = made.engine.manager.partition(state_log.TOPIC, 0)
        end = state.written_end_offset
        await made.scheduler.run("transactions")
        assert (state.snapshot.log_start_offset, state.written_end_offset) == (end, end + 30)
        assert len(await made.engine.transactions._state_log.load()) == 30

    on_stand(scenario)


def test_a_state_log_that_could_not_be_shortened_holds_up_no_id(monkeypatch):
    monkeypatch.setattr(state_log, "SHORTEN_ABOVE_COUNT", 0)
    monkeypatch.setattr(state_log, "SHORTEN_ABOVE_RATIO", 0)

    async def scenario(made: Stand) -> None:
        producer = await producer_on(made)
        state_log_of = made.engine.transactions._state_log._log
        append, failures = state_log_of._append, [DiskFullError("full"), Problem(kinds.OVERLOADED, "full")]

        def fail_first(*arguments: object) -> object:
            if failures:
                raise failures.pop()
            return append(*arguments)

        monkeypatch.setattr(state_log_of, "_append", fail_first)
        # What was raised holds the frames it passed through.
        kept = []
        for kind in (Problem, DiskFullError):
            with pytest.raises(kind) as raised:
                await made.engine.transactions.run_jobs()
            kept.append(raised)
        async with asyncio.timeout(10):
            await producer.initialise()
            await made.engine.transactions.run_jobs()

    on_stand(scenario)


def test_the_state_log_is_shortened_and_says_the_same(monkeypatch):
    monkeypatch.setattr(state_log, "SHORTEN_ABOVE_COUNT", 20)

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producers = [await producer_on(made, f"t{number}") for number in range(2)]
        for _ in range(10):
            for producer in producers:
                await producer.send(log, b"a")
                await producer.end(commit=True)
        await producers[0].send(log, b"open")
        before = list(made.engine.transactions._table)
        state = made.engine.manager.partition(state_log.TOPIC, 0)
        assert state.snapshot.log_start_offset == 0
        await made.scheduler.run("transactions")
        assert state.snapshot.log_start_offset > 20
        assert state.written_end_offset - state.snapshot.log_start_offset == 2
        assert sorted(await made.engine.transactions._state_log.load(), key=str) == sorted(before, key=str)
        await producers[0].end(commit=True)

    on_stand(scenario)


def test_a_damaged_state_log_refuses_transactions_and_serves_the_rest():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        await producer_on(made)
        state = made.engine.manager.partition(state_log.TOPIC, 0)
        await made.engine.writer_of(state).run(lambda: None)
        made.engine.writer_of(state).append(append_request(state, b"no record of ours"), size_bytes=1)
        await made.engine.writer_of(state).run(state.flush)
        coordinator = TransactionCoordinator(made.engine)
        await coordinator.start()
        with pytest.raises(Exception, match=r"there are no transactions: .*damaged key"):
            await coordinator.initialise("t", 1_000, 1_000)
        await coordinator.run_jobs()
        await made.append(log, b"goes on")
        await coordinator.close()

    on_stand(scenario)


def test_flipped_bits_in_the_state_log_refuse_transactions_and_serve_the_rest():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        segment = made.engine.manager.partition(state_log.TOPIC, 0).snapshot.segments[0]
        segment.file.write(70, [b"\xff"])
        coordinator = made.engine.transactions = TransactionCoordinator(made.engine)
        await coordinator.start()
        # Not 49: that would make the producer give up for good.
        with pytest.raises(PartitionOfflineError, match=r"there are no transactions: .*damaged"):
            coordinator.name_of(producer.identity.producer_id)
        with pytest.raises(PartitionOfflineError):
            await producer.send(log, b"a")
        await made.append(log, b"goes on")

    on_stand(scenario)
