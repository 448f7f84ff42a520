"""Routes that fetch records of one partition, in the media type that Accept prefers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from app.access.needs import needs
from app.access.operations import Operation, ResourceKind
from app.fast_path.declarations import answered_on_connection
from app.fast_path.fetch import fetch_batches
from app.fast_path.fetch_json import fetch_json
from app.http.negotiation import accept
from app.media_types import JSON, MESSAGE_SET, NDJSON, RECORD_BATCHES
from app.openapi.documented_problems import READ, problems
from app.openapi.documented_records import FETCHED_JSON, IF_NONE_MATCH
from app.paths import RECORDS
from app.quotas.limits import QuotaKind
from app.routes.dependencies import FetchingOf, PartitionOf, no_old_library, within_fetch_quota
from app.routes.records.partition_fetch import (
    FAST_PATH_BATCHES_PARAMETERS,
    FAST_PATH_TEXT_PARAMETERS,
    AnyFetchParameters,
    answer_of,
    fetch_partition,
)
from schemas.records import FetchResult

router = APIRouter(tags=["records"])


@router.get(
    RECORDS,
    operation_id="fetchRecords",
    summary="Fetch records",
    response_model=FetchResult,
    responses={**FETCHED_JSON, **problems(*READ, "inconsistent_topic_id", "client_too_old")},
    openapi_extra=IF_NONE_MATCH,
    dependencies=[Depends(no_old_library), Depends(within_fetch_quota)],
)
@answered_on_connection(
    fetch_batches,
    accepts={RECORD_BATCHES: RECORD_BATCHES},
    parameters=[*FAST_PATH_BATCHES_PARAMETERS, "encoding"],
    varies=True,
    quota=QuotaKind.FETCH,
    sends_files=True,
    answers_late=answer_of,
)
@answered_on_connection(
    fetch_json,
    accepts={"": JSON, "*/*": JSON, JSON: JSON, NDJSON: NDJSON},
    parameters=FAST_PATH_TEXT_PARAMETERS,
    varies=True,
    quota=QuotaKind.FETCH,
    answers_late=answer_of,
)
@needs(Operation.READ, ResourceKind.TOPIC)
async def fetch_records(
    request: Request, log: PartitionOf, fetching: FetchingOf, parameters: Annotated[AnyFetchParameters, Query()]
) -> Response:
    """Return records from one start on. With `wait_ms` the request waits until there are some.

    Accept may also name the media types of `record-batches` and `record-lines`, which have paths of their own.
    """
    media_type = accept(request, [JSON, NDJSON, RECORD_BATCHES, MESSAGE_SET])
    return await fetch_partition(request, log, fetching, parameters, media_type)


@router.head(RECORDS, include_in_schema=False, dependencies=[Depends(no_old_library), Depends(within_fetch_quota)])
@needs(Operation.READ, ResourceKind.TOPIC)
async def head_records(
    request: Request, log: PartitionOf, fetching: FetchingOf, parameters: Annotated[AnyFetchParameters, Query()]
) -> Response:
    """Return the headers that fetchRecords would return, without the records."""
    return await fetch_records(request, log, fetching, parameters)
