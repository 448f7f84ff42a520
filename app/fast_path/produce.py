"""Raw produce to one partition, on the connection: validated, appended, published and answered in one go.

Whatever would be refused before the append is left to the route, which refuses it. What the log itself refuses, and
what happens later, is answered by the application as well, from the error.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any

from app.engine_local.partitions.partition_writer import STALL_SECONDS, PartitionWriter
from app.engine_local.partitions.pending_append import PendingAppend
from app.engine_local.partitions.produce_waiters import ProduceOptions, timed_out
from app.engine_local.partitions.unanswered import count_when_written
from app.fast_path.request import HotRequest
from app.http.connection.hot import HotAnswer, HotWait, Outcome, make_head
from app.problems import request_context
from app.problems.problems import Problem
from app.produce.idempotence import refuse_reserved
from app.produce.producer_rights import require_producers
from app.produce.producing import ProduceResultDocument, count_records, placeless_result, produce, result_document
from app.quotas.limits import QuotaKind
from app.record_json.record_batches import needs_codec
from app.record_json.translate import encode_document
from app.service.parts import Parts
from rollway.records import RecordFormatError
from rollway.records.compiled import load
from storage.batches.batch_validation import ValidBatch, find_plain_batch, validate_batches
from storage.errors import StorageError
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog
from storage.manager.topic_registry import INTERNAL_TOPICS, Topic
from storage.offsets import Offset
from storage.producers.repeated_requests import KEYED_PRODUCER_ID_MIN

plain_append = load("storage.log._plain_append")
quick_answers = load("app.fast_path._quick_answers")
"""What answers known requests in C, or ``None``."""

_JSON_HEAD = make_head(200, [("Content-Type", "application/json"), ("Vary", "Accept-Encoding")]) + b"content-length: "
# As ``result_document`` is written, for what is no duplicate and was asked for too often by nobody.
_RESULT = (
    b'{"partition":%d,"base_offset":%d,"last_offset":%d,"record_count":%d,"log_append_time":%d,"log_start_offset":%d,'
    b'"durable_offset":%d,"duplicate":false,"throttle_time_ms":0}'
)
BODY_BYTES_MAX = 256 * 1024
LARGE_BODY_BYTES_MAX = 64 * 1024 * 1024
"""Larger bodies are collected and written beside the loop."""
# Larger bodies are checked in a thread: this much takes some 0.2 ms.
_LOOP_BYTES_MAX = 1280 * 1024
# Of larger ones the write is most.
_QUICK_BYTES_MAX = 256 * 1024


class _ShortWay:
    """What was found for a head whose batches may be appended at once, and holds while the topic is this one.

    ``fsync`` are the options of those that are answered once an fsync covers them; others are answered at once. A
    connection keeps it for as long as it lives, so it holds no log: the files of a deleted one would stay open.
    """

    __slots__ = ("config", "fsync", "topic_id", "writer")

    def __init__(self, topic: Topic, writer: PartitionWriter, fsync: ProduceOptions | None) -> None:
        self.topic_id = topic.topic_id
        self.config = writer.log.config
        self.writer = weakref.ref(writer)
        self.fsync = fsync


def produce_batches(parts: Parts, request: HotRequest) -> Outcome | None:
    """As ``produceRecordBatches``."""
    target, body = request.target, request.body
    way: _ShortWay | None = target.memo.way if target.memo is not None else None
    if way is None or parts.quotas.table.has_any or len(body) > _LOOP_BYTES_MAX:
        return _produce(parts, request, None)
    topic, writer = parts.engine.manager.topics.get(target.topic), way.writer()
    if topic is None or topic.topic_id != way.topic_id or writer is None or writer.log.config is not way.config:
        target.memo.way = None
        return _produce(parts, request, None)
    batch = find_plain_batch(body, way.config, parts.engine.now_ms())
    if batch is None:
        return _produce(parts, request, batch)
    if way.fsync is not None:
        pending = writer.append_alone_and_flush(batch)
        return _produce(parts, request, batch) if pending is None else _wait_for_fsync(parts, pending, way.fsync)
    result = writer.append_alone(batch)
    if result is None:
        return _produce(parts, request, batch)
    return _plain_answer(parts, writer.log, batch.size_bytes, result)


def _plain_answer(parts: Parts, log: PartitionLog, size_bytes: int, result: AppendResult) -> HotAnswer:
    parts.engine.appends.count_produced(result, size_bytes)
    base_offset, last_offset, record_count, log_append_time, log_start_offset, _ = result
    numbers = (log.name.partition, base_offset, last_offset, record_count, log_append_time, log_start_offset)
    document = _RESULT % (*numbers, log.recovery_point)
    return HotAnswer(_JSON_HEAD + b"%d\r\n" % len(document), document)


def _wait_for_fsync(parts: Parts, pending: PendingAppend, options: ProduceOptions, waited_ms: int = 0) -> HotWait:
    """The answer comes with the fsync; some of the wait may be over."""

    def answer() -> HotAnswer:
        return _plain_answer(parts, pending.log, pending.size_bytes, pending.outcome())

    def expired() -> HotAnswer:
        count_when_written(parts.engine.appends, pending)
        raise timed_out(options, pending.result)

    return HotWait(pending.call_when_fsynced, answer, max(0, options.timeout_ms - waited_ms), expired)


def _produce(parts: Parts, request: HotRequest, checked: ValidBatch | None) -> Outcome | None:
    """The general way; with the one batch of the body, if that is all and it has been ``checked``."""
    target = request.target
    options = options_of(request)
    body = request.body
    quotas = parts.quotas
    if not body or (quotas.table.has_any and quotas.is_muted(QuotaKind.PRODUCE, request.client)):
        return None
    try:
        log = parts.engine.partition(target.topic, target.partition)
        if checked is None and (len(body) > _LOOP_BYTES_MAX or needs_codec(body, log.config)):
            return _produce_in_thread(parts, log, request, options)
        batches = [checked] if checked is not None else validate_batches(body, log.config, parts.engine.now_ms())
        _find_short_way(parts, request, log, options)
    except (StorageError, RecordFormatError):
        return None
    for batch in batches:
        if batch.header.producer_id >= KEYED_PRODUCER_ID_MIN:
            return None
        if batch.header.producer_id >= 0 and request.access.is_authenticated and not batch.header.is_transactional:
            # Whose the id is, the route asks.
            return None
        if batch.header.is_transactional:
            return _produce_enlisted(parts, log, request, options, batches)
    return append_batches(parts, log, request, batches, options, len(body))


def _find_short_way(parts: Parts, request: HotRequest, log: PartitionLog, options: ProduceOptions) -> None:
    """Remember the short way of requests with this head, if they may take one: for the write and its fsync alone."""
    target, waits = request.target, options.waits_for_fsync(log)
    if (
        target.memo.way is not None
        or options.acks == "0"
        or options.expected_offset is not None
        or (log.config.flush_policy == "group" and not waits)
        or not log.replicas.is_alone
        or target.topic in INTERNAL_TOPICS
    ):
        return
    topic, writer = parts.engine.topic(target.topic), parts.engine.writer_of(log)
    target.memo.way = _ShortWay(topic, writer, options if waits else None)
    if quick_answers is not None and plain_append is not None and plain_append.is_usable:
        if writer.turn is None:
            writer.turn = quick_answers.AppendTurn(
                parts, writer, STALL_SECONDS, _JSON_HEAD, _RESULT, functools.partial(_wait_for_fsync, parts)
            )
        quick = quick_answers.QuickProduce(parts, writer, writer.turn, options if waits else None, _QUICK_BYTES_MAX)
        request.join = quick.join
        request.quick = None if waits else quick.answer


class _Known:
    """What follows from a head alone, and, once there was a request, how the next one is answered."""

    __slots__ = ("options", "way")

    def __init__(self, options: ProduceOptions) -> None:
        self.options = options
        self.way: _ShortWay | None = None


def options_of(request: HotRequest) -> ProduceOptions:
    """What the query asks for; kept with what is known of equal requests."""
    known: _Known | None = request.target.memo
    if known is None:
        parameters = request.target.parameters
        known = request.target.memo = _Known(parameters.options(parameters.expected_offset))
    return known.options


def append_batches(
    parts: Parts,
    log: PartitionLog,
    request: HotRequest,
    batches: Sequence[ValidBatch],
    options: ProduceOptions,
    size_bytes: int,
) -> Outcome | None:
    """Append ``size_bytes`` of batches and answer as the options say; ``None`` when the log takes none, for now."""
    if request.target.topic in INTERNAL_TOPICS or (options.acks == "all" and not log.replicas.has_enough):
        return None
    expected = None if options.expected_offset is None else Offset(options.expected_offset)
    wants_fsync = options.acks != "0" and options.waits_for_fsync(log)
    try:
        pending = parts.engine.writer_of(log).append(
            AppendRequest(tuple(batches), expected), size_bytes=size_bytes, wants_fsync=wants_fsync
        )
    except (StorageError, Problem):
        # Nothing was taken.
        return None
    for batch in batches:
        # Most are of no producer, and cost no call; the ways in C take no others.
        if batch.header.producer_id >= 0:
            parts.load_jobs.note_append(batches, pending)
            break
    if parts.quotas.table.has_any:
        request.throttle_ms = parts.quotas.charge(QuotaKind.PRODUCE, request.client, size_bytes)
    if options.acks == "0":
        if pending.result is None:
            count_when_written(parts.engine.appends, pending, is_dropped=True)
        else:
            parts.engine.appends.count_produced(pending.result, pending.size_bytes)
        return _answer_with(placeless_result(log, count_records(batches), request.throttle_ms))
    if pending.error is not None:
        raise pending.error
    if pending.result is None or wants_fsync or options.lacks_copies(log, pending.result):
        return _wait(parts, pending, request, options)
    return _answer(parts, pending, pending.result, request)


def _answer(parts: Parts, pending: PendingAppend, result: AppendResult, request: HotRequest) -> HotAnswer:
    parts.engine.appends.count_produced(result, pending.size_bytes)
    return _answer_with(result_document(pending.log, result, request.throttle_ms))


def _answer_with(document: ProduceResultDocument) -> HotAnswer:
    body = encode_document(document)
    return HotAnswer(_JSON_HEAD + b"%d\r\n" % len(body), body)


def _wait(parts: Parts, pending: PendingAppend, request: HotRequest, options: ProduceOptions) -> HotWait:
    """The answer comes with the file, the fsync, or the other copies."""

    def answer() -> HotAnswer | Coroutine[Any, Any, HotAnswer]:
        result = pending.outcome()
        if options.lacks_copies(pending.log, result):
            return _after_copies(parts, pending, options)
        return _answer(parts, pending, result, request)

    def expired() -> HotAnswer:
        count_when_written(parts.engine.appends, pending)
        raise timed_out(options, pending.result)

    subscribe = pending.call_when_fsynced if pending.wants_fsync else pending.written.add_done_callback
    return HotWait(subscribe, answer, options.timeout_ms, expired)


async def _after_copies(parts: Parts, pending: PendingAppend, options: ProduceOptions) -> HotAnswer:
    return _answer_with(result_document(pending.log, await parts.producing.outcome_of(pending, options)))


async def _produce_in_thread(
    parts: Parts, log: PartitionLog, request: HotRequest, options: ProduceOptions
) -> HotAnswer:
    """As the route: something is to be decompressed or compressed."""
    batches = await parts.producing.validate(log, request.body)
    refuse_reserved(batches)
    return await _produce_enlisted(parts, log, request, options, batches)


async def _produce_enlisted(
    parts: Parts, log: PartitionLog, request: HotRequest, options: ProduceOptions, batches: Sequence[ValidBatch]
) -> HotAnswer:
    """As the route: batches of a transaction are enlisted before they are appended."""
    try:
        owner = require_producers(parts.producing, request.access, batches)
        document = await produce(parts.producing, log, batches, options, owner)
    finally:
        request.throttle_ms = request_context.throttle_time_ms.get()
    return _answer_with(document)
