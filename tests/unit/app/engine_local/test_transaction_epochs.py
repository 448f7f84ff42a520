"""Every end raises the producer's epoch (KIP-890): what comes again is recognised, and what comes late is refused."""

from __future__ import annotations

import dataclasses

import pytest

from app.engine.transactions import Transaction, TransactionState
from app.engine_local.transactions.coordinator import TransactionCoordinator
from app.engine_local.transactions.log.records import encode_key
from app.engine_local.transactions.log.state import PRODUCER_EPOCH_MAX, initialise
from log_model.errors import InvalidPidMappingError, InvalidTxnStateError, OutOfOrderSequenceError, ProducerFencedError
from tests.support.earlier_transactions import end_as_before
from tests.support.stands import Stand, on_stand
from tests.support.transactions import producer_on, settled, visible


@pytest.mark.parametrize("commit", [True, False])
def test_ending_again_after_a_lost_answer_is_a_success_and_the_other_way_48(commit):
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        with pytest.raises(InvalidTxnStateError):
            await producer.end(commit=True)
        await producer.send(log, b"a")
        first = await producer.end(commit=commit)
        assert producer.identity == producer.ended_as._replace(producer_epoch=producer.ended_as.producer_epoch + 1)
        end = log.snapshot.log_end_offset
        assert await producer.end_again(commit=commit) == (first, producer.identity)
        assert log.snapshot.log_end_offset == end
        with pytest.raises(InvalidTxnStateError):
            await producer.end_again(commit=not commit)

    on_stand(scenario)


@pytest.mark.parametrize("first_commits", [True, False])
@pytest.mark.parametrize("copy_commits", [True, False])
def test_a_late_copy_of_an_end_does_not_end_the_next_transaction(first_commits, copy_commits):
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        await producer.send(log, b"first")
        await producer.end(commit=first_commits)
        await producer.send(log, b"before")
        with pytest.raises(ProducerFencedError):
            await producer.end_again(commit=copy_commits)
        await producer.send(log, b"after")
        await producer.end(commit=not copy_commits)
        expected = [b"first"] * first_commits + [b"before", b"after"] * (not copy_commits)
        assert visible([log]) == [expected]

    on_stand(scenario)


def test_an_abort_without_records_shuts_out_what_is_still_on_its_way():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        for _ in range(2):
            assert await producer.end(commit=False) == "COMPLETE_ABORT"
            with pytest.raises(ProducerFencedError):
                await producer.send_at(log, 0, b"late", identity=producer.ended_as)
        assert log.snapshot.log_end_offset == 0
        await producer.send(log, b"a")
        await producer.end(commit=True)
        assert visible([log]) == [[b"a"]]

    on_stand(scenario)


