"""Routes that return one record, or its value as bytes."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from app.access.needs import needs
from app.access.operations import Operation, ResourceKind
from app.engine.partitions import Partition
from app.engine.reading import Read
from app.fetch.fetch_headers import IMMUTABLE, NO_STORE, RECORD_FORM, is_durable
from app.fetch.fetched_records import ISOLATIONS, read_record, read_value
from app.fetch.fetching import Fetching
from app.http.bodies.byte_budget import Hold
from app.http.methods import sends_body
from app.http.value_range import requested_range
from app.media_types import JSON
from app.openapi.documented_problems import READ, problems
from app.paths import RECORD, RECORD_VALUE
from app.problems import kinds, request_context
from app.problems.problem import Problem
from app.quotas.limits import QuotaKind
from app.quotas.throttling import Client
from app.record_json.work_rooms import TEXT_BYTES_MIN
from app.routes.answers import HeldResponse
from app.routes.dependencies import FetchingOf, OffsetInPath, PartitionOf, no_old_library, within_fetch_quota
from app.routes.records.partition_fetch import is_match
from schemas.offsets import Isolation
from schemas.records import Encoding, FetchedRecord

router = APIRouter(tags=["records"])

OneRecordIsolation = Annotated[
    Isolation,
    Query(description="read_committed: 416 at or above the last stable offset, 404 if its transaction was aborted."),
]


def _text_header(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string"}}


def _request_header(name: str, description: str, example: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string"},
        "example": example,
    }


_CACHE_CONTROL = _text_header(
    "immutable for a minute once the record is durable; then revalidate with If-None-Match. no-store before."
)
_RECORD_HEADERS = {"ETag": _text_header("Tag of the record, once it is durable."), "Cache-Control": _CACHE_CONTROL}
_IF_NONE_MATCH = _request_header(
    "If-None-Match", "ETags of cached responses; 304 if the response would have one of them.", '"..."'
)
_VALUE_HEADERS = {
    "ETag": _text_header("Tag of the value."),
    "Cache-Control": _CACHE_CONTROL,
    "Accept-Ranges": _text_header("bytes."),
    "Record-Timestamp": {
        "description": "Timestamp of the record, in milliseconds since the epoch; -1: none.",
        "schema": {"type": "integer", "format": "int64", "minimum": -1},
    },
}
_BYTES = {"type": "string", "format": "binary"}
_ONE_RECORD = (*READ, "record_not_found")


@router.get(
    RECORD,
    operation_id="getRecord",
    summary="Get one record",
    response_model=FetchedRecord,
    responses={
        200: {"description": "The record.", "headers": _RECORD_HEADERS},
        304: {"description": "If-None-Match has the record's ETag.", "headers": _RECORD_HEADERS},
        **problems(*_ONE_RECORD, "client_too_old"),
    },
    openapi_extra={"parameters": [_IF_NONE_MATCH]},
    dependencies=[Depends(no_old_library), Depends(within_fetch_quota)],
)
@needs(Operation.READ, ResourceKind.TOPIC)
async def get_record(
    request: Request,
    log: PartitionOf,
    offset: OffsetInPath,
    fetching: FetchingOf,
    encoding: Annotated[Encoding, Query(description="Form of key and value in JSON, as in fetchRecords.")] = "utf8",
    isolation: OneRecordIsolation = "read_uncommitted",
) -> Response:
    """Return the record at an offset. Offsets at or above the high watermark are not readable."""
    pending = await fetching.engine.reads.begin(log, _read_of(offset, isolation))
    read = functools.partial(read_record, encoding=encoding, partition=log.name.partition)
    content, hold = await fetching.rooms.decode(lambda limits: pending.outcome(functools.partial(read, limits=limits)))
    with hold.released_on_error():
        if content is None:
            raise _no_record(offset)
        hold.settle(len(content), always_bytes=TEXT_BYTES_MIN)
        response = _record_response(request, log, offset, encoding, content, hold)
    return _charged(request, fetching, "json", response, hold)


def _read_of(offset: int, isolation: Isolation) -> Read:
    """Return the read of the one record at ``offset``."""
    return Read(
        offset=offset,
        end_offset=offset + 1,
        max_records=1,
        max_bytes=0,
        isolation=ISOLATIONS[isolation],
        below_bound=True,
    )


def _record_response(
    request: Request, log: Partition, offset: int, encoding: Encoding, content: bytes, hold: Hold
) -> Response:
    """Return the record; or 304 if the client has it already."""
    headers = {"Cache-Control": NO_STORE}
    if is_durable(log, offset + 1):
        etag = f'"{log.topic_id}-{log.name.partition}-{offset}-record;{encoding};{RECORD_FORM}"'
        headers = {"ETag": etag, "Cache-Control": IMMUTABLE}
        if is_match(request, etag):
            return Response(status_code=304, headers={**headers, "Vary": "Accept-Encoding"})
    return HeldResponse(content, headers, JSON, hold)


@router.get(
    RECORD_VALUE,
    operation_id="getRecordValue",
    summary="Get one record's value",
    response_class=Response,
    responses={
        200: {
            "description": "The bytes of the value.",
            "headers": _VALUE_HEADERS,
            "content": {"application/octet-stream": {"schema": _BYTES, "example": "21.5"}},
        },
        204: {"description": "The value is null: a tombstone.", "headers": _VALUE_HEADERS},
        206: {
            "description": "The bytes of the value in Range.",
            "headers": {**_VALUE_HEADERS, "Content-Range": _text_header("Range of these bytes, and the value's size.")},
            "content": {"application/octet-stream": {"schema": _BYTES, "example": "21"}},
        },
        304: {"description": "If-None-Match has the value's ETag.", "headers": _VALUE_HEADERS},
        **problems(*_ONE_RECORD, "range_not_satisfiable"),
    },
    openapi_extra={
        "parameters": [
            _request_header("Range", "One range of bytes.", "bytes=0-1023"),
            _request_header("If-Range", "ETag that Range belongs to; if it differs, the whole value.", '"..."'),
            _IF_NONE_MATCH,
        ]
    },
    dependencies=[Depends(within_fetch_quota)],
)
@needs(Operation.READ, ResourceKind.TOPIC)
async def get_record_value(
    request: Request,
    log: PartitionOf,
    offset: OffsetInPath,
    fetching: FetchingOf,
    isolation: OneRecordIsolation = "read_uncommitted",
) -> Response:
    """Return the bytes of the record's value, with Range and ETag."""
    pending = await fetching.engine.reads.begin(log, _read_of(offset, isolation))
    found, hold = await fetching.rooms.decode(
        lambda limits: pending.outcome(functools.partial(read_value, limits=limits))
    )
    with hold.released_on_error():
        if found is None:
            raise _no_record(offset)
        response = _value_response(request, log, offset, found, hold)
    return _charged(request, fetching, "value", response, hold)


