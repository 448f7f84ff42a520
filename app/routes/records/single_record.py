"""One record, and its value as bytes."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from app.access.needs import needs
from app.access.operations import Operation, ResourceKind
from app.fetch.fetch_headers import IMMUTABLE, NO_STORE, RECORD_FORM, is_durable
from app.fetch.fetch_range import ISOLATIONS, read_record, read_value
from app.fetch.fetching import Fetching
from app.http.bodies.byte_budget import Hold
from app.http.methods import sends_body
from app.http.value_range import requested_range
from app.media_types import JSON
from app.openapi.documented_problems import READ, problems
from app.paths import RECORD, RECORD_VALUE
from app.problems import request_context
from app.problems.problems import Problem
from app.quotas.limits import QuotaKind
from app.quotas.throttling import Client
from app.record_json.work_rooms import TEXT_BYTES_MIN
from app.routes.answers import HeldResponse
from app.routes.dependencies import FetchingOf, LogOf, OffsetInPath, no_old_library, within_fetch_quota
from app.routes.records.partition_fetch import is_match
from schemas.offsets import Isolation
from schemas.records import Encoding, FetchedRecord
from storage.log.partition_log import PartitionLog
from storage.offsets import Offset

router = APIRouter(tags=["records"])

OneRecordIsolation = Annotated[
    Isolation, Query(description="read_committed: 416 at and above the last stable offset, 404 if it was aborted.")
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
    "immutable for a minute once it is durable, then ask again with If-None-Match; no-store before."
)
_RECORD_HEADERS = {"ETag": _text_header("Names the record, once it is durable."), "Cache-Control": _CACHE_CONTROL}
_IF_NONE_MATCH = _request_header("If-None-Match", "ETags of answers that are known: 304 for one of them.", '"..."')
_VALUE_HEADERS = {
    "ETag": _text_header("Names the value."),
    "Cache-Control": _CACHE_CONTROL,
    "Accept-Ranges": _text_header("bytes."),
    "Record-Timestamp": {
        "description": "The record's timestamp in ms; -1: none.",
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
        304: {"description": "The record is as If-None-Match says.", "headers": _RECORD_HEADERS},
        **problems(*_ONE_RECORD, "client_too_old"),
    },
    openapi_extra={"parameters": [_IF_NONE_MATCH]},
    dependencies=[Depends(no_old_library), Depends(within_fetch_quota)],
)
@needs(Operation.READ, ResourceKind.TOPIC)
async def get_record(
    request: Request,
    log: LogOf,
    offset: OffsetInPath,
    fetching: FetchingOf,
    encoding: Annotated[Encoding, Query(description="How key and value are shown; as in a fetch of many.")] = "utf8",
    isolation: OneRecordIsolation = "read_uncommitted",
) -> Response:
    """The record at an offset that consumers may read."""
    snapshot = log.snapshot
    bound = ISOLATIONS[isolation]
    fetching.check_readable(log, snapshot, offset, bound)
    read = functools.partial(
        read_record, snapshot, Offset(offset), encoding=encoding, partition=log.name.partition, isolation=bound
    )
    content, hold = await fetching.rooms.decode(
        lambda limits: fetching.engine.read(functools.partial(read, limits=limits))
    )
    with hold.released_on_error():
        if content is None:
            raise _no_record(offset)
        hold.settle(len(content), always_bytes=TEXT_BYTES_MIN)
        response = _record_response(request, log, offset, encoding, content, hold)
    if not isinstance(response, HeldResponse):
        hold.release()
        return response
    _charge(request, fetching, "json", len(response.body))
    return response


def _record_response(
    request: Request, log: PartitionLog, offset: int, encoding: Encoding, content: bytes, hold: Hold
) -> Response:
    """The record, or that it is as the client knows it."""
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
            "description": "The value's bytes.",
            "headers": _VALUE_HEADERS,
            "content": {"application/octet-stream": {"schema": _BYTES, "example": "21.5"}},
        },
        204: {"description": "The value is null: a tombstone.", "headers": _VALUE_HEADERS},
        206: {
            "description": "The part that Range asks for.",
            "headers": {**_VALUE_HEADERS, "Content-Range": _text_header("Which bytes, of how many.")},
            "content": {"application/octet-stream": {"schema": _BYTES, "example": "21"}},
        },
        304: {"description": "The value is as If-None-Match says.", "headers": _VALUE_HEADERS},
        **problems(*_ONE_RECORD, "range_not_satisfiable"),
    },
    openapi_extra={
        "parameters": [
            _request_header("Range", "One range of bytes.", "bytes=0-1023"),
            _request_header("If-Range", "The ETag Range is meant for; the whole value when it is another.", '"..."'),
            _IF_NONE_MATCH,
        ]
    },
    dependencies=[Depends(within_fetch_quota)],
)
@needs(Operation.READ, ResourceKind.TOPIC)
async def get_record_value(
    request: Request,
    log: LogOf,
    offset: OffsetInPath,
    fetching: FetchingOf,
    isolation: OneRecordIsolation = "read_uncommitted",
) -> Response:
    """The value as it is, with Range and ETag."""
    snapshot = log.snapshot
    bound = ISOLATIONS[isolation]
    fetching.check_readable(log, snapshot, offset, bound)
    read = functools.partial(read_value, snapshot, Offset(offset), bound)
    found, hold = await fetching.rooms.decode(
        lambda limits: fetching.engine.read(functools.partial(read, limits=limits))
    )
    with hold.released_on_error():
        if found is None:
            raise _no_record(offset)
        response = _value_response(request, log, offset, found, hold)
    if not isinstance(response, HeldResponse):
        hold.release()
        return response
    _charge(request, fetching, "value", len(response.body))
    return response


def _value_response(
    request: Request, log: PartitionLog, offset: int, found: tuple[bytes | None, int], hold: Hold
) -> Response:
    """The value, the part of it that Range asks for, or that there is nothing to send.

    Raises:
        Problem: 416; 503 when all answers together hold too much.
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


def _charge(request: Request, fetching: Fetching, form: str, size_bytes: int) -> None:
    """Count an answer that cannot be empty: who breaks the quota with it waits before the next."""
    if sends_body(request.scope):
        fetching.count_fetched(form, size_bytes)
        request_context.throttle(fetching.quotas.charge(QuotaKind.FETCH, Client.of_request(), size_bytes))


def _no_record(offset: int) -> Problem:
    return Problem(404, "record_not_found", f"the log has no record at offset {offset}")
