"""Producing records: to one partition, or spread over a topic with one outcome per partition."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from app.engine.appending import AppendOptions, PendingAppend
from app.engine.partitions import Partition
from app.event_loop.piecewise import all_in_turns
from app.event_loop.pools import INLINE_BYTES_MAX, call_in
from app.problems import request_context
from app.problems.engine import problem_for
from app.problems.problem import Problem
from app.produce.enlisting import submit_append, submit_in_request
from app.produce.partitioning import StickyPartitioner, rows_by_partition
from app.produce.submit import Producing
from app.record_json.record_batches import compresses, plain_batches, validated_batches
from app.record_json.translate import Encoding, ParsedRecords, parse_record_list
from app.record_json.work_rooms import RequestWork
from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import StorageError
from log_model.offsets import NO_TIMESTAMP

_PREPARED_AT_ONCE = 4
"""Groups of partitions of one request that are encoded at the same time, in threads that other requests use as well."""
PARTITIONS_PER_TURN = 32
"""Partitions of one request that begin in one iteration of the event loop: each takes up to 100 microseconds."""
_INLINE_RECORDS_MAX = 2_000
"""The most records that the event loop handles itself. More go to a thread, however small they are."""


class ProduceResultDocument(msgspec.Struct, gc=False):
    """The offsets of the records of one partition; see ``schemas.records.ProduceResult``."""

    partition: int
    base_offset: int
    last_offset: int
    record_count: int
    log_append_time: int
    log_start_offset: int
    durable_offset: int
    duplicate: bool
    throttle_time_ms: int = 0


class ProduceFailureDocument(msgspec.Struct, gc=False):
    """A failure of the records of one partition; see ``schemas.records.ProduceFailure``."""

    partition: int | None
    error: dict[str, Any]


class TopicProduceDocument(msgspec.Struct, gc=False):
    """One outcome for each partition; see ``schemas.records.TopicProduceResult``."""

    results: list[ProduceResultDocument | ProduceFailureDocument]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class ProduceOutcome:
    """The outcome of the records of one partition: a result or a problem."""

    partition: int
    result: ProduceResultDocument | None
    problem: Problem | None

    def document(self, instance: str) -> ProduceResultDocument | ProduceFailureDocument:
        """Return the outcome as the response shows it. It must be known."""
        if self.problem is None:
            assert self.result is not None
            return self.result
        return ProduceFailureDocument(self.partition, self.problem.document(instance))


def result_document(log: Partition, result: AppendResult, throttle_ms: int | None = None) -> ProduceResultDocument:
    """Return the result of one partition. Without ``throttle_ms`` it has the request's own."""
    return ProduceResultDocument(
        partition=log.name.partition,
        base_offset=result.base_offset,
        last_offset=result.last_offset,
        record_count=result.record_count,
        log_append_time=result.log_append_time,
        log_start_offset=result.log_start_offset,
        durable_offset=log.recovery_point,
        duplicate=result.duplicate,
        throttle_time_ms=request_context.throttle_time_ms.get() if throttle_ms is None else throttle_ms,
    )


def placeless_result(log: Partition, record_count: int = 0, throttle_ms: int | None = None) -> ProduceResultDocument:
    """Return a result with offsets of -1: for a request without records (spec A12), or one that waits for nothing.

    ``record_count`` records were taken. Without ``throttle_ms`` the result has the request's own.
    """
    return ProduceResultDocument(
        partition=log.name.partition,
        base_offset=-1,
        last_offset=-1,
        record_count=record_count,
        log_append_time=NO_TIMESTAMP,
        log_start_offset=log.snapshot.log_start_offset,
        durable_offset=log.recovery_point,
        duplicate=False,
        throttle_time_ms=request_context.throttle_time_ms.get() if throttle_ms is None else throttle_ms,
    )


def count_records(batches: Sequence[ValidBatch]) -> int:
    """Return how many records the batches have."""
    return sum(batch.header.record_count for batch in batches)


async def parse_records(
    producing: Producing, body: bytes | bytearray, encoding: Encoding, work: RequestWork
) -> ParsedRecords:
    """Return the records of a JSON body, read in a thread when it is large.

    Raises:
        Problem: 400, 413 or 422; 503 as ``RequestWork.parse``.
    """
    return await work.parse(
        body, functools.partial(parse_record_list, body, encoding, now_ms=producing.engine.now_ms())
    )


