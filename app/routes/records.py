"""Producing records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.access.needs import AccessOf, access_of, asks, needs
from app.access.operations import Operation, ResourceKind, topic_resource
from app.answers import combined_problem, json_answer
from app.broker import Broker, ProduceOptions
from app.dependencies import (
    JSON,
    BrokerOf,
    LogOf,
    TopicName,
    TransactionalIdHeader,
    WorkOf,
    no_old_library,
    within_produce_quota,
)
from app.documented_problems import PRODUCE, problems
from app.hot.declarations import hot, remember
from app.hot.produce import produce_batches
from app.hot.produce_json import BODY_BYTES_MAX as HOT_JSON_BYTES_MAX
from app.hot.produce_json import PLAIN_BODY_BYTES_MAX as PLAIN_JSON_BYTES_MAX
from app.hot.produce_json import produce_json
from app.http import request_context
from app.http.body import iterate_body, read_body
from app.http.byte_budget import Hold
from app.http.negotiation import content_type
from app.http.problems import Problem, instance_of
from app.http.response_cycle import ENDS_EARLY
from app.idempotence import (
    REPLAYED_HEADER,
    ProducerStamp,
    RequestKey,
    parse_marked,
    produce_keyed,
    produce_keyed_to_topic,
    refuse_reserved,
    replay_headers,
    stamp_batches,
)
from app.idempotence_headers import IdempotenceOf, no_transactional_id, refused_header
from app.paths import RECORDS, TOPIC_RECORDS
from app.producer_rights import require_producer, require_producers
from app.producer_stream import ProducerStream
from app.producing import (
    ProduceResultDocument,
    TopicProduceDocument,
    batches_of,
    parse_records,
    plain_batches_of,
    produce,
    produce_to_topic,
)
from app.record_stream import NDJSON, AcknowledgementStream, RecordStream
from app.translate import encode_document
from app.work_rooms import RequestWork
from schemas.base import WholeNumber
from schemas.names import OffsetParameter
from schemas.records import Encoding, ProduceResult, TopicProduceResult
from storage.errors import UnsupportedFormatError

RECORD_BATCHES = "application/vnd.kafka.record-batch.v2"
MESSAGE_SET = "application/vnd.kafka.message-set"
_SEQUENCES_NEED_A_PARTITION = (
    "sequences count the records of one partition; send them to /v1/topics/{topic}/partitions/{partition}/records, "
    "or send the request with an Idempotency-Key"
)
_TRANSACTIONS_NEED_A_PARTITION = (
    "send records of a transaction to /v1/topics/{topic}/partitions/{partition}/records, or to /v1/produce with "
    "transactional_id in the body"
)
HOT_BODY_BYTES_MAX = 256 * 1024
LARGE_BODY_BYTES_MAX = 64 * 1024 * 1024
"""Larger bodies are collected and written beside the loop."""
TIMEOUT_MS_DEFAULT = 30_000
TIMEOUT_MS_MAX = 600_000
ACKS = ("0", "1", "all")

router = APIRouter(tags=["records"])


class ProduceParameters(BaseModel):
    """The query of a produce request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    acks: Annotated[
        str,
        Field(
            description="0: answer at once, without a result. 1: once it is in the file. all: once every copy has it "
            "and, with flush.policy=group, an fsync covers it.",
            json_schema_extra={"enum": list(ACKS)},
        ),
    ] = "all"
    durability: Annotated[
        Literal["written", "fsynced"] | None,
        Field(
            description="written survives a killed process, fsynced also a power cut and is not for acks=0. Absent: "
            "what acks says."
        ),
    ] = None
    timeout_ms: Annotated[
        int,
        WholeNumber(1, TIMEOUT_MS_MAX),
        Field(description="How long to wait for the acknowledgement; then 504, while the append goes on."),
    ] = TIMEOUT_MS_DEFAULT
    encoding: Annotated[
        Encoding,
        Field(
            description="How keys and values are written in JSON. utf8: as text in key and value, or as bytes in "
            "key_base64 and value_base64. base64: in those two alone. json: as any JSON value in key and value, or as "
            "bytes in the other two."
        ),
    ] = "utf8"

    def options(self, expected_offset: int | None = None) -> ProduceOptions:
        """What is asked for.

        Raises:
            Problem: acks is none of those allowed (spec A4), or 0 and does not go with durability.
        """
        if self.acks == "0" and self.durability == "fsynced":
            detail = "with acks=0 the answer waits for nothing, so it cannot say that an fsync covers the records"
            fault = {"pointer": "durability", "code": "invalid_value", "detail": detail}
            raise Problem(422, "invalid_request", f"durability: {detail}", errors=[fault])
        for acks in ("0", "1", "all"):
            if self.acks == acks:
                return ProduceOptions(acks, self.durability, self.timeout_ms, expected_offset)
        detail = "acks must be 0, 1 or all"
        fault = {"pointer": "acks", "code": "invalid_value", "detail": detail}
        raise Problem(422, "invalid_required_acks", detail, kafka_code=21, errors=[fault])


