"""Produce requests: the models of their queries, and the code that reads and appends their records and responds.

A route declares the media types of its path; a request has one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from fastapi import Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.access.access import Access
from app.access.capabilities import refuse_missing
from app.access.needs import AccessOf, access_of
from app.access.operations import Operation, topic_resource
from app.engine.appending import AppendOptions
from app.engine.capabilities import Capabilities
from app.engine.partitions import Partition
from app.fast_path.declarations import cache_query
from app.http.bodies.body import iterate_body, read_body
from app.http.bodies.byte_budget import Hold
from app.http.connection.response_cycle import ENDS_EARLY
from app.http.negotiation import content_type
from app.media_types import MESSAGE_SET, NDJSON, OCTETS, RECORD_BATCHES
from app.problems import kinds, request_context
from app.problems.problem import Fault, Problem, instance_of, invalid, invalid_value
from app.produce.idempotence import (
    Idempotence,
    ProducerStamp,
    RequestKey,
    parse_marked,
    produce_keyed,
    produce_keyed_to_topic,
    refuse_reserved,
    replay_headers,
    stamp_batches,
)
from app.produce.producer_rights import require_producer, require_producers
from app.produce.producer_stream import ProducerStream
from app.produce.producing import (
    ProduceResultDocument,
    TopicProduceDocument,
    batches_of,
    parse_records,
    plain_batches_of,
    produce,
    produce_to_topic,
)
from app.produce.record_stream import AcknowledgementStream, RecordStream
from app.produce.submit import Producing
from app.record_json.record_documents import encode_document
from app.record_json.work_rooms import RequestWork
from app.routes.answers import combined_problem, json_answer
from app.routes.dependencies import PartitionOf, ProducingOf, WorkOf
from app.routes.records.idempotence_headers import refused_header
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import UnsupportedFormatError
from schemas.base import WholeNumber
from schemas.names import OffsetParameter
from schemas.records import Encoding

TRANSACTIONS_NEED_A_PARTITION = (
    "send records of a transaction to /v1/topics/{topic}/partitions/{partition}/records, or to /v1/produce with "
    "transactional_id in the body"
)
TIMEOUT_MS_DEFAULT = 30_000
TIMEOUT_MS_MAX = 600_000
ACKS = ("0", "1", "all")
FAST_PATH_PARTITION_PARAMETERS = ("acks", "durability", "timeout_ms", "expected_offset")
"""The parameters that both produce handlers of the fast path know, besides ``encoding``."""


# Models of queries


class ProduceParameters(BaseModel):
    """The query of every produce request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    acks: Annotated[
        str,
        Field(
            description="Acknowledgement to wait for. 0: none; offsets are -1, and a stream of lines gets no lines "
            "back. 1: the records are in the file. all: every replica has them and, with flush.policy=group, an fsync "
            "covers them.",
            json_schema_extra={"enum": list(ACKS)},
        ),
    ] = "all"
    durability: Annotated[
        Literal["written", "fsynced"] | None,
        Field(
            description="written: the records survive a killed process. fsynced: also a power cut; not with acks=0. "
            "Absent: acks alone decides."
        ),
    ] = None
    timeout_ms: Annotated[
        int,
        WholeNumber(1, TIMEOUT_MS_MAX),
        Field(description="Milliseconds to wait for the acknowledgement; then 504, while the append goes on."),
    ] = TIMEOUT_MS_DEFAULT

    def options(self, capabilities: Capabilities, expected_offset: int | None = None) -> AppendOptions:
        """Return the options that the query describes, for an engine with these capabilities.

        Raises:
            Problem: acks has a wrong value (spec A4), or acks is 0 and durability is fsynced, or the engine lacks a
                capability that the options need.
        """
        if self.acks == "0" and self.durability == "fsynced":
            detail = "with acks=0 the answer waits for nothing, so it cannot say that an fsync covers the records"
            raise invalid([Fault("durability", "invalid_value", detail)])
        if self.durability == "fsynced":
            refuse_missing("fsync_durability", capabilities)
        if expected_offset is not None:
            refuse_missing("expected_offset", capabilities)
        for acks in ("0", "1", "all"):
            if self.acks == acks:
                return AppendOptions(acks, self.durability, self.timeout_ms, expected_offset)
        raise invalid_value("acks", "acks must be 0, 1 or all", kinds.INVALID_REQUIRED_ACKS)


class TextProduceParameters(ProduceParameters):
    """The query of a request whose records are JSON or lines of JSON."""

    encoding: Annotated[
        Encoding,
        Field(
            description="Form of keys and values in JSON. utf8: text in key and value, or bytes in key_base64 and "
            "value_base64. base64: only bytes in key_base64 and value_base64. json: any JSON value in key and value, "
            "or bytes in key_base64 and value_base64."
        ),
    ] = "utf8"