def test_the_answer_to_an_end_never_tells_a_later_instance():
    """Or a producer that was shut out would be let in again, by the answer to its own commit."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        old = await producer_on(made)
        await old.send(log, b"a")
        table = made.engine.transactions._table
        put = table.put

        def put_and_take_over(transaction: Transaction) -> None:
            """As when a newer instance comes before the answer is made."""
            put(transaction)
            if transaction.state is TransactionState.COMPLETE_COMMIT:
                put(initialise(transaction, "t", 60_000, made.engine.now_ms(), lambda: 0))

        table.put = put_and_take_over
        await old.end(commit=True)
        newer = table.find("t").producer
        assert old.ended_as.producer_epoch < old.identity.producer_epoch < newer.producer_epoch
        with pytest.raises(ProducerFencedError):
            await old.send(log, b"zombie")

    on_stand(scenario)


def test_epochs_that_are_used_up_are_followed_by_another_producer_id():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        producer = await producer_on(made)
        worn = dataclasses.replace(
            made.engine.transactions.find("t"),
            producer_epoch=PRODUCER_EPOCH_MAX,
            updated_ms=made.engine.now_ms(),
        )
        await made.engine.transactions._state_log.write(worn)
        made.engine.transactions._table.put(worn)
        producer.identity = last = worn.producer
        await producer.send(logs[0], b"a")
        await producer.end(commit=True)
        assert producer.identity.producer_id != last.producer_id
        assert producer.identity.producer_epoch == 0
        assert await producer.end_again(commit=True) == ("COMPLETE_COMMIT", producer.identity)
        await producer.send(logs[0], b"b")
        await producer.send(logs[1], b"c")
        for late in (
            producer.end_again(commit=True),
            producer.end_again(commit=False),
            producer.send_at(logs[0], 1, b"late", identity=last),
        ):
            with pytest.raises(InvalidPidMappingError):
                await late
        await producer.end(commit=True)
        assert visible(logs) == [[b"a", b"b"], [b"c"]]
        # The same from the log.
        known = {each.transactional_id: each for each in await made.engine.transactions._state_log.load()}
        assert known["t"].producer == producer.identity

    on_stand(scenario)


def test_a_producer_of_an_earlier_revision_goes_on(monkeypatch):
    """Whose transactions that one has committed, without raising the epoch."""

    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        answered, unanswered = [await producer_on(made, name) for name in ("answered", "unanswered")]
        with monkeypatch.context() as earlier:
            end_as_before(earlier.setattr)
            for producer, log in zip((answered, unanswered), logs, strict=True):
                await producer.send(log, b"a")
                await producer.end(commit=True)
                assert producer.identity == producer.ended_as
        assert await unanswered.end_again(commit=True) == (
            "COMPLETE_COMMIT",
            unanswered.identity._replace(producer_epoch=1),
        )
        known = {each.transactional_id: each for each in await made.engine.transactions._state_log.load()}
        assert (known["unanswered"].producer_epoch, known["answered"].producer_epoch) == (1, 0)
        unanswered.identity = known["unanswered"].producer
        # One begins with sequence 0 of a new epoch, the other goes on where it was.
        await unanswered.send(logs[1], b"b")
        await answered.send_at(logs[0], 1, b"b")
        with pytest.raises(ProducerFencedError):
            await unanswered.end_again(commit=True)
        for producer in (answered, unanswered):
            await producer.end(commit=True)
            await producer.send(logs[0], b"c")
            with pytest.raises(ProducerFencedError):
                await producer.end_again(commit=True)
            await producer.end(commit=False)
        assert visible(logs) == [[b"a", b"b"], [b"a", b"b"]]

    on_stand(scenario)


def test_a_request_that_arrives_late_opens_no_transaction():
    """Once its transaction has ended, its epoch is an old one: 47."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        await producer.send(log, b"a", b"b")
        await producer.end(commit=True)
        with pytest.raises(ProducerFencedError):
            await producer.send_again(log)
        with pytest.raises(ProducerFencedError):
            await producer.send_at(log, 2, b"never stored", identity=producer.ended_as)
        with pytest.raises(OutOfOrderSequenceError):
            await producer.send_at(log, 7, b"hole")
        assert made.engine.transactions.open_count() == 0
        assert log.snapshot.last_stable_offset == log.snapshot.log_end_offset == 3

    on_stand(scenario)


def test_a_log_of_an_earlier_revision_is_read_and_gone_on_with():
    """Its values have version 0: one committed, one open, one decided and not ended."""

    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 3)
        producers = [await producer_on(made, name) for name in ("done", "open", "ending")]
        for producer, log in zip(producers, logs, strict=True):
            await producer.send(log, b"a")
        done, opened, ending = producers
        await done.end(commit=True)
        states = {"done": ("04", "", done), "open": ("01", "1", opened), "ending": ("02", "2", ending)}
        changes = []
        for name, (status, partition, producer) in states.items():
            head = f"0000 {producer.identity.producer_id:016x} 0000 0000ea60 {status}"
            place = f"00000001 0006 6f7264657273 00000001 0000000{partition}" if partition else "00000000"
            value = bytes.fromhex(f"{head} {place} 0000000000000001 0000000000000001")
            changes.append((encode_key(name), value))
        await made.engine.transactions._state_log._log.write(changes)
        await made.engine.transactions.close()
        made.engine.transactions = TransactionCoordinator(made.engine)
        await made.engine.transactions.start()
        await settled(made.parts)
        assert visible(logs) == [[b"a"], [], [b"a"]]
        done.identity = done.ended_as
        for producer, log in ((done, logs[0]), (ending, logs[2]), (opened, logs[1])):
            assert await producer.end(commit=True) == "COMPLETE_COMMIT"
            assert producer.identity == producer.ended_as._replace(producer_epoch=1)
            await producer.send(log, b"b")
            with pytest.raises(ProducerFencedError):
                await producer.end_again(commit=True)
            await producer.end(commit=True)
        assert visible(logs) == [[b"a", b"b"]] * 3

    on_stand(scenario)