class PartitionProduceParameters(ProduceParameters):
    """The query of a produce request to one partition."""

    expected_offset: Annotated[
        OffsetParameter | None, Field(description="Append only if this is the log end offset; 412 otherwise.")
    ] = None


HOT_PARAMETERS = ("acks", "durability", "timeout_ms", "encoding", "expected_offset")
"""What both handlers of plain requests know."""


def _record_body(list_schema: str, record_schema: str, *, raw: bool) -> dict[str, Any]:
    content: dict[str, Any] = {
        JSON: {
            "schema": {"$ref": f"#/components/schemas/{list_schema}"},
            "example": {"records": [{"key": "kitchen", "value": "21.5", "timestamp": 1714564800000}]},
        },
        NDJSON: {
            "schema": {
                "type": "string",
                "description": f"One {record_schema} per line; read as a stream of any length.",
                "x-line-schema": {"$ref": f"#/components/schemas/{record_schema}"},
            },
            "example": '{"key":"kitchen","value":"21.5"}\n{"value":null}\n',
        },
    }
    if raw:
        content[RECORD_BATCHES] = {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "Record batches of format 2, one behind the other, each with base offset 0.",
            }
        }
        content[MESSAGE_SET] = {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "Messages of magic 0 or 1, plain or in compressed wrappers, with any offsets. They are "
                "converted to record batches; a partial last message is left out.",
            }
        }
    return {"requestBody": {"required": True, "content": content}}