class BatchProduceParameters(ProduceParameters):
    """The query of a request to one partition whose records are batches."""

    expected_offset: Annotated[
        OffsetParameter | None, Field(description="Append only if the log end offset is this one; 412 otherwise.")
    ] = None


class PartitionProduceParameters(TextProduceParameters, BatchProduceParameters):
    """The query of a request to one partition that takes records in all media types."""


# One partition


@dataclass(frozen=True, slots=True)
class PartitionProduce:
    """A produce request to one partition, with the dependencies of its route."""

    request: Request
    log: Partition
    producing: Producing
    access: Access
    work: RequestWork

    async def run(
        self,
        parameters: BatchProduceParameters,
        forms: Sequence[str],
        idempotence: Idempotence | None,
        *,
        encoding: Encoding = "utf8",
        transactional_id: str | None = None,
        absent_form: str | None = None,
    ) -> Response:
        """Append the records of the body, and return the response.

        Content-Type must be one of ``forms``. A request without it counts as ``absent_form``; if that is ``None``, it
        is refused.

        Raises:
            Problem: the request is wrong.
            StorageError: the log refused the append.
        """
        options = parameters.options(self.producing.engine.capabilities, parameters.expected_offset)
        cache_query(self.request, parameters)
        media_type = content_type(self.request, forms, absent=absent_form)
        is_lines = media_type == NDJSON
        if is_lines and transactional_id is not None:
            raise refused_header("Transactional-Id", "a stream of lines is appended piece by piece; send JSON")
        if is_lines and not isinstance(idempotence, RequestKey):
            return await self._stream(options, idempotence, encoding)
        batches, timed = await self._batches(media_type, idempotence, encoding)
        if isinstance(idempotence, ProducerStamp):
            await stamp_batches(self.producing, idempotence, batches)
            if transactional_id is not None:
                for batch in batches:
                    batch.set_transactional()
        owner = require_producers(self.producing, self.access, batches, transactional_id)
        if isinstance(idempotence, RequestKey):
            stamp = idempotence.stamp_for(self.log.name.topic)
            result = await produce_keyed(self.producing, self.log, batches, options, stamp, timed)
            return _answer(result, is_lines=is_lines, is_keyed=True)
        return _answer(await produce(self.producing, self.log, batches, options, owner))

    async def _stream(self, options: AppendOptions, stamp: ProducerStamp | None, encoding: Encoding) -> Response:
        """Append lines while they arrive, batch by batch."""
        producing, log, instance = self.producing, self.log, instance_of(self.request.scope)
        if stamp is None:
            stream = RecordStream(producing, log.name.topic, log.name.partition, options, encoding, instance)
            return await _streamed(self.request, stream, options)
        require_producer(producing, self.access, stamp.producer_id)
        lines = ProducerStream(producing, log, options, encoding, instance, stamp)
        return await _streamed(self.request, lines, options, producing, stamp.producer_id)

    async def _batches(
        self, media_type: str, idempotence: Idempotence | None, encoding: Encoding
    ) -> tuple[Sequence[ValidBatch], Sequence[bool] | None]:
        """Read the body and return its batches, ready for the log.

        The second value, for JSON and lines with a key, says for each record whether it came with a time. Otherwise it
        is ``None``.
        """
        producing, log = self.producing, self.log
        if media_type in (RECORD_BATCHES, OCTETS) and isinstance(idempotence, ProducerStamp):
            raise refused_header("Producer-Id", "record batches carry their producer themselves")
        if media_type == MESSAGE_SET and isinstance(idempotence, ProducerStamp):
            raise UnsupportedFormatError("messages of magic 0 and 1 have no sequences; send an Idempotency-Key")
        body = await read_limited(self.request, producing, self.work)
        if media_type in (RECORD_BATCHES, OCTETS):
            batches = await producing.validate(log, body)
            refuse_reserved(batches)
            return batches, None
        if media_type == MESSAGE_SET:
            return await producing.convert(log, body), None
        if isinstance(idempotence, RequestKey):
            is_lines = media_type == NDJSON
            parsed, timed = await parse_marked(producing, body, encoding, self.work, lines=is_lines)
            return await batches_of(producing, log, parsed), timed
        plain = await plain_batches_of(producing, log, body, encoding)
        if plain is None:
            plain = await batches_of(producing, log, await parse_records(producing, body, encoding, self.work))
        return plain, None


async def _partition_produce(
    request: Request, log: PartitionOf, producing: ProducingOf, access: AccessOf, work: WorkOf
) -> PartitionProduce:
    return PartitionProduce(request, log, producing, access, work)


PartitionProduceOf = Annotated[PartitionProduce, Depends(_partition_produce)]


