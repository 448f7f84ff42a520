"""One request for several partitions, all or nothing: it runs in a transaction of the service's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from app.engine.appending import AppendOptions, Outcome
from app.engine.transactions import PooledProducer
from app.produce.enlisting import PartitionAppend, Submitted, submit_appends
from app.produce.submit import Producing
from log_model.batches.append_request import AppendResult
from log_model.errors import let_go_of_frames
from log_model.names import PartitionName

TRANSACTION_TIMEOUT_MS = 60_000


class AtomicOutcome(NamedTuple):
    """The outcomes of the appends, in their order.

    If not committed, appends with a result are aborted like the rest.
    """

    results: list[Outcome]
    is_committed: bool


async def produce_atomically(
    producing: Producing, appends: Sequence[PartitionAppend], options: AppendOptions
) -> AtomicOutcome:
    """Append to all these partitions, or, for readers of committed records, to none.

    The batches are without a producer. Each partition occurs once. Durable: on return, if committed.

    Raises:
        Problem: overloaded; or request_timed_out, and then the outcome is unknown.
        StorageError: there can be no transaction now. Nothing is committed.
    """
    async with producing.engine.transactions.pool.producer(TRANSACTION_TIMEOUT_MS, options.timeout_ms) as producer:
        _stamp(producer, appends)
        # The commit waits for an fsync of every partition. Waiting for it before the commit would gain nothing.
        written = dataclasses.replace(options, acks="1", durability="written")
        submitted = await submit_appends(producing, appends, written, producer.name)
        results = await _outcomes(producing, submitted, written)
        is_committed = all(isinstance(result, AppendResult) for result in results)
        if is_committed:
            ended = await producing.engine.transactions.end(
                producer.name, producer.identity, commit=True, wait_ms=options.timeout_ms
            )
            producer.keep(ended.producer)
        elif any(isinstance(result, AppendResult) for result in results):
            # The outcome is known. The response does not wait for markers, which a full disk may hold up.
            await producing.engine.transactions.abort(producer.name, producer.identity)
        return AtomicOutcome(results, is_committed)


def _stamp(producer: PooledProducer, appends: Sequence[PartitionAppend]) -> None:
    for append in appends:
        name = PartitionName(*append.log.name)
        for batch in append.batches:
            sequence = producer.take_sequences(name, batch.header.record_count)
            batch.set_producer(producer.identity.producer_id, producer.identity.producer_epoch, sequence)
            batch.set_transactional()


async def _outcomes(producing: Producing, submitted: Sequence[Submitted], options: AppendOptions) -> list[Outcome]:
    pendings = [each for each in submitted if not isinstance(each, AppendResult | Exception)]
    reached = iter(await producing.outcomes_of(pendings, options))
    outcomes = [each if isinstance(each, AppendResult | Exception) else next(reached) for each in submitted]
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            # The result list keeps the error. Its frames hold the append, which holds the error and the log.
            let_go_of_frames(outcome)
    return outcomes
