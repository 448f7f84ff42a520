"""Raw produce to one partition, on the connection: validated, appended, published and answered in one go.

Whatever would be refused before the append is left to the route, which refuses it. What the log itself refuses, and
what happens later, is answered by the application as well, from the error.
"""

from __future__ import annotations

import functools
from collections.abc import Coroutine, Sequence
from typing import Any

from app.engine_local.partitions.partition_writer import STALL_SECONDS
from app.engine_local.partitions.pending_append import PendingAppend
from app.engine_local.partitions.produce_waiters import ProduceOptions, timed_out
from app.engine_local.partitions.unanswered import count_when_written
from app.fast_path.request import HotRequest
from app.http.connection.hot import HotAnswer, HotWait, Outcome, make_head
from app.problems import request_context
from app.problems.problem import Problem
from app.produce.idempotence import refuse_reserved
from app.produce.producer_rights import require_producers
from app.produce.producing import ProduceResultDocument, count_records, placeless_result, produce, result_document
from app.quotas.limits import QuotaKind
from app.record_json.record_batches import needs_codec
from app.record_json.translate import encode_document
from app.service.parts import Parts
from log_model.batches.batch_validation import ValidBatch, validate_batches
from log_model.config import TopicConfig
from log_model.errors import StorageError
from log_model.names import INTERNAL_TOPICS
from log_model.offsets import Offset
from log_model.producers import KEYED_PRODUCER_ID_MIN
from rollway.records import RecordFormatError
from rollway.records.compiled import load
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog

plain_append = load("storage.log._plain_append")
quick_answers = load("app.fast_path._quick_answers")
"""The compiled handlers of plain requests, or ``None``; see ``_quick_answers.pyx``."""

_JSON_HEAD = make_head(200, [("Content-Type", "application/json"), ("Vary", "Accept-Encoding")]) + b"content-length: "
# As ``result_document`` is written, for an append that is no duplicate and is not throttled.
_RESULT = (
    b'{"partition":%d,"base_offset":%d,"last_offset":%d,"record_count":%d,"log_append_time":%d,"log_start_offset":%d,'
    b'"durable_offset":%d,"duplicate":false,"throttle_time_ms":0}'
)
BODY_BYTES_MAX = 256 * 1024
LARGE_BODY_BYTES_MAX = 64 * 1024 * 1024
"""Larger bodies are collected and written beside the loop."""
# Larger bodies are checked in a thread: this much takes some 0.2 ms.
_LOOP_BYTES_MAX = 1280 * 1024


def produce_batches(parts: Parts, request: HotRequest) -> Outcome | None:
    """Answer as ``produceRecordBatches`` does."""
    target, body, quotas = request.target, request.body, parts.quotas
    options = options_of(request)
    if not body or (quotas.table.has_any and quotas.is_muted(QuotaKind.PRODUCE, request.client)):
        return None
    try:
        log = parts.engine.partition(target.topic, target.partition)
        if len(body) > _LOOP_BYTES_MAX or needs_codec(body, log.config):
            return _produce_in_thread(parts, log, request, options)
        batches = validate_batches(body, log.config, parts.engine.now_ms())
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
    outcome = append_batches(parts, log, request, batches, options, len(body))
    if outcome is not None:
        _offer_compiled(parts, request, log, options)
    return outcome


def _offer_compiled(parts: Parts, request: HotRequest, log: PartitionLog, options: ProduceOptions) -> None:
    """Let the next requests for this target be answered in C, if they wait for the write and its fsync alone."""
    memo: _Memo = request.target.memo
    waits = options.waits_for_fsync(log)
    if (
        (memo.config is log.config and memo.topic_id == log.topic_id)
        or quick_answers is None
        or plain_append is None
        or not plain_append.is_usable
        or log.config.message_timestamp_type != "CreateTime"
        or options.acks == "0"
        or options.expected_offset is not None
        or (log.config.flush_policy == "group" and not waits)
        or not log.replicas.is_alone
        or request.target.topic in INTERNAL_TOPICS
    ):
        return
    memo.topic_id, memo.config = log.topic_id, log.config
    writer = parts.engine.writer_of(log)
    if writer.turn is None:
        writer.turn = quick_answers.AppendTurn(
            parts, writer, STALL_SECONDS, _JSON_HEAD, _RESULT, functools.partial(_wait, parts)
        )
    quick = quick_answers.QuickProduce(parts, writer, writer.turn, options if waits else None, _LOOP_BYTES_MAX)
    request.join = quick.join
    request.quick = None if waits else quick.answer


class _Memo:
    """What follows from a target alone, and the topic and settings for which its compiled answer was made."""

    __slots__ = ("config", "options", "topic_id")

    def __init__(self, options: ProduceOptions) -> None:
        self.options = options
        self.topic_id = ""
        self.config: TopicConfig | None = None


def options_of(request: HotRequest) -> ProduceOptions:
    """Return what the query asks for, which is the same for all requests with this target."""
    memo: _Memo | None = request.target.memo
    if memo is None:
        parameters = request.target.parameters
        memo = request.target.memo = _Memo(parameters.options(parameters.expected_offset))
    return memo.options


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
        return _wait(parts, pending, options, throttle_ms=request.throttle_ms)
    return _answer(parts, pending, pending.result, request.throttle_ms)


def _answer(parts: Parts, pending: PendingAppend, result: AppendResult, throttle_ms: int) -> HotAnswer:
    parts.engine.appends.count_produced(result, pending.size_bytes)
    return _answer_with(result_document(pending.log, result, throttle_ms))


def _answer_with(document: ProduceResultDocument) -> HotAnswer:
    body = encode_document(document)
    return HotAnswer(_JSON_HEAD + b"%d\r\n" % len(body), body)


def _wait(
    parts: Parts, pending: PendingAppend, options: ProduceOptions, waited_ms: int = 0, throttle_ms: int = 0
) -> HotWait:
    """The answer comes with the file, the fsync, or the other copies; ``waited_ms`` of the wait are over."""

    def answer() -> HotAnswer | Coroutine[Any, Any, HotAnswer]:
        result = pending.outcome()
        if options.lacks_copies(pending.log, result):
            return _after_copies(parts, pending, options)
        return _answer(parts, pending, result, throttle_ms)

    def expired() -> HotAnswer:
        count_when_written(parts.engine.appends, pending)
        raise timed_out(options, pending.result)

    subscribe = pending.call_when_fsynced if pending.wants_fsync else pending.written.add_done_callback
    return HotWait(subscribe, answer, max(0, options.timeout_ms - waited_ms), expired)


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