def _answer(result: ProduceResultDocument, *, is_lines: bool = False, is_keyed: bool = False) -> Response:
    """Return the response for one partition."""
    headers = replay_headers([result]) if is_keyed else {}
    content = encode_document(result)
    if is_lines:
        return Response(content + b"\n", 200, headers, media_type=NDJSON)
    return json_answer(content, headers=headers)


# All partitions of a topic


async def produce_in_topic(
    request: Request,
    topic: str,
    producing: Producing,
    parameters: TextProduceParameters,
    forms: Sequence[str],
    key: RequestKey | None,
    work: RequestWork,
) -> Response:
    """Spread the records of the body over the partitions of a topic; ``forms`` are JSON, lines or both.

    Raises:
        Problem: the request is wrong, or all partitions failed: the first error.
        UnknownTopicOrPartitionError: there is no such topic.
    """
    options = parameters.options(producing.engine.capabilities)
    is_lines = content_type(request, forms) == NDJSON
    instance = instance_of(request.scope)
    producing.engine.topic(topic)
    if is_lines and key is None:
        stream = RecordStream(producing, topic, None, options, parameters.encoding, instance)
        return await _streamed(request, stream, options)
    body = await read_limited(request, producing, work)
    if key is None:
        parsed = await parse_records(producing, body, parameters.encoding, work)
        outcomes = await produce_to_topic(producing, topic, parsed, options)
    else:
        parsed, timed = await parse_marked(producing, body, parameters.encoding, work, lines=is_lines)
        outcomes = await produce_keyed_to_topic(producing, topic, parsed, timed, options, key)
    failures = [outcome.problem for outcome in outcomes]
    if outcomes and None not in failures:
        refused = [msgspec.to_builtins(outcome.document(instance)) for outcome in outcomes]
        raise combined_problem(failures, refused)
    results = [outcome.document(instance) for outcome in outcomes]
    status = 207 if any(failures) else 200
    headers = {} if key is None else replay_headers([outcome.result for outcome in outcomes])
    headers |= end_of_unacknowledged(options, failures)
    if is_lines:
        content = b"".join(encode_document(result) + b"\n" for result in results)
        return Response(content, status, headers, media_type=NDJSON)
    document = TopicProduceDocument(results, request_context.throttle_time_ms.get())
    return json_answer(encode_document(document), status=status, headers=headers)


# Bodies and responses of all produce requests


def end_of_unacknowledged(options: AppendOptions, failures: Sequence[Problem | None]) -> dict[str, str]:
    """Return the header that closes the connection, if ``acks=0`` and a part has failed by now (spec A4)."""
    return {"Connection": "close"} if options.acks == "0" and any(failures) else {}


async def read_limited(request: Request, producing: Producing, work: RequestWork) -> bytearray:
    """Read the body within the service's limits. It counts towards the budget of bodies until the request ends."""
    settings = producing.settings
    return await read_body(
        request,
        limit_bytes=settings.request_body_bytes_max,
        decompressed_bytes_max=settings.decompressed_bytes_max,
        budget=producing.body_budget,
        hold=work.hold(producing.body_budget),
    )


async def _allowed_body(
    request: Request, window: Hold, producing: Producing | None = None, producer_id: int | None = None
) -> AsyncIterator[bytes]:
    """Yield a body of any length, and check the sender's rights at each piece: they may change before the body ends.

    ``window`` counts the memory of decoding; the stream releases it.

    Raises:
        Problem: as ``iterate_body``; 401, 403 or 404 once the sender has lost its rights.
    """
    access = await access_of(request)
    resource = topic_resource(request.path_params["topic"])
    async for piece in iterate_body(request, None, window=window):
        access.require_alive()
        access.require(Operation.WRITE, resource)
        if producing is not None and producer_id is not None:
            require_producer(producing, access, producer_id)
        yield piece
        piece = b""  # noqa: PLW2901 - the piece is not held while the next one is awaited


async def _streamed(
    request: Request,
    stream: RecordStream,
    options: AppendOptions,
    producing: Producing | None = None,
    producer_id: int | None = None,
) -> Response:
    """Return the response to a stream of records; ``producer_id`` is the stream's producer, if it has one."""
    # Of a body that is cut off, a part may be in the log; only the stream's response can report it.
    request.scope[ENDS_EARLY] = True
    if "content-length" in request.headers:
        stream.hold_answer()
    running = asyncio.ensure_future(stream.run(_allowed_body(request, stream.window, producing, producer_id)))
    if options.acks == "0":
        await running
    problem = await stream.first()
    if problem is not None:
        await running
        raise problem
    if options.acks == "0":
        return Response(media_type=NDJSON)
    return AcknowledgementStream(stream, running)
