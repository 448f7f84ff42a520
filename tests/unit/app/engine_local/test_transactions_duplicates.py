"""Requests of a transaction that an earlier revision has ended, with the epoch that it left, sent again."""

from __future__ import annotations

import pytest

from app.engine.appending import AppendOptions
from app.produce.enlisting import submit_append
from log_model.errors import OutOfOrderSequenceError
from storage.log.partition_log import AppendResult
from storage.producers.producer_entry import ProducerEntry
from tests.support.earlier_transactions import end_as_before
from tests.support.stands import Stand, on_stand
from tests.support.transactions import TestProducer, valid_transactional


def test_a_late_request_of_several_batches_is_known_though_only_its_last_one_is_remembered(monkeypatch):
    """As after a restart: a snapshot keeps the last batch alone."""
    end_as_before(monkeypatch.setattr)

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = TestProducer(made.parts, "t")
        await producer.initialise()

        async def send(*pieces: tuple[int, bytes]) -> AppendResult:
            batches = [
                batch
                for sequence, values in pieces
                for batch in valid_transactional(
                    log, producer.identity, sequence, *(values[place : place + 1] for place in range(len(values)))
                )
            ]
            submitted = await submit_append(made.parts.producing, log, batches, AppendOptions())
            if isinstance(submitted, AppendResult):
                return submitted
            return await made.engine.appends.outcome_of(submitted, AppendOptions())

        first = await send((0, b"ab"), (2, b"c"))
        assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 3)
        assert await producer.end(commit=True) == "COMPLETE_COMMIT"
        entry = log.producers.entries[producer.identity.producer_id]
        log.producers.known.by_id[entry.producer_id] = ProducerEntry.from_record(entry.to_record())
        assert await send((0, b"ab"), (2, b"c")) == first._replace(duplicate=True)
        for unknown in ([(0, b"ab")], [(1, b"b"), (2, b"c")], [(0, b"ab"), (2, b"cd")]):
            with pytest.raises(OutOfOrderSequenceError):
                await send(*unknown)
        assert made.engine.transactions.open_count() == 0

    on_stand(scenario)
