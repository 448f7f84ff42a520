"""Route that fetches many partitions in one request."""

from __future__ import annotations

import functools
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from app.access.needs import AccessOf, asks
from app.access.operations import Operation, ResourceKind
from app.event_loop.pools import call_in
from app.fetch.fetch_headers import NO_STORE
from app.fetch.fetching import Fetching
from app.fetch.multi_fetch import ManyFetch, decode_answers
from app.fetch.multi_fetch_answer import (
    ABORTED_COUNT_MAX,
    encode_json,
    frame,
)
from app.fetch.multi_fetch_body import parse_multi_fetch
from app.http.bodies.body import read_body
from app.http.connection.parking import until
from app.http.negotiation import accept, content_type
from app.http.transfer.zero_copy import SliceResponse
from app.media_types import JSON
from app.openapi.documented_problems import MULTI_FETCH, problems
from app.paths import FETCH
from app.problems import kinds, request_context
from app.problems.problem import Problem, instance_of
from app.quotas.throttling import Client
from app.record_json.decoding import DecodingLimits
from app.record_json.work_rooms import TEXT_BYTES_MIN
from app.routes.answers import HeldResponse, request_body
from app.routes.dependencies import FetchingOf, WorkOf, no_old_library, within_fetch_quota
from app.routes.records.partition_fetch import DECODED_BYTES_MAX
from schemas.multi_fetch import MultiFetch, MultiFetchResult
from schemas.records import Encoding

_ALWAYS = {"Cache-Control": NO_STORE, "Vary": "Accept"}
FRAMES = "application/vnd.rollway.multi-fetch"

router = APIRouter(tags=["records"])


_HEADERS = {"Cache-Control": {"description": "no-store.", "schema": {"type": "string"}}}
_SOME_FAILED = {
    "session_id": 0,
    "throttle_time_ms": 0,
    "partitions": [
        {
            "topic": "readings",
            "topic_id": "vbX5CGHpTq2OyL3cZhW1Uw",
            "partition": 7,
            "error": Problem(
                kinds.UNKNOWN_TOPIC_OR_PARTITION, "topic 'readings' has partitions 0 to 0, not 7"
            ).document(FETCH),
            **dict.fromkeys(("log_start_offset", "high_watermark", "last_stable_offset"), -1),
            **dict.fromkeys(("log_end_offset", "next_offset"), -1),
            "records": [],
            "aborted_transactions": [],
            "diverging_epoch": None,
        }
    ],
}


@router.post(
    FETCH,
    operation_id="fetchMany",
    summary="Fetch many partitions",
    response_model=MultiFetchResult,
    responses={
        200: {"description": "The partitions, in the order of reading.", "headers": _HEADERS},
        207: {
            "model": MultiFetchResult,
            "description": "Some partitions have an error instead of records.",
            "headers": _HEADERS,
            "content": {JSON: {"example": _SOME_FAILED}},
        },
        **problems(*MULTI_FETCH),
    },
    openapi_extra=request_body(
        MultiFetch,
        example={"max_wait_ms": 500, "partitions": [{"topic": "readings", "partition": 0, "fetch_offset": 0}]},
    ),
    dependencies=[Depends(no_old_library), Depends(within_fetch_quota)],
)
@asks(Operation.READ, ResourceKind.TOPIC)
async def fetch_many_partitions(request: Request, fetching: FetchingOf, access: AccessOf, work: WorkOf) -> Response:
    """Fetch many partitions with one limit of bytes and one wait, with or without a session (Kafka's Fetch)."""
    media_type = accept(request, [JSON, FRAMES])
    settings = fetching.settings
    limit_bytes = min(settings.control_body_bytes_max, settings.request_body_bytes_max)
    hold = work.hold(fetching.body_budget)
    body = await read_body(request, limit_bytes=limit_bytes, budget=fetching.body_budget, hold=hold)
    content_type(request, [JSON])
    wanted = await work.parse(body, functools.partial(parse_multi_fetch, body))
    hold.release()
    context = fetching.sessions.context(wanted, access.principal)
    bytes_max = fetching.quotas.fetch_bytes_max(Client.of_request(), settings.multi_fetch_bytes_max)
    aborted_count_max: int | None = ABORTED_COUNT_MAX
    if media_type == JSON:
        bytes_max, aborted_count_max = min(bytes_max, DECODED_BYTES_MAX), None
    many = ManyFetch(fetching, wanted, context, access, bytes_max=bytes_max, aborted_count_max=aborted_count_max)
    respond = _respond_json if media_type == JSON else _respond_frames
    waiting = await many.begin()
    if waiting is None:
        return await respond(request, fetching, many, wanted.encoding)

    async def answer(request: Request) -> Response:
        await many.finish()
        return await respond(request, fetching, many, wanted.encoding)

    return await until(request, waiting, answer)


async def _respond_json(request: Request, fetching: Fetching, many: ManyFetch, encoding: Encoding) -> Response:
    throttle_ms = _charge(fetching, many)

    async def attempt(limits: DecodingLimits) -> tuple[bytes, int]:
        await call_in(fetching.pools.read, functools.partial(decode_answers, many.answers, encoding, limits))
        news = many.context.news(many.answers)
        session_id = many.context.sent(news)
        instance = instance_of(request.scope)
        encode = functools.partial(encode_json, news, session_id, instance, throttle_time_ms=throttle_ms)
        return await call_in(fetching.pools.read, encode), _status(news)

    (content, status), hold = await fetching.rooms.decode(attempt)
    hold.settle(len(content), always_bytes=TEXT_BYTES_MIN)
    fetching.count_fetched("json", len(content))
    return HeldResponse(content, _ALWAYS, JSON, hold, status)


async def _respond_frames(_: Request, fetching: Fetching, many: ManyFetch, __: Encoding) -> Response:
    throttle_ms = _charge(fetching, many)
    framed = await call_in(fetching.pools.read, functools.partial(frame, many.context.news(many.answers)))
    session_id = many.context.sent(framed.answers)
    headers = {**_ALWAYS, "Fetch-Session-Id": str(session_id), "Throttle-Time-Ms": str(throttle_ms), **framed.headers}
    response = SliceResponse(framed.parts, headers, FRAMES, _status(framed.answers))
    fetching.count_fetched("frames", response.size_bytes)
    return response


def _charge(fetching: Fetching, many: ManyFetch) -> int:
    """Count the bytes read against the client's quota; return the throttle time in milliseconds.

    If they exceed the quota, the response has no partitions (spec D4).
    """
    throttle_ms = fetching.quotas.charge_fetch(Client.of_request(), sum(answer.size_bytes for answer in many.answers))
    if throttle_ms:
        request_context.throttle(throttle_ms)
        many.answers = []
    return throttle_ms


def _status(answers: list[Any]) -> int:
    return 207 if any(answer.error is not None for answer in answers) else 200