async def plain_batches_of(
    producing: Producing,
    log: Partition,
    body: bytes | bytearray,
    encoding: Encoding,
    *,
    is_lines: bool = False,
    together: bool = True,
) -> list[ValidBatch] | None:
    """Return ``plain_batches`` for this log, made in a thread when the body is large."""
    make = functools.partial(
        plain_batches,
        body,
        encoding,
        log.config,
        log.name.partition,
        producing.engine.now_ms(),
        is_lines=is_lines,
        together=together,
    )
    return make() if len(body) <= INLINE_BYTES_MAX else await call_in(producing.pools.read, make)


def _are_quick(parsed: ParsedRecords, rows: Sequence[int] | None = None) -> bool:
    """Return whether these records, or these rows, are few and small enough for the event loop itself."""
    chosen = range(len(parsed)) if rows is None else rows
    return len(chosen) <= _INLINE_RECORDS_MAX and parsed.size_of(chosen) <= INLINE_BYTES_MAX


async def batches_of(
    producing: Producing,
    log: Partition,
    parsed: ParsedRecords,
    rows: Sequence[int] | None = None,
    *,
    together: bool = True,
) -> list[ValidBatch]:
    """Return these records as valid batches for the log, made in a thread when they are large.

    All of them are for one append, or with ``together`` false each for one of its own.

    Raises:
        Problem: records break a rule of the topic, or name another partition.
        RefusedError: they break a rule otherwise.
    """
    if rows is None:
        parsed.check_partition(log.name.partition)
    make = functools.partial(validated_batches, parsed, log.config, rows, together=together)
    is_quick = _are_quick(parsed, rows) and not compresses(log.config)
    return make() if is_quick else await call_in(producing.pools.read, make)


async def produce(
    producing: Producing,
    log: Partition,
    batches: Sequence[ValidBatch],
    options: AppendOptions,
    transactional_id: str | None = None,
) -> ProduceResultDocument:
    """Append batches and wait as the options say. With ``acks=0`` the result has no offsets.

    Transactional batches join their producer's transaction, which must be that of ``transactional_id`` if given.

    Raises:
        Problem: overloaded, request_timed_out.
        StorageError: the log refused or failed.
    """
    if not batches:
        return placeless_result(log)
    submitted = await submit_append(producing, log, batches, options, transactional_id)
    if options.acks == "0":
        return placeless_result(log, count_records(batches))
    result = submitted if isinstance(submitted, AppendResult) else await producing.outcome_of(submitted, options)
    return result_document(log, result)


async def produce_to_topic(
    producing: Producing, name: str, parsed: ParsedRecords, options: AppendOptions
) -> list[ProduceOutcome]:
    """Spread records over a topic's partitions. Return one outcome each, in order.

    No partition waits for another, or fails with it.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
    """
    topic = producing.engine.topic(name)
    spread = await spread_records(producing, name, parsed, topic.online_partitions(), producing.sticky)
    # Compressing takes time: with it, each partition is a part of its own, so that none waits for another.
    parts = _parts(spread, 1 if compresses(topic.config) else PARTITIONS_PER_TURN)
    slots = asyncio.Semaphore(_PREPARED_AT_ONCE)
    outcomes: dict[int, _Begun | ProduceOutcome] = {}
    async with asyncio.TaskGroup() as group:
        encoding = [group.create_task(_encode(producing, name, part, parsed, slots)) for part in parts]
        for ready in asyncio.as_completed(encoding):
            for encoded in await ready:
                # In this task and not in a new one: the throttle time belongs to the request.
                outcomes[encoded.partition] = (
                    encoded if isinstance(encoded, ProduceOutcome) else _begin(producing, encoded, options)
                )
            # Another group may be ready as well. Other work on the event loop runs before it.
            await asyncio.sleep(0)
    begun = [outcomes[number] for number in spread]
    if options.acks == "0":
        producing.metrics.dropped_appends.inc(sum(isinstance(outcome, ProduceOutcome) for outcome in begun))
        return [
            outcome
            if isinstance(outcome, ProduceOutcome)
            else ProduceOutcome(number, placeless_result(outcome.log, len(spread[number])), None)
            for number, outcome in zip(spread, begun, strict=True)
        ]
    return await all_in_turns(_end(producing, outcome, options) for outcome in begun)


