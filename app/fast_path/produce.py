"""Raw produce to one partition, on the connection: validated, appended, published and answered in one go.

Requests that would be refused before the append are left to the route, which refuses them. The application also
answers refusals of the log and later errors.
"""

from __future__ import annotations

import functools
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from app.engine.appending import AppendOptions
from app.engine_local.partitions.partition_writer import STALL_SECONDS
from app.engine_local.partitions.pending_append import PendingAppend
from app.engine_local.partitions.produce_waiters import lacks_copies, timed_out
from app.event_loop.pools import call_in
from app.fast_path.local_parts import LocalParts
from app.fast_path.request import PlainRequest
from app.http.connection.fast_path_interface import AnswerWait, Outcome, PlainAnswer, make_head
from app.problems import request_context
from app.problems.problem import Problem
from app.produce.idempotence import (
    REPLAYED_HEADER,
    RequestKey,
    key_reused,
    parse_key,
    produce_keyed,
    refuse_other_records,
    refuse_reserved,
)
from app.produce.producer_rights import require_producers
from app.produce.producing import ProduceResultDocument, count_records, placeless_result, produce, result_document
from app.record_json.record_batches import batches_at_once
from app.record_json.record_documents import encode_document
from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import ValidBatch, validate_batches
from log_model.errors import OutOfOrderSequenceError, StorageError
from log_model.names import INTERNAL_TOPICS
from log_model.producers import KEYED_PRODUCER_ID_MIN
from rollway.records import RecordFormatError
from rollway.records.compiled import load
from storage.log.partition_log import PartitionLog

plain_append = load("storage.log.append_c")
compiled_handlers = load("app.fast_path.produce_c")
"""The compiled handlers of plain requests, or ``None``; see ``produce_c.pyx``."""

_JSON = [("Content-Type", "application/json"), ("Vary", "Accept-Encoding")]
_JSON_HEAD = make_head(200, _JSON) + b"content-length: "
_REPLAYED_HEAD = make_head(200, [*_JSON, (REPLAYED_HEADER, "true")]) + b"content-length: "
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


def produce_batches(parts: LocalParts, request: PlainRequest) -> Outcome | None:
    """Answer as ``produceRecordBatches`` does."""
    target, body, options, key = request.target, request.body, options_of(parts, request), key_of(request)
    if not body or (key is None and request.head.idempotency_key):
        return None
    try:
        log = parts.engine.manager.find_open(target.topic, target.partition)
        batches = None if log is None else batches_at_once(body, log.config, parts.engine.now_ms(), _LOOP_BYTES_MAX)
    except (StorageError, RecordFormatError):
        return None
    if log is None or batches is None:
        return _produce_at_length(parts, log, request, options, key)
    for batch in batches:
        if batch.header.is_transactional:
            return _produce_at_length(parts, log, request, options, key, batches)
        if batch.header.producer_id >= (0 if request.access.is_authenticated or key else KEYED_PRODUCER_ID_MIN):
            # The route looks whose id it is, or refuses it.
            return None
    outcome = append_batches(parts, log, request, batches, options, None if key is None else Keyed(key, batches))
    if outcome is not None:
        _offer_compiled(parts, request, log, options, key)
    return outcome


def _offer_compiled(
    parts: LocalParts, request: PlainRequest, log: PartitionLog, options: AppendOptions, key: RequestKey | None
) -> None:
    """Let the next requests for this target be answered in C, if they wait for the write and its fsync alone."""
    target = request.target
    waits = options.waits_for_fsync(log)
    if (
        (target.compiled_config is log.config and target.compiled_topic_id == log.topic_id)
        or compiled_handlers is None
        or plain_append is None
        or not plain_append.is_usable
        or log.config.message_timestamp_type != "CreateTime"
        or options.acks == "0"
        or options.expected_offset is not None
        or not log.replicas.is_alone
        or target.topic in INTERNAL_TOPICS
        # A key belongs to the principal of its request, which the compiled handler is not told.
        or (key is not None and parts.settings.authentication)
    ):
        return
    target.compiled_topic_id, target.compiled_config = log.topic_id, log.config
    writer = parts.engine.writer_of(log)
    if writer.batcher is None:
        writer.batcher = compiled_handlers.AppendBatcher(
            parts, writer, STALL_SECONDS, _JSON_HEAD, _RESULT, functools.partial(_wait, parts)
        )
    compiled = compiled_handlers.CompiledProduce(
        parts,
        writer,
        writer.batcher,
        options if waits else None,
        _LOOP_BYTES_MAX,
        # With authentication the handler in Python looks whose id it is.
        not parts.settings.authentication,
        None if key is None else key.begin_digest(log.name.topic),
    )
    request.enqueue = compiled.enqueue
    request.compiled_handler = None if waits else compiled.answer


def options_of(parts: LocalParts, request: PlainRequest) -> AppendOptions:
    """Return what the query asks for, which is the same for all requests with this target."""
    target = request.target
    options: AppendOptions | None = target.append_options
    if options is None:
        parameters = target.parameters
        options = target.append_options = parameters.options(parts.engine.capabilities, parameters.expected_offset)
    return options


