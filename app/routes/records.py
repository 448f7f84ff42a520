"""Producing records."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.access.needs import needs
from app.access.operations import Operation, ResourceKind
from app.answers import combined_problem, json_answer
from app.broker import Broker, ProduceOptions
from app.dependencies import JSON, BrokerOf, LogOf, TopicName
from app.documented_problems import PRODUCE, problems
from app.http.body import iterate_body, read_body
from app.http.negotiation import content_type
from app.http.problems import Problem, instance_of
from app.paths import RECORDS, TOPIC_RECORDS
from app.producing import TopicProduceDocument, batches_of, parse_records, produce, produce_to_topic
from app.record_stream import NDJSON, AcknowledgementStream, RecordStream
from app.translate import encode_document
from schemas.base import WholeNumber
from schemas.names import OffsetParameter
from schemas.records import Encoding, ProduceResult, TopicProduceResult

RECORD_BATCHES = "application/vnd.kafka.record-batch.v2"
MESSAGE_SET = "application/vnd.kafka.message-set"
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
        Field(description="written survives a killed process, fsynced also a power cut. Absent: what acks says."),
    ] = None
    timeout_ms: Annotated[
        int,
        WholeNumber(1, TIMEOUT_MS_MAX),
        Field(description="How long to wait for the acknowledgement; then 504, while the append goes on."),
    ] = TIMEOUT_MS_DEFAULT
    encoding: Annotated[
        Encoding, Field(description="How keys and values are written in JSON: as text, as base64, or as any JSON.")
    ] = "utf8"

    def options(self, expected_offset: int | None = None) -> ProduceOptions:
        """What is asked for.

        Raises:
            Problem: acks is none of those allowed (spec A4).
        """
        for acks in ("0", "1", "all"):
            if self.acks == acks:
                return ProduceOptions(acks, self.durability, self.timeout_ms, expected_offset)
        raise Problem(422, "invalid_required_acks", "acks must be 0, 1 or all", kafka_code=21)


class PartitionProduceParameters(ProduceParameters):
    """The query of a produce request to one partition."""

    expected_offset: Annotated[
        OffsetParameter | None, Field(description="Append only if this is the log end offset; 412 otherwise.")
    ] = None


def _record_body(list_schema: str, record_schema: str, *, raw: bool) -> dict[str, Any]:
    def either(name: str) -> dict[str, Any]:
        """The shape of text and base64, or with encoding=json of any JSON."""
        return {"anyOf": [{"$ref": f"#/components/schemas/{shape}"} for shape in (name, f"Json{name}")]}

    content: dict[str, Any] = {
        JSON: {
            "schema": either(list_schema),
            "example": {"records": [{"key": "AA", "value": "flight 1141 to MIA", "timestamp": 1372923600000}]},
        },
        NDJSON: {
            "schema": {
                "type": "string",
                "description": f"One {record_schema} per line; read as a stream of any length.",
                "x-line-schema": either(record_schema),
            },
            "example": '{"key":"AA","value":"flight 1141 to MIA"}\n{"value":null}\n',
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


_IDEMPOTENCE_HEADERS = {
    name.lower().encode(): name for name in ("Producer-Id", "Producer-Epoch", "Base-Sequence", "Idempotency-Key")
}


async def no_idempotence_headers(request: Request) -> None:
    """Refuse headers that ask for idempotence: ignored, they would let a retry append everything twice.

    Raises:
        Problem: 422.
    """
    names = [_IDEMPOTENCE_HEADERS[name] for name, _ in request.scope["headers"] if name in _IDEMPOTENCE_HEADERS]
    if names:
        detail = "not offered yet; idempotent producers send their sequences inside raw record batches"
        faults = [{"pointer": name, "code": "unsupported_header", "detail": detail} for name in dict.fromkeys(names)]
        raise Problem(422, "invalid_request", f"{names[0]}: {detail}", errors=faults)


_ACCEPTED: dict[int | str, dict[str, Any]] = {202: {"description": "Accepted, with acks=0; no result."}}
_ACKNOWLEDGED = {
    "description": "Appended. NDJSON is answered with one line per appended batch; a line with an error ends it.",
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
    dependencies=[Depends(no_idempotence_headers)],
)
@needs(Operation.WRITE, ResourceKind.TOPIC)
async def produce_records(
    request: Request, log: LogOf, broker: BrokerOf, parameters: Annotated[PartitionProduceParameters, Query()]
) -> Response:
    """All records of the request or none of them get consecutive offsets; NDJSON is appended batch by batch.

    A raw body may hold several record batches and is stored byte for byte, offsets and leader epoch apart, unless
    the topic's compression.type asks for another codec. A message set, the format before record batches, is converted.
    """
    options = parameters.options(parameters.expected_offset)
    media_type = content_type(request, [JSON, NDJSON, RECORD_BATCHES, MESSAGE_SET])
    if media_type == NDJSON:
        stream = RecordStream(
            broker, log.name.topic, log.name.partition, options, parameters.encoding, instance_of(request.scope)
        )
        return await _streamed(request, stream, options)
    body = await read_limited(request, broker)
    if media_type == RECORD_BATCHES:
        batches = await broker.validate(log, body)
    elif media_type == MESSAGE_SET:
        batches = await broker.convert(log, body)
    else:
        parsed = await parse_records(broker, body, parameters.encoding, routed=False)
        batches = await batches_of(broker, log, parsed)
    result = await produce(broker, log, batches, options)
    return Response(status_code=202) if result is None else json_answer(encode_document(result))


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
    dependencies=[Depends(no_idempotence_headers)],
)
@needs(Operation.WRITE, ResourceKind.TOPIC)
async def produce_records_to_topic(
    request: Request, topic: TopicName, broker: BrokerOf, parameters: Annotated[ProduceParameters, Query()]
) -> Response:
    """Each record goes to the partition it names, to that of its key as Kafka's producers choose it, or, without a
    key, to one that changes from time to time.

    What goes to one partition is appended whole or not at all. When all partitions fail, the first error is the
    answer.
    """
    options = parameters.options()
    media_type = content_type(request, [JSON, NDJSON])
    instance = instance_of(request.scope)
    if media_type == NDJSON:
        broker.topic(topic)
        stream = RecordStream(broker, topic, None, options, parameters.encoding, instance)
        return await _streamed(request, stream, options)
    broker.topic(topic)
    parsed = await parse_records(broker, await read_limited(request, broker), parameters.encoding, routed=True)
    outcomes = await produce_to_topic(broker, topic, parsed, options)
    failures = [outcome.problem for outcome in outcomes]
    if outcomes and None not in failures:
        refused = [msgspec.to_builtins(outcome.document(instance)) for outcome in outcomes]
        raise combined_problem(failures, refused)
    if options.acks == "0":
        return Response(status_code=202)
    results = [outcome.document(instance) for outcome in outcomes]
    return json_answer(encode_document(TopicProduceDocument(results)), status=207 if any(failures) else 200)


async def read_limited(request: Request, broker: Broker) -> bytearray:
    """The body within the service's limits."""
    settings = broker.settings
    return await read_body(
        request,
        limit_bytes=settings.request_body_bytes_max,
        decompressed_bytes_max=settings.decompressed_bytes_max,
    )


async def _streamed(request: Request, stream: RecordStream, options: ProduceOptions) -> Response:
    running = asyncio.ensure_future(stream.run(iterate_body(request, None)))
    if options.acks == "0":
        await running
    problem = await stream.first()
    if problem is not None:
        await running
        raise problem
    if options.acks == "0":
        return Response(status_code=202)
    return AcknowledgementStream(stream, running)
