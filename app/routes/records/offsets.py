"""Routes that find offsets by time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from app.access.needs import AccessOf, asks, needs
from app.access.operations import Operation, ResourceKind
from app.fetch.offset_lookup import find_offset, find_offsets
from app.openapi.documented_problems import BODY, EPOCH, NAMED, problems
from app.paths import OFFSETS, PARTITION_OFFSETS
from app.problems.problem import instance_of
from app.record_json.record_documents import encode_document
from app.routes.answers import combined_problem, json_answer, request_body
from app.routes.dependencies import CurrentLeaderEpoch, FetchingOf, IsolationParameter, PartitionOf, json_body
from schemas.offsets import OffsetAnswer, OffsetQueries, OffsetResults, TimeOrPlaceParameter

router = APIRouter(tags=["offsets"])


@router.get(
    PARTITION_OFFSETS,
    operation_id="getOffset",
    summary="Find an offset by time",
    responses=problems(*NAMED, *EPOCH, "offset_not_available", "stored_data_corrupt"),
)
@needs(Operation.DESCRIBE, ResourceKind.TOPIC)
async def get_offset(
    log: PartitionOf,
    fetching: FetchingOf,
    timestamp: Annotated[
        TimeOrPlaceParameter,
        Query(
            description="A time in milliseconds since the epoch or in RFC 3339; or earliest, latest, max_timestamp.",
            examples=["earliest"],
        ),
    ],
    isolation: IsolationParameter = "read_uncommitted",
    current_leader_epoch: CurrentLeaderEpoch = None,
) -> OffsetAnswer:
    """Find the first visible record at or after a time. Offset and timestamp are null if there is none."""
    return await find_offset(fetching, log, timestamp, isolation, current_leader_epoch)


@router.post(
    OFFSETS,
    operation_id="findOffsets",
    summary="Find many offsets by time",
    response_model=OffsetResults,
    responses={
        207: {"model": OffsetResults, "description": "Some queries failed; each query has a result or an error."},
        **problems(*BODY, *NAMED, *EPOCH, "offset_not_available", "stored_data_corrupt"),
    },
    openapi_extra=request_body(
        OffsetQueries, example={"queries": [{"topic": "readings", "partition": 0, "timestamp": "2024-05-01T12:05:00Z"}]}
    ),
)
@asks(Operation.DESCRIBE, ResourceKind.TOPIC)
async def find_many_offsets(
    request: Request,
    fetching: FetchingOf,
    access: AccessOf,
    questions: Annotated[OffsetQueries, Depends(json_body(OffsetQueries))],
) -> Response:
    """Find one offset for each query; the results have the order of the queries.

    If all queries fail, the response is the first error.
    """
    results, failures = await find_offsets(
        fetching, access, questions.queries, instance_of(request.scope), questions.isolation
    )
    if None not in failures:
        raise combined_problem(failures, results)
    return json_answer(encode_document({"results": results}), status=207 if any(failures) else 200)
