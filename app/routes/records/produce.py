"""Route that produces to many partitions in one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from app.access.needs import AccessOf, asks
from app.access.operations import Operation, ResourceKind
from app.engine.appending import AppendOptions
from app.http.negotiation import content_type
from app.media_types import JSON
from app.openapi.documented_problems import PRODUCE, TRANSACTION, problems
from app.openapi.documented_records import REPLAYED
from app.paths import PRODUCE as PRODUCE_PATH
from app.problems import kinds, request_context
from app.problems.problem import Fault, instance_of, invalid
from app.produce.idempotence import replay_headers
from app.produce.keyed_parts import keyed_parts
from app.produce.produce_body import ProduceRequest
from app.produce.produce_dispatch import (
    PartOutcome,
    PartsProduceDocument,
    parse_request,
    produce_parts,
    produce_parts_atomically,
    produce_parts_keyed,
)
from app.record_json.record_documents import encode_document
from app.record_json.translate import TIME_ABSENT
from app.routes.answers import combined_problem, json_answer
from app.routes.dependencies import ProducingOf, WorkOf, no_old_library, within_produce_quota
from app.routes.records.idempotence_headers import RequestKeyOf, no_transactional_id, refused_header
from app.routes.records.produce_requests import TextProduceParameters, end_of_unacknowledged, read_limited
from schemas.base import FlagParameter
from schemas.produce import PartsProduceResult

router = APIRouter(tags=["records"])


class PartsProduceParameters(TextProduceParameters):
    """The query of a produce request to many partitions."""

    atomic: Annotated[
        FlagParameter,
        Field(
            description="Make the request a transaction: readers of committed records see all of its records or none. "
            "Not with acks=0, and not in a producer's own transaction."
        ),
    ] = False


_EXAMPLE = {
    "partitions": [
        {"topic": "readings", "partition": 0, "records": [{"key": "kitchen", "value": "21.5"}]},
        {"topic": "readings", "partition": 1, "records": [{"key": "cellar", "value": "14.0"}]},
    ]
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {"$ref": "#/components/schemas/PartsToProduce"},
                "example": _EXAMPLE,
            }
        },
    }
}


@router.post(
    PRODUCE_PATH,
    operation_id="produce",
    summary="Append records to many partitions",
    response_model=PartsProduceResult,
    responses={
        200: {"description": "Every part of the request was appended.", "headers": REPLAYED},
        207: {"model": PartsProduceResult, "description": "Some parts failed; each part has a result or an error."},
        **problems(*PRODUCE, *TRANSACTION, "transaction_aborted"),
    },
    openapi_extra=_BODY,
    dependencies=[
        Depends(no_old_library),
        Depends(within_produce_quota),
        Depends(no_transactional_id("give transactional_id in the body")),
    ],
)
@asks(Operation.WRITE, ResourceKind.TOPIC)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def produce(
    request: Request,
    producing: ProducingOf,
    access: AccessOf,
    key: RequestKeyOf,
    parameters: Annotated[PartsProduceParameters, Query()],
    work: WorkOf,
) -> Response:
    """Append each part to its partition; return one result or error for each part, in the order of the request.

    A part that fails does not stop the other parts. All records of a part are appended, or none. If all parts fail,
    the response is the first error, with all errors in `results`. `timeout_ms` is for all parts together: a part that
    is not acknowledged in time gets `request_timed_out`, and its append goes on.

    With `atomic=true` the request is a transaction: 200 means that it is committed in all partitions. Otherwise it is
    committed in none, and the response is the first refusal, with all parts in `results`.

    With an Idempotency-Key the request may be sent again, and a retry completes a request that was done in part. The
    header cannot be combined with `atomic=true`.
    """
    options = parameters.options(producing.engine.capabilities)
    content_type(request, [JSON])
    instance = instance_of(request.scope)
    if parameters.atomic and key is not None:
        detail = "not with atomic=true; send it without atomic, or use a transaction of a producer"
        raise refused_header("Idempotency-Key", detail, code="unsupported_header")
    body = await read_limited(request, producing, work)
    parts = await parse_request(producing, body, parameters.encoding, work, now_ms=None if key is None else TIME_ABSENT)
    if key is not None:
        keyed = await keyed_parts(producing, key, parts, len(body))
        outcomes, is_committed = await produce_parts_keyed(producing, access, parts, options, keyed), True
    elif parameters.atomic:
        _check_atomic(parts, options)
        outcomes, is_committed = await produce_parts_atomically(producing, access, parts, options)
    else:
        outcomes, is_committed = await produce_parts(producing, access, parts, options), True
    failures = [outcome.problem for outcome in outcomes]
    if not is_committed:
        # Refusals come before the parts that failed because of them.
        failures.sort(key=lambda problem: problem is not None and problem.kind is kinds.TRANSACTION_ABORTED)
    if outcomes and None not in failures:
        raise combined_problem(failures, [msgspec.to_builtins(outcome.document(instance)) for outcome in outcomes])
    document = PartsProduceDocument(
        [outcome.document(instance) for outcome in outcomes], request_context.throttle_time_ms.get()
    )
    headers = {} if key is None else _replay_headers(outcomes)
    headers |= end_of_unacknowledged(options, failures)
    return json_answer(encode_document(document), status=207 if any(failures) else 200, headers=headers)


def _replay_headers(outcomes: Sequence[PartOutcome]) -> dict[str, str]:
    """Return ``replay_headers`` of the parts with records. Parts without records append nothing, so never replay."""
    results = [outcome.result for outcome in outcomes if outcome.result is None or outcome.result.record_count]
    return replay_headers(results)


def _check_atomic(parts: ProduceRequest, options: AppendOptions) -> None:
    """Refuse a request that cannot be a transaction of its own.

    Raises:
        Problem: 422.
    """
    detail = None
    if options.acks == "0":
        detail = "acks=0 waits for nothing, but only the answer tells whether the request was committed"
    elif parts.transactional_id is not None or any(part.stamp is not None for part in parts.parts):
        detail = "the request has a producer; its own transaction is the atomic one then"
    if detail is not None:
        raise invalid([Fault("atomic", "invalid_value", detail)])