def _value_response(
    request: Request, log: Partition, offset: int, found: tuple[bytes | None, int], hold: Hold
) -> Response:
    """Return the value or the range of it; 204 if it is null, 304 if the client has it already.

    Raises:
        Problem: 416 if the range is outside the value; 503 if all responses together hold too much memory.
    """
    value, timestamp = found
    etag = f'"{log.topic_id}-{log.name.partition}-{offset}-value"'
    headers = {
        "ETag": etag,
        "Cache-Control": IMMUTABLE if is_durable(log, offset + 1) else NO_STORE,
        "Accept-Ranges": "bytes",
        "Record-Timestamp": str(timestamp),
    }
    if value is None:
        return Response(status_code=204, headers=headers)
    if is_match(request, etag):
        return Response(status_code=304, headers=headers)
    part = requested_range(request.headers.get("range"), request.headers.get("if-range"), etag, len(value))
    media_type = "application/octet-stream"
    if part is not None:
        headers["Content-Range"] = part.content_range(len(value))
        value = value[part.start : part.end]
    hold.settle(len(value), always_bytes=TEXT_BYTES_MIN)
    return HeldResponse(value, headers, media_type, hold, 200 if part is None else 206)


def _charged(request: Request, fetching: Fetching, form: str, response: Response, hold: Hold) -> Response:
    """Return the response. One with a record is counted against the fetch quota; for any other the hold is released.

    A client that exceeds the quota must wait before its next request.
    """
    if not isinstance(response, HeldResponse):
        hold.release()
    elif sends_body(request.scope):
        size_bytes = len(response.body)
        fetching.count_fetched(form, size_bytes)
        request_context.throttle(fetching.quotas.charge(QuotaKind.FETCH, Client.of_request(), size_bytes))
    return response


def _no_record(offset: int) -> Problem:
    return Problem(kinds.RECORD_NOT_FOUND, f"the log has no record at offset {offset}")
