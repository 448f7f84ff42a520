"""Producing to many topic-partitions in one request."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from app.access.needs import AccessOf, asks
from app.access.operations import Operation, ResourceKind
from app.answers import combined_problem, json_answer
from app.dependencies import JSON, BrokerOf
from app.documented_problems import PRODUCE, TRANSACTION, problems
from app.http import request_context
from app.http.negotiation import content_type
from app.http.problems import Problem, instance_of
from app.idempotence_headers import no_idempotence_headers
from app.paths import PRODUCE as PRODUCE_PATH
from app.produce_dispatch import PartsProduceDocument, parse_request, produce_parts
from app.routes.records import ProduceParameters, accepted, read_limited
from app.translate import encode_document
from schemas.base import FlagParameter
from schemas.produce import PartsProduceResult

router = APIRouter(tags=["records"])


class PartsProduceParameters(ProduceParameters):
    """The query of a produce request to many partitions."""

    atomic: Annotated[
        FlagParameter,
        Field(description="Append to all partitions or to none, as one transaction. Not offered yet."),
    ] = False


_EXAMPLE = {
    "partitions": [
        {"topic": "flights", "partition": 0, "records": [{"key": "AA", "value": "flight 1141 to MIA"}]},
        {"topic": "flights", "partition": 1, "records": [{"key": "UA", "value": "flight 1545 to IAH"}]},
    ]
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "anyOf": [
                        {"$ref": "#/components/schemas/PartsToProduce"},
                        {"$ref": "#/components/schemas/JsonPartsToProduce"},
                    ]
                },
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
        200: {"description": "Every part of the request was appended."},
        202: {
            "description": "Accepted, with acks=0; no result. With Connection: close when a part has failed already."
        },
        207: {"model": PartsProduceResult, "description": "Some parts failed; each has a result or an error."},
        **problems(*PRODUCE, *TRANSACTION),
    },
    openapi_extra=_BODY,
    dependencies=[Depends(no_idempotence_headers)],
)
@asks(Operation.WRITE, ResourceKind.TOPIC)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def produce(
    request: Request,
    broker: BrokerOf,
    access: AccessOf,
    parameters: Annotated[PartsProduceParameters, Query()],
) -> Response:
    """One result or error for each part, in the order of the request; a part that fails stops no other.

    The records of a part are appended whole or not at all. When all parts fail, the first error is the answer, with
    all of them in `results`. `timeout_ms` is for all parts together: what is not acknowledged by then is answered with
    `request_timed_out`, and stays.
    """
    options = parameters.options()
    if parameters.atomic:
        raise _no_atomic_requests()
    content_type(request, [JSON])
    instance = instance_of(request.scope)
    parts = await parse_request(broker, await read_limited(request, broker), parameters.encoding)
    outcomes = await produce_parts(broker, access, parts, options)
    failures = [outcome.problem for outcome in outcomes]
    if outcomes and None not in failures:
        raise combined_problem(failures, [msgspec.to_builtins(outcome.document(instance)) for outcome in outcomes])
    if options.acks == "0":
        return accepted(failures)
    document = PartsProduceDocument(
        [outcome.document(instance) for outcome in outcomes], request_context.throttle_time_ms.get()
    )
    return json_answer(encode_document(document), status=207 if any(failures) else 200)


def _no_atomic_requests() -> Problem:
    """The hook of ``atomic=true``: a transaction of its own around ``produce_parts``."""
    detail = "not offered yet; use a transactional_id"
    fault = {"pointer": "atomic", "code": "invalid_value", "detail": detail}
    return Problem(422, "invalid_request", f"atomic: {detail}", errors=[fault])
