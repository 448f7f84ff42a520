"""Appends on their way into the logs. Transactional appends are enlisted with the coordinator first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from app.engine.appending import AppendOptions, Enlistment, PendingAppend
from app.engine.partitions import Partition
from app.engine.transactions import ProducerIdentity
from app.problems import kinds, request_context
from app.problems.problem import Problem, invalid_value
from app.produce.submit import Producing
from app.quotas.throttling import Client
from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import (
    InvalidPidMappingError,
    InvalidRecordError,
    InvalidTxnStateError,
    RefusedError,
    StorageError,
)
from log_model.names import PartitionName, refuse_internal
from rollway.records import BatchHeader

_APPENDS_PER_TURN = 32
"""Appends that begin in one iteration of the event loop: a small one to an idle writer is written there."""


def transactional_id_of(producing: Producing, batches: Sequence[ValidBatch], named: str | None) -> str | None:
    """Return the transactional id of these batches: ``named``, or their producer's; ``None`` without one.

    Raises:
        InvalidTxnStateError: one is named, but no batch is transactional.
        InvalidPidMappingError: their producer belongs to no transactional id.
    """
    producer_ids = [batch.header.producer_id for batch in batches if batch.header.is_transactional]
    if not producer_ids:
        if named is not None and batches:
            raise InvalidTxnStateError(f"a transaction of {named!r} is named, but the batches are not transactional")
        return None
    owner = producing.engine.transactions.name_of(producer_ids[0]) if named is None else named
    if owner is None:
        raise InvalidPidMappingError(f"producer {producer_ids[0]} belongs to no transactional id")
    return owner


def refuse_unacknowledged(options: AppendOptions) -> None:
    """Refuse records of a transaction with ``acks=0``.

    An append that failed after its response would not stop the commit.

    Raises:
        Problem: invalid_required_acks, with ``acks=0`` (spec A4).
    """
    if options.acks == "0":
        detail = "records of a transaction need acks=1 or all: with 0 one that failed would not stop the commit"
        raise invalid_value("acks", detail, kinds.INVALID_REQUIRED_ACKS)


class PartitionAppend(NamedTuple):
    """The batches to append to one partition, all or nothing."""

    log: Partition
    batches: Sequence[ValidBatch]


Submitted = PendingAppend | AppendResult | StorageError | Problem
"""An append in progress, the result of an earlier append of the same batches, or a refusal."""


def submit_in_request(
    producing: Producing,
    log: Partition,
    batches: Sequence[ValidBatch],
    options: AppendOptions,
    enlistment: Enlistment | None = None,
) -> PendingAppend:
    """Submit for the client of the current request, whose response says how long the client must wait.

    Raises:
        Problem, StorageError: as ``Producing.submit``.
    """
    pending = producing.submit(log, batches, options, Client.of_request(), enlistment)
    request_context.throttle(pending.throttle_ms)
    return pending


async def submit_appends(
    producing: Producing,
    appends: Sequence[PartitionAppend],
    options: AppendOptions,
    transactional_id: str | None = None,
) -> list[Submitted]:
    """Put the batches of one request into their partitions' mailboxes. Return one outcome each, in order.

    Transactional batches are enlisted first, all of them with one write, and only then reach a partition. A refusal
    there stops no other partition. But a transaction has one producer: a request with batches of two is refused whole.

    Raises:
        Problem: invalid_required_acks; see ``refuse_unacknowledged``.
    """
    if any(batch.header.is_transactional for append in appends for batch in append.batches):
        refuse_unacknowledged(options)
    outcomes: list[Submitted | None] = [_refusal(producing, append) for append in appends]
    wanted = {
        place: append
        for place, append in enumerate(appends)
        if outcomes[place] is None and append.batches and append.batches[0].header.is_transactional
    }
    enlistment: Enlistment | None = None
    if wanted:
        try:
            enlistment = await _enlist(producing, list(wanted.values()), transactional_id)
        except (StorageError, Problem) as error:
            for place in wanted:
                outcomes[place] = error
    try:
        for place, append in enumerate(appends):
            if place % _APPENDS_PER_TURN == _APPENDS_PER_TURN - 1:
                await asyncio.sleep(0)
            if outcomes[place] is None:
                outcomes[place] = _submit(producing, append, options, enlistment if place in wanted else None)
    finally:
        if enlistment is not None:
            enlistment.release()
    return [outcome for outcome in outcomes if outcome is not None]


async def submit_append(
    producing: Producing,
    log: Partition,
    batches: Sequence[ValidBatch],
    options: AppendOptions,
    transactional_id: str | None = None,
) -> PendingAppend | AppendResult:
    """Put batches into the mailbox of one partition, as ``submit_appends``.

    Raises:
        Problem, StorageError: the refusal.
    """
    (submitted,) = await submit_appends(producing, [PartitionAppend(log, batches)], options, transactional_id)
    if isinstance(submitted, StorageError | Problem):
        raise submitted
    return submitted


async def _enlist(producing: Producing, appends: Sequence[PartitionAppend], transactional_id: str | None) -> Enlistment:
    headers: dict[PartitionName, list[BatchHeader]] = {}
    for append in appends:
        headers.setdefault(append.log.name, []).extend(batch.header for batch in append.batches)
    producers = {
        ProducerIdentity(batch.header.producer_id, batch.header.producer_epoch)
        for append in appends
        for batch in append.batches
    }
    if len(producers) > 1:
        raise InvalidPidMappingError("the batches of one request are of several transactional producers")
    return await producing.engine.transactions.enlist(producers.pop(), headers, transactional_id)


def _submit(
    producing: Producing, append: PartitionAppend, options: AppendOptions, enlistment: Enlistment | None
) -> Submitted:
    name = append.log.name
    if enlistment is not None:
        if name in enlistment.refused:
            return enlistment.refused[name]
        if name in enlistment.duplicates:
            # A partition may occur twice in a request: each occurrence takes the results of its own batches.
            answers = enlistment.duplicates[name]
            return _merged([answers.pop(0) for _ in append.batches])
    try:
        return submit_in_request(producing, append.log, append.batches, options, enlistment)
    except (StorageError, Problem) as error:
        return error


def _merged(results: Sequence[AppendResult]) -> AppendResult:
    """Return the result of an append of several batches, made of the results of each."""
    first = results[0]
    return first._replace(last_offset=results[-1].last_offset, record_count=sum(each.record_count for each in results))


def _refusal(producing: Producing, append: PartitionAppend) -> RefusedError | Problem | None:
    """Return the error of batches that cannot be one append; ``None`` if they can.

    An internal topic takes no batches, not even a marker. The batches of one append are of one transaction or of none.
    """
    try:
        refuse_internal(append.log.name.topic)
        producing.refuse_several(append.batches)
    except (RefusedError, Problem) as error:
        return error
    kinds = {
        (batch.header.is_transactional, batch.header.producer_id, batch.header.producer_epoch)
        for batch in append.batches
    }
    if len(kinds) > 1 and any(is_transactional for is_transactional, _, _ in kinds):
        return InvalidRecordError("the batches of one partition belong to one transaction, or all of them to none")
    return None