REPLAYED = {
    REPLAYED_HEADER: {
        "description": "true: everything had been done under this Idempotency-Key before; absent otherwise.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"description": "Accepted, with acks=0; no result. With Connection: close when a part has failed already."}
}
_ACKNOWLEDGED = {
    "description": "Appended. NDJSON is answered with one line per appended batch; a line with an error ends it. "
    "With an Idempotency-Key it is one request, and has one line per partition.",
    "headers": REPLAYED,
    "content": {
        NDJSON: {
            "schema": {
                "type": "string",
                "x-line-schema": {
                    "anyOf": [
                        {"$ref": "#/components/schemas/ProduceResult"},
                        {"$ref": "#/components/schemas/ProduceFailure"},
                    ]
                },
            }
        }
    },
}


@router.post(
    RECORDS,
    operation_id="produceRecords",
    summary="Append records to a partition",
    response_model=ProduceResult,
    responses={200: _ACKNOWLEDGED, **_ACCEPTED, **problems(*PRODUCE)},
    openapi_extra=_record_body("RecordList", "ProducedRecord", raw=True),
    dependencies=[Depends(no_old_library), Depends(within_produce_quota)],
)
@hot(
    produce_batches,
    content_types=[RECORD_BATCHES.encode()],
    parameters=HOT_PARAMETERS,
    body_bytes_max=HOT_BODY_BYTES_MAX,
    large_bytes_max=LARGE_BODY_BYTES_MAX,
)
@hot(
    produce_json,
    content_types=[JSON.encode()],
    parameters=HOT_PARAMETERS,
    body_bytes_max=HOT_JSON_BYTES_MAX,
    large_bytes_max=PLAIN_JSON_BYTES_MAX,
)
@needs(Operation.WRITE, ResourceKind.TOPIC)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def produce_records(
    request: Request,
    log: LogOf,
    broker: BrokerOf,
    idempotence: IdempotenceOf,
    access: AccessOf,
    parameters: Annotated[PartitionProduceParameters, Query()],
    transactional_id: TransactionalIdHeader,
    work: WorkOf,
) -> Response:
    """All records of the request or none of them get consecutive offsets; NDJSON is appended batch by batch.

    A raw body may hold several record batches and is stored byte for byte, offsets and leader epoch apart, unless
    the topic's compression.type asks for another codec. A message set, the format before record batches, is converted.
    With an Idempotency-Key, or a producer's id, epoch and sequence, the request may be sent again.
    """
    options = parameters.options(parameters.expected_offset)
    remember(request, parameters)
    media_type = content_type(request, [JSON, NDJSON, RECORD_BATCHES, MESSAGE_SET])
    is_lines = media_type == NDJSON
    instance = instance_of(request.scope)
    if is_lines and transactional_id is not None:
        raise refused_header("Transactional-Id", "a stream of lines is appended piece by piece; send JSON")
    if is_lines and isinstance(idempotence, ProducerStamp):
        require_producer(broker, access, idempotence.producer_id)
        lines = ProducerStream(broker, log, options, parameters.encoding, instance, idempotence)
        return await _streamed(request, lines, options, broker, idempotence.producer_id)
    if is_lines and idempotence is None:
        stream = RecordStream(broker, log.name.topic, log.name.partition, options, parameters.encoding, instance)
        return await _streamed(request, stream, options)
    if media_type == RECORD_BATCHES and isinstance(idempotence, ProducerStamp):
        raise refused_header("Producer-Id", "record batches carry their producer themselves")
    if media_type == MESSAGE_SET and isinstance(idempotence, ProducerStamp):
        raise UnsupportedFormatError("messages of magic 0 and 1 have no sequences; send an Idempotency-Key")
    body = await read_limited(request, broker, work)
    timed: list[bool] | None = None
    if media_type == RECORD_BATCHES:
        batches = await broker.validate(log, body)
        refuse_reserved(batches)
    elif media_type == MESSAGE_SET:
        batches = await broker.convert(log, body)
    elif isinstance(idempotence, RequestKey):
        parsed, timed = await parse_marked(broker, body, parameters.encoding, work, lines=is_lines)
        batches = await batches_of(broker, log, parsed)
    else:
        plain = await plain_batches_of(broker, log, body, parameters.encoding)
        if plain is None:
            plain = await batches_of(broker, log, await parse_records(broker, body, parameters.encoding, work))
        batches = plain
    if isinstance(idempotence, ProducerStamp):
        await stamp_batches(broker, idempotence, batches)
        if transactional_id is not None:
            for batch in batches:
                batch.set_transactional()
    owner = require_producers(broker, access, batches, transactional_id)
    if isinstance(idempotence, RequestKey):
        result = await produce_keyed(broker, log, batches, options, idempotence.stamp_for(log.name.topic), timed)
        return _answer(result, is_lines=is_lines, is_keyed=True)
    return _answer(await produce(broker, log, batches, options, owner))


def _answer(result: ProduceResultDocument | None, *, is_lines: bool = False, is_keyed: bool = False) -> Response:
    """The answer for one partition."""
    if result is None:
        return Response(status_code=202)
    headers = replay_headers([result]) if is_keyed else None
    content = encode_document(result)
    if is_lines:
        return Response(content + b"\n", 200, headers, media_type=NDJSON)
    return json_answer(content, headers=headers)


@router.post(
    TOPIC_RECORDS,
    operation_id="produceRecordsToTopic",
    summary="Append records to a topic",
    response_model=TopicProduceResult,
    responses={
        200: _ACKNOWLEDGED,
        **_ACCEPTED,
        207: {"model": TopicProduceResult, "description": "Some partitions failed; each has a result or an error."},
        **problems(*PRODUCE),
    },
    openapi_extra=_record_body("RoutedRecordList", "RoutedRecord", raw=False),
    dependencies=[
        Depends(no_old_library),
        Depends(within_produce_quota),
        Depends(no_transactional_id(_TRANSACTIONS_NEED_A_PARTITION)),
    ],
)
@needs(Operation.WRITE, ResourceKind.TOPIC)
async def produce_records_to_topic(
    request: Request,
    topic: TopicName,
    broker: BrokerOf,
    idempotence: IdempotenceOf,
    parameters: Annotated[ProduceParameters, Query()],
    work: WorkOf,
) -> Response:
    """Each record goes to the partition it names, to that of its key as Kafka's producers choose it, or, without a
    key, to one that changes from time to time.

    What goes to one partition is appended whole or not at all. When all partitions fail, the first error is the
    answer. With an Idempotency-Key the request may be sent again, and a retry completes what was done in part.
    """
    options = parameters.options()
    is_lines = content_type(request, [JSON, NDJSON]) == NDJSON
    instance = instance_of(request.scope)
    if isinstance(idempotence, ProducerStamp):
        raise refused_header("Base-Sequence", _SEQUENCES_NEED_A_PARTITION)
    if is_lines and idempotence is None:
        broker.topic(topic)
        stream = RecordStream(broker, topic, None, options, parameters.encoding, instance)
        return await _streamed(request, stream, options)
    broker.topic(topic)
    body = await read_limited(request, broker, work)
    if idempotence is None:
        parsed = await parse_records(broker, body, parameters.encoding, work)
        outcomes = await produce_to_topic(broker, topic, parsed, options)
    else:
        parsed, timed = await parse_marked(broker, body, parameters.encoding, work, lines=is_lines)
        outcomes = await produce_keyed_to_topic(broker, topic, parsed, timed, options, idempotence)
    failures = [outcome.problem for outcome in outcomes]
    if outcomes and None not in failures:
        refused = [msgspec.to_builtins(outcome.document(instance)) for outcome in outcomes]
        raise combined_problem(failures, refused)
    if options.acks == "0":
        return accepted(failures)
    results = [outcome.document(instance) for outcome in outcomes]
    status = 207 if any(failures) else 200
    headers = None if idempotence is None else replay_headers([outcome.result for outcome in outcomes])
    if is_lines:
        content = b"".join(encode_document(result) + b"\n" for result in results)
        return Response(content, status, headers, media_type=NDJSON)
    document = TopicProduceDocument(results, request_context.throttle_time_ms.get())
    return json_answer(encode_document(document), status=status, headers=headers)


def accepted(failures: Sequence[Problem | None]) -> Response:
    """The answer to ``acks=0``, which has no results: a part that has failed by now closes the connection (spec A4)."""
    return Response(status_code=202, headers={"Connection": "close"} if any(failures) else None)


async def read_limited(request: Request, broker: Broker, work: RequestWork) -> bytearray:
    """The body within the service's limits; it counts among all bodies until the request is answered."""
    settings = broker.settings
    return await read_body(
        request,
        limit_bytes=settings.request_body_bytes_max,
        decompressed_bytes_max=settings.decompressed_bytes_max,
        budget=broker.body_budget,
        hold=work.hold(broker.body_budget),
    )


async def _allowed_body(
    request: Request, window: Hold, broker: Broker | None = None, producer_id: int | None = None
) -> AsyncIterator[bytes]:
    """A body of any length, for as long as its sender may send it: rights may change before it ends.

    ``window`` counts what decoding it takes; the stream releases it.

    Raises:
        Problem: as ``iterate_body``; 401, 403 or 404 once the sender may not.
    """
    access = await access_of(request)
    resource = topic_resource(request.path_params["topic"])
    async for piece in iterate_body(request, None, window=window):
        access.require_alive()
        access.require(Operation.WRITE, resource)
        if broker is not None and producer_id is not None:
            require_producer(broker, access, producer_id)
        yield piece
        piece = b""  # noqa: PLW2901 - not held while the next one is waited for


async def _streamed(
    request: Request,
    stream: RecordStream,
    options: ProduceOptions,
    broker: Broker | None = None,
    producer_id: int | None = None,
) -> Response:
    """The answer to a stream of records, of this producer if it has one."""
    # A body that is cut off may be in the log in part, which only the stream can tell.
    request.scope[ENDS_EARLY] = True
    if "content-length" in request.headers:
        stream.hold_answer()
    running = asyncio.ensure_future(stream.run(_allowed_body(request, stream.window, broker, producer_id)))
    if options.acks == "0":
        await running
    problem = await stream.first()
    if problem is not None:
        await running
        raise problem
    if options.acks == "0":
        return Response(status_code=202)
    return AcknowledgementStream(stream, running)
