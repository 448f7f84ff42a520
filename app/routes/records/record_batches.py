"""Routes that produce and fetch record batches of one partition in their stored form, byte for byte."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from app.access.needs import asks, needs
from app.access.operations import Operation, ResourceKind
from app.fast_path.declarations import answered_on_connection
from app.fast_path.fetch import fetch_batches
from app.fast_path.produce import BODY_BYTES_MAX, LARGE_BODY_BYTES_MAX, produce_batches
from app.http.negotiation import accept
from app.media_types import OCTETS
from app.media_types import RECORD_BATCHES as BATCHES
from app.openapi.documented_problems import PRODUCE, READ, problems
from app.openapi.documented_records import APPENDED, BATCHES_BODY, FETCHED_BATCHES, IF_NONE_MATCH
from app.paths import RECORD_BATCHES
from app.problems.problem import MEDIA_TYPE as PROBLEM
from app.quotas.limits import QuotaKind
from app.routes.dependencies import (
    FetchingOf,
    PartitionOf,
    TransactionalIdHeader,
    within_fetch_quota,
    within_produce_quota,
)
from app.routes.records.idempotence_headers import BatchesKeyOf
from app.routes.records.partition_fetch import FAST_PATH_BATCHES_PARAMETERS, FetchParameters, answer_of, fetch_partition
from app.routes.records.produce_requests import (
    FAST_PATH_PARTITION_PARAMETERS,
    BatchProduceParameters,
    PartitionProduceOf,
)
from schemas.records import ProduceResult

router = APIRouter(tags=["records"])


@router.post(
    RECORD_BATCHES,
    operation_id="produceRecordBatches",
    summary="Append record batches to a partition",
    response_model=ProduceResult,
    responses={200: APPENDED, **problems(*PRODUCE)},
    openapi_extra=BATCHES_BODY,
    dependencies=[Depends(within_produce_quota)],
)
@answered_on_connection(
    produce_batches,
    content_types=[BATCHES, OCTETS, ""],
    parameters=FAST_PATH_PARTITION_PARAMETERS,
    takes_key=True,
    quota=QuotaKind.PRODUCE,
    charges_quota=True,
    body_bytes_max=BODY_BYTES_MAX,
    large_bytes_max=LARGE_BODY_BYTES_MAX,
)
@needs(Operation.WRITE, ResourceKind.TOPIC)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def produce_record_batches(
    produce: PartitionProduceOf,
    key: BatchesKeyOf,
    parameters: Annotated[BatchProduceParameters, Query()],
    transactional_id: TransactionalIdHeader,
) -> Response:
    """Append all batches of the request at consecutive offsets, or none.

    The batches are stored byte for byte, except for offsets and leader epoch, unless the topic's `compression.type`
    requires another codec. With an Idempotency-Key, or with batches of an idempotent producer, the request may be sent
    again.
    """
    forms = [BATCHES, OCTETS]
    return await produce.run(parameters, forms, key, transactional_id=transactional_id, absent_form=OCTETS)


@router.get(
    RECORD_BATCHES,
    operation_id="fetchRecordBatches",
    summary="Fetch record batches",
    response_class=Response,
    responses={**FETCHED_BATCHES, **problems(*READ, "inconsistent_topic_id")},
    openapi_extra=IF_NONE_MATCH,
    dependencies=[Depends(within_fetch_quota)],
)
@answered_on_connection(
    fetch_batches,
    accepts={
        "": OCTETS,
        "*/*": OCTETS,
        OCTETS: OCTETS,
        BATCHES: BATCHES,
        # Accept of clients made by openapi-generator: in Python and Java, and in Go.
        PROBLEM: OCTETS,
        f"{OCTETS},{PROBLEM}": OCTETS,
    },
    parameters=FAST_PATH_BATCHES_PARAMETERS,
    varies=True,
    quota=QuotaKind.FETCH,
    sends_files=True,
    answers_late=answer_of,
)
@needs(Operation.READ, ResourceKind.TOPIC)
async def fetch_record_batches(
    request: Request, log: PartitionOf, fetching: FetchingOf, parameters: Annotated[FetchParameters, Query()]
) -> Response:
    """Return whole record batches in their stored form. With `wait_ms` the request waits until there are some.

    The response is `application/octet-stream`, or `application/vnd.kafka.record-batch.v2` if Accept prefers that. The
    bytes are the same.
    """
    return await fetch_partition(request, log, fetching, parameters, accept(request, [OCTETS, BATCHES]))