async def spread_records(
    producing: Producing, name: str, parsed: ParsedRecords, online: Sequence[int], sticky: StickyPartitioner
) -> dict[int, list[int]]:
    """Return the rows of ``parsed`` for each partition of the topic, in a thread when there is much to hash.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
    """
    count = producing.engine.topic(name).partition_count
    spread = functools.partial(rows_by_partition, parsed, name, count, online, sticky)
    return spread() if _are_quick(parsed) else await call_in(producing.pools.read, spread)


_Part = list[tuple[int, list[int]]]
"""Some partitions of a request with their rows."""


def _parts(spread: dict[int, list[int]], count_max: int) -> Iterator[_Part]:
    """Yield all partitions in groups: at most ``count_max`` with few records in all, or a single one."""
    part: _Part = []
    record_count = 0
    for number, rows in spread.items():
        if part and (len(part) == count_max or record_count + len(rows) > _INLINE_RECORDS_MAX):
            yield part
            part, record_count = [], 0
        part.append((number, rows))
        record_count += len(rows)
    if part:
        yield part


@dataclass(frozen=True, slots=True)
class _Encoded:
    log: Partition
    batches: list[ValidBatch]

    @property
    def partition(self) -> int:
        return self.log.name.partition


@dataclass(frozen=True, slots=True)
class _Begun:
    log: Partition
    pending: PendingAppend


async def _encode(
    producing: Producing, name: str, part: _Part, parsed: ParsedRecords, slots: asyncio.Semaphore
) -> list[_Encoded | ProduceOutcome]:
    """Return for each partition its batches, or the error of making them; in a thread when the records are large."""
    encoded: list[_Encoded | ProduceOutcome] = []
    async with slots:
        logs: list[tuple[Partition, list[int] | None]] = []
        for number, rows in part:
            try:
                log = await producing.engine.partition(name, number)
            except StorageError as error:
                encoded.append(ProduceOutcome(number, None, problem_for(error)))
            else:
                logs.append((log, None if len(rows) == len(parsed) else rows))
        make = functools.partial(_encode_each, logs, parsed)
        all_rows = list(itertools.chain.from_iterable(rows for _, rows in part))
        is_quick = _are_quick(parsed, all_rows) and not any(compresses(log.config) for log, _ in logs)
        made = make() if is_quick else await call_in(producing.pools.read, make)
    for (partition, _), batches in zip(logs, made, strict=True):
        if isinstance(batches, Exception):
            encoded.append(ProduceOutcome(partition.name.partition, None, problem_for(batches)))
        else:
            encoded.append(_Encoded(partition, batches))
    return encoded


def _encode_each(
    logs: Sequence[tuple[Partition, list[int] | None]], parsed: ParsedRecords
) -> list[list[ValidBatch] | StorageError | Problem]:
    made: list[list[ValidBatch] | StorageError | Problem] = []
    for log, rows in logs:
        try:
            if rows is None:
                parsed.check_partition(log.name.partition)
            made.append(validated_batches(parsed, log.config, rows))
        except (StorageError, Problem) as error:
            made.append(error)
    return made


def _begin(producing: Producing, encoded: _Encoded, options: AppendOptions) -> _Begun | ProduceOutcome:
    try:
        return _Begun(encoded.log, submit_in_request(producing, encoded.log, encoded.batches, options))
    except (StorageError, Problem) as error:
        return ProduceOutcome(encoded.partition, None, problem_for(error))


async def _end(producing: Producing, begun: _Begun | ProduceOutcome, options: AppendOptions) -> ProduceOutcome:
    if isinstance(begun, ProduceOutcome):
        return begun
    number = begun.log.name.partition
    try:
        result = await producing.outcome_of(begun.pending, options)
    except (StorageError, Problem) as error:
        return ProduceOutcome(number, None, problem_for(error))
    return ProduceOutcome(number, result_document(begun.log, result), None)
