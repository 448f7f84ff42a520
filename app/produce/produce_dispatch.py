"""Producing to many topic-partitions in one request: split, append, merge (spec A1-A4, A7, A8).

Each part of the request has an outcome of its own, in the order of the request. All parts are submitted before the
service waits for any, so that a partition that fails or is slow holds up no other. Parts of one partition are appended
in order.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from app.access.access import Access
from app.access.operations import Operation, topic_resource, transactional_id_resource
from app.engine.appending import AppendOptions, PendingAppend
from app.engine.partitions import Partition
from app.problems import kinds
from app.problems.engine import problem_for
from app.problems.problem import Problem
from app.produce.atomic_produce import produce_atomically
from app.produce.enlisting import PartitionAppend, refuse_unacknowledged, submit_appends
from app.produce.idempotence import refuse_reserved, stamp_batches
from app.produce.keyed_parts import KeyedParts
from app.produce.produce_body import PartRequest, ProduceRequest, parse_produce_request
from app.produce.producer_rights import check_producers
from app.produce.producing import ProduceResultDocument, batches_of, count_records, placeless_result, result_document
from app.produce.submit import Producing
from app.record_json.translate import Encoding
from app.record_json.work_rooms import RequestWork
from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import InvalidRecordError, InvalidTopicError, StorageError
from log_model.names import topic_name_problem
from rollway.records.errors import BrokenRecordError, RecordFormatError

_HIDES_LOG_START = frozenset({2, 3, 6, 10, 17, 18, 29, 53, 56})
"""Kafka codes whose failures do not tell where the log begins (spec A7; 29 and 53 tell nothing at all)."""

_RECORD_ERRORS_MAX = 100

_PARTS_PER_TURN = 8
"""Parts that are prepared in one iteration of the event loop: each may be 64 KiB, or 2,000 records."""


class PartResultDocument(ProduceResultDocument, gc=False, kw_only=True):
    """Where the records of one part went; see ``schemas.produce.PartProduceResult``."""

    topic: str


class RecordErrorDocument(msgspec.Struct, gc=False):
    """The reason why one record was refused."""

    batch_index: int
    message: str


class PartFailureDocument(msgspec.Struct, gc=False):
    """A failure of one part; see ``schemas.produce.PartProduceFailure``."""

    topic: str
    partition: int
    base_offset: int
    log_start_offset: int
    record_errors: list[RecordErrorDocument]
    error: dict[str, Any]


class PartsProduceDocument(msgspec.Struct, gc=False):
    """One outcome for each part; see ``schemas.produce.PartsProduceResult``."""

    results: list[PartResultDocument | PartFailureDocument]
    throttle_time_ms: int = 0


@dataclass(slots=True)
class PartOutcome:
    """The outcome of one part: a result or a problem, or neither before it is known."""

    part: PartRequest
    log: Partition | None = None
    result: ProduceResultDocument | None = None
    problem: Problem | None = None
    record_errors: Sequence[tuple[int, str]] = ()

    def fail(self, error: Exception, place: int) -> None:
        """Take an error as the outcome of the part at ``place``. Its pointers then lead into the whole request."""
        found = error.__cause__ if isinstance(error, Problem) else error
        if isinstance(found, InvalidRecordError | BrokenRecordError):
            self.record_errors = tuple(found.record_errors)[:_RECORD_ERRORS_MAX]
        self.problem = problem_for(error)
        if isinstance(error, Problem):
            # Its pointers already lead into the whole request.
            return
        for fault in self.problem.errors:
            within = fault["pointer"] if self.part.record_batches is None else "/record_batches"
            fault["pointer"] = f"/partitions/{place}{within}"

    def document(self, instance: str) -> PartResultDocument | PartFailureDocument:
        """Return the outcome as the response shows it. It must be known."""
        if self.problem is None:
            assert self.result is not None
            return PartResultDocument(**msgspec.structs.asdict(self.result), topic=self.part.topic)
        hides = self.log is None or self.problem.kafka_code in _HIDES_LOG_START
        return PartFailureDocument(
            topic=self.part.topic,
            partition=self.part.partition,
            base_offset=self.problem.extra.get("base_offset", -1),
            log_start_offset=-1 if hides or self.log is None else self.log.snapshot.log_start_offset,
            record_errors=[RecordErrorDocument(*error) for error in self.record_errors],
            error=self.problem.document(instance),
        )


async def parse_request(
    producing: Producing, body: bytes | bytearray, encoding: Encoding, work: RequestWork, *, now_ms: int | None = None
) -> ProduceRequest:
    """Return the request in a body, read in a thread when it is large. ``now_ms`` is for records without a time.

    Raises:
        Problem: 400, 413 or 422; 503 as ``RequestWork.parse``.
    """
    parse = functools.partial(
        parse_produce_request,
        body,
        encoding,
        part_count_max=producing.settings.produce_part_count_max,
        now_ms=producing.engine.now_ms() if now_ms is None else now_ms,
    )
    return await work.parse(body, parse)


async def produce_parts_keyed(
    producing: Producing, access: Access, request: ProduceRequest, options: AppendOptions, keyed: KeyedParts
) -> list[PartOutcome]:
    """Append every part once, as ``produce_parts``. A part that is in the log already is answered with its offsets.

    Raises:
        Problem: idempotency_key_reused. Nothing was written.
    """
    async with producing.turns.of_key(keyed.turn_id):
        await keyed.refuse_reuse(producing, request)
        return await produce_parts(producing, access, request, options, keyed)


async def produce_parts(
    producing: Producing,
    access: Access,
    request: ProduceRequest,
    options: AppendOptions,
    keyed: KeyedParts | None = None,
) -> list[PartOutcome]:
    """Append every part and wait as the options say. Return one outcome each, in order.

    Raises:
        Problem: invalid_required_acks: ``acks=0`` for records of a transaction.
    """
    if request.transactional_id is not None:
        refuse_unacknowledged(options)
    outcomes = [PartOutcome(part) for part in request.parts]
    appends: dict[int, PartitionAppend] = {}
    for place, outcome in enumerate(outcomes):
        if place % _PARTS_PER_TURN == _PARTS_PER_TURN - 1:
            await asyncio.sleep(0)
        try:
            append = await _prepared(producing, access, request, outcome)
            if keyed is not None:
                await keyed.stamp(producing, place, append.batches)
        except (StorageError, RecordFormatError, Problem) as error:
            outcome.fail(error, place)
        else:
            if append.batches:
                appends[place] = append
            else:
                outcome.result = placeless_result(append.log)
    access.write_audit()
    submitted = await submit_appends(producing, list(appends.values()), options, request.transactional_id)
    pendings: dict[int, PendingAppend] = {}
    for place, state in zip(appends, submitted, strict=True):
        if isinstance(state, AppendResult | Exception):
            _settle(outcomes[place], place, state)
        else:
            pendings[place] = state
    if options.acks == "0":
        for place in pendings:
            outcomes[place].result = placeless_result(appends[place].log, count_records(appends[place].batches))
        producing.metrics.dropped_appends.inc(sum(outcome.problem is not None for outcome in outcomes))
        return outcomes
    try:
        states = await producing.outcomes_of(list(pendings.values()), options)
    except Problem as overloaded:
        states = [overloaded] * len(pendings)
    for place, reached in zip(pendings, states, strict=True):
        final: AppendResult | Exception = reached
        if keyed is not None:
            final = await keyed.checked(producing, place, *appends[place], reached)
        _settle(outcomes[place], place, final)
    return outcomes


async def produce_parts_atomically(
    producing: Producing, access: Access, request: ProduceRequest, options: AppendOptions
) -> tuple[list[PartOutcome], bool]:
    """Append every part or, for readers of committed records, none. Return the outcomes, and whether all are appended.

    Raises:
        Problem: overloaded; or request_timed_out, and then the outcome is unknown.
        StorageError: there can be no transaction now. Nothing is committed.
    """
    outcomes = [PartOutcome(part) for part in request.parts]
    appends: dict[int, PartitionAppend] = {}
    for place, outcome in enumerate(outcomes):
        if place % _PARTS_PER_TURN == _PARTS_PER_TURN - 1:
            await asyncio.sleep(0)
        try:
            append = await _prepared(producing, access, request, outcome)
            if any(batch.header.producer_id >= 0 for batch in append.batches):
                raise InvalidRecordError("with atomic=true batches are of no producer: the request is a transaction")
        except (StorageError, RecordFormatError, Problem) as error:
            outcome.fail(error, place)
        else:
            if append.batches:
                appends[place] = append
            else:
                outcome.result = placeless_result(append.log)
    access.write_audit()
    is_committed = all(outcome.problem is None for outcome in outcomes)
    if is_committed and appends:
        results, is_committed = await produce_atomically(producing, list(appends.values()), options)
        for place, state in zip(appends, results, strict=True):
            _settle(outcomes[place], place, state)
    if not is_committed:
        for outcome in outcomes:
            if outcome.problem is None:
                outcome.problem = _aborted()
    return outcomes, is_committed


def _aborted() -> Problem:
    detail = "another part of the request was refused, and so none is committed"
    return Problem(kinds.TRANSACTION_ABORTED, detail)


def _settle(outcome: PartOutcome, place: int, state: AppendResult | Exception) -> None:
    if isinstance(state, Exception):
        outcome.fail(state, place)
    else:
        assert outcome.log is not None
        outcome.result = result_document(outcome.log, state)


async def _prepared(
    producing: Producing, access: Access, request: ProduceRequest, outcome: PartOutcome
) -> PartitionAppend:
    """Return the append of one part, valid and allowed.

    Raises:
        Problem: it is not allowed (29, 53), or no topic can have this name (17).
        StorageError: there is no such partition (3), the topic is internal (17), the records break a rule.
    """
    part = outcome.part
    if request.transactional_id is not None:
        _require(access, transactional_id_resource(request.transactional_id))
    reason = topic_name_problem(part.topic)
    if reason is not None:
        # Before the right is checked: an impossible name reveals nothing, and needs no audit line.
        raise InvalidTopicError(reason)
    _require(access, topic_resource(part.topic))
    if producing.engine.topic(part.topic).is_internal:
        raise InvalidTopicError(f"topic {part.topic} is internal: only the service writes it")
    log = outcome.log = await producing.engine.partition(part.topic, part.partition)
    batches = await _batches(producing, log, part)
    check_producers(producing, access, batches, request.transactional_id)
    return PartitionAppend(log, batches)


def _require(access: Access, resource: Any) -> None:
    refusal = access.refusal(Operation.WRITE, resource)
    if refusal is not None:
        raise refusal


async def _batches(producing: Producing, log: Partition, part: PartRequest) -> list[ValidBatch]:
    if part.record_batches is not None:
        batches = await producing.validate(log, part.record_batches)
        refuse_reserved(batches)
        return batches
    assert part.records is not None
    batches = await batches_of(producing, log, part.records)
    if part.stamp is not None:
        await stamp_batches(producing, part.stamp, batches)
    return batches