class Keyed(NamedTuple):
    """A request with an ``Idempotency-Key``: its records, and which of them came with a time (``None``: all)."""

    key: RequestKey
    batches: Sequence[ValidBatch]
    timed: Sequence[bool] | None = None


def key_of(request: PlainRequest) -> RequestKey | None:
    """Return the key of a request; ``None`` if it has none, or one that the route refuses."""
    key = parse_key(request.head.idempotency_key.decode("ascii")) if request.head.idempotency_key else None
    return None if key is None else RequestKey(key, request.access.principal)


def append_batches(
    parts: LocalParts,
    log: PartitionLog,
    request: PlainRequest,
    batches: Sequence[ValidBatch],
    options: AppendOptions,
    keyed: Keyed | None = None,
) -> Outcome | None:
    """Append batches and answer as the options say; ``None`` when the log takes none, for now.

    Those of a key have no producer, and get its stamp here.
    """
    if keyed is not None:
        keyed.key.stamp_for(log.name.topic).stamp(batches)
    try:
        pending = parts.producing.submit(log, batches, options, request.client)
    except (StorageError, Problem):
        # Nothing was taken.
        return None
    assert isinstance(pending, PendingAppend)
    request.throttle_ms = pending.throttle_ms
    if options.acks == "0":
        return _answer_with(placeless_result(log, count_records(batches), pending.throttle_ms))
    if pending.error is None and (pending.result is None or pending.wants_fsync):
        return _wait(parts, pending, options, keyed=keyed)
    result = _outcome_of(pending, keyed)
    if lacks_copies(options, log, result):
        return _wait(parts, pending, options, keyed=keyed)
    if keyed is not None and result.duplicate:
        return _replay(parts, pending, result, keyed)
    return _answer_with(result_document(log, result, pending.throttle_ms))


def _answer_with(document: ProduceResultDocument, *, is_keyed: bool = False) -> PlainAnswer:
    body = encode_document(document)
    head = _REPLAYED_HEAD if is_keyed and document.duplicate else _JSON_HEAD
    return PlainAnswer(head + b"%d\r\n" % len(body), body)


def _outcome_of(pending: PendingAppend, keyed: Keyed | None) -> AppendResult:
    try:
        return pending.outcome()
    except OutOfOrderSequenceError:
        if keyed is None:
            raise
        raise key_reused(pending.partition.name.partition) from None


async def _replay(parts: LocalParts, pending: PendingAppend, result: AppendResult, keyed: Keyed) -> PlainAnswer:
    await refuse_other_records(parts.producing, pending.partition, result.base_offset, keyed.batches, keyed.timed)
    return _answer_with(result_document(pending.partition, result, pending.throttle_ms), is_keyed=True)


def _wait(
    parts: LocalParts, pending: PendingAppend, options: AppendOptions, waited_ms: int = 0, keyed: Keyed | None = None
) -> AnswerWait:
    """Return the wait for the write, the fsync, or the other copies; ``waited_ms`` of it are over."""

    def answer() -> PlainAnswer | Coroutine[Any, Any, PlainAnswer]:
        result = _outcome_of(pending, keyed)
        if lacks_copies(options, pending.partition, result):
            return _after_copies(parts, pending, options, keyed)
        if keyed is not None and result.duplicate:
            return _replay(parts, pending, result, keyed)
        return _answer_with(result_document(pending.partition, result, pending.throttle_ms))

    def expired() -> PlainAnswer:
        raise timed_out(options, pending.result)

    return AnswerWait(pending.call_when_done, answer, max(0, options.timeout_ms - waited_ms), expired)


async def _after_copies(
    parts: LocalParts, pending: PendingAppend, options: AppendOptions, keyed: Keyed | None
) -> PlainAnswer:
    result = await parts.producing.outcome_of(pending, options)
    if keyed is not None and result.duplicate:
        return await _replay(parts, pending, result, keyed)
    return _answer_with(result_document(pending.partition, result, pending.throttle_ms))


async def _produce_at_length(
    parts: LocalParts,
    log: PartitionLog | None,
    request: PlainRequest,
    options: AppendOptions,
    key: RequestKey | None,
    batches: Sequence[ValidBatch] | None = None,
) -> PlainAnswer:
    """Answer as the route does: open the log, validate the body in a thread, enlist its batches before the append."""
    if log is None:
        log = await parts.engine.partition(request.target.topic, request.target.partition)
    if batches is None:
        validate = functools.partial(validate_batches, request.body, log.config, parts.engine.now_ms())
        batches = await call_in(parts.pools.read, validate)
    refuse_reserved(batches)
    try:
        owner = require_producers(parts.producing, request.access, batches)
        if key is None:
            document = await produce(parts.producing, log, batches, options, owner)
        else:
            stamp = key.stamp_for(log.name.topic)
            document = await produce_keyed(parts.producing, log, batches, options, stamp)
    finally:
        request.throttle_ms = request_context.throttle_time_ms.get()
    return _answer_with(document, is_keyed=key is not None)
