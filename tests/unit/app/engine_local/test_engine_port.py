"""Calls of the port that the local engine answers from what its logs and its coordinator know."""

from __future__ import annotations

from app.engine.attempt_names import AttemptName
from log_model.names import PartitionName
from tests.support.stands import Stand, on_stand
from tests.support.transactions import producer_on

STRANGERS = (1_000_000, 1_000_001, 1_000_002)


def test_last_sequences_are_those_of_the_producers_in_question() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        await producer.send(log, b"a", b"b")
        producer_id = producer.identity.producer_id
        last_sequences = made.engine.transactions.last_sequences
        assert await last_sequences(log.name, [producer_id]) == {producer_id: 1}
        # The log has fewer producers than are asked for.
        assert await last_sequences(log.name, {producer_id, *STRANGERS}) == {producer_id: 1}
        assert await last_sequences(log.name, STRANGERS) == {}
        assert await last_sequences(PartitionName("orders", 1), [producer_id]) == {}
        assert await last_sequences(PartitionName("nothing", 0), [producer_id]) == {}

    on_stand(scenario)


def test_attempts_are_listed_until_they_are_forgotten() -> None:
    async def scenario(made: Stand) -> None:
        await producer_on(made)
        attempts = made.engine.transactions.attempts
        first, second = [
            await attempts.create(lambda producer_id, task=task: str(AttemptName("j", task, 0, producer_id, "app")))
            for task in range(2)
        ]
        assert await attempts.all() == [first, second]
        names = [first.transactional_id, second.transactional_id]
        await attempts.forget(names[:1])
        assert await attempts.all() == [second]
        assert await attempts.partitions_of(names) == {names[1]: frozenset()}

    on_stand(scenario)


def test_a_state_log_loads_the_last_values() -> None:
    async def scenario(made: Stand) -> None:
        state = made.engine.state("__start_positions")
        assert (await state.load(), state.record_count) == ({}, 0)
        await state.write([(b"a", b"1"), (b"b", b"2")])
        await state.write([(b"a", None)], durable=False)
        assert state.record_count == 3
        assert await made.engine.state("__start_positions").load() == {b"b": b"2"}

        async def live():
            yield [(b"b", b"2")]

        await state.shorten(live())
        assert state.record_count == 1
        assert await made.engine.state("__start_positions").load() == {b"b": b"2"}

    on_stand(scenario)
