"""Routes that produce and fetch records as lines of JSON, in streams of any length."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from app.access.needs import asks, needs
from app.access.operations import Operation, ResourceKind
from app.fast_path.declarations import answered_on_connection
from app.fast_path.fetch_json import fetch_json
from app.http.negotiation import accept
from app.media_types import NDJSON
from app.openapi.documented_problems import PRODUCE, READ, problems
from app.openapi.documented_records import ACKNOWLEDGED_LINES, FETCHED_LINES, IF_NONE_MATCH, lines_body
from app.paths import RECORD_LINES, TOPIC_RECORD_LINES
from app.problems.problem import MEDIA_TYPE as PROBLEM
from app.quotas.limits import QuotaKind
from app.routes.dependencies import (
    FetchingOf,
    PartitionOf,
    ProducingOf,
    TopicName,
    WorkOf,
    within_fetch_quota,
    within_produce_quota,
)
from app.routes.records.idempotence_headers import IdempotenceOf, TopicKeyOf, no_transactional_id
from app.routes.records.partition_fetch import (
    FAST_PATH_TEXT_PARAMETERS,
    TextFetchParameters,
    answer_of,
    fetch_partition,
)
from app.routes.records.produce_requests import (
    TRANSACTIONS_NEED_A_PARTITION,
    PartitionProduceOf,
    PartitionProduceParameters,
    TextProduceParameters,
    produce_in_topic,
)

_PIECE_BY_PIECE = "a stream of lines is appended piece by piece; send JSON"

router = APIRouter(tags=["records"])


@router.post(
    RECORD_LINES,
    operation_id="produceRecordLines",
    summary="Append lines to a partition",
    response_class=Response,
    responses={200: ACKNOWLEDGED_LINES, **problems(*PRODUCE)},
    openapi_extra=lines_body("ProducedRecord"),
    dependencies=[Depends(within_produce_quota), Depends(no_transactional_id(_PIECE_BY_PIECE))],
)
@needs(Operation.WRITE, ResourceKind.TOPIC)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def produce_record_lines(
    produce: PartitionProduceOf,
    idempotence: IdempotenceOf,
    parameters: Annotated[PartitionProduceParameters, Query()],
) -> Response:
    """Append lines batch by batch while they arrive, and acknowledge each batch with a line.

    With a producer's id, epoch and sequence the stream may be sent again, and continues where it ended. With an
    Idempotency-Key the whole body is one request: all of its records are appended, or none.
    """
    return await produce.run(parameters, [NDJSON], idempotence, encoding=parameters.encoding)


@router.post(
    TOPIC_RECORD_LINES,
    operation_id="produceRecordLinesToTopic",
    summary="Append lines to a topic",
    response_class=Response,
    responses={
        200: ACKNOWLEDGED_LINES,
        207: {**ACKNOWLEDGED_LINES, "description": "Only with an Idempotency-Key: some partitions failed."},
        **problems(*PRODUCE),
    },
    openapi_extra=lines_body("RoutedRecord"),
    dependencies=[Depends(within_produce_quota), Depends(no_transactional_id(TRANSACTIONS_NEED_A_PARTITION))],
)
@needs(Operation.WRITE, ResourceKind.TOPIC)
async def produce_record_lines_to_topic(
    request: Request,
    topic: TopicName,
    producing: ProducingOf,
    key: TopicKeyOf,
    parameters: Annotated[TextProduceParameters, Query()],
    work: WorkOf,
) -> Response:
    """Append lines while they arrive, and acknowledge each batch with a line.

    Each record goes to the partition that it names, or to the partition of its key as Kafka's producers choose it.
    Records with neither go to a partition that changes from time to time.

    With an Idempotency-Key the request may be sent again, and a retry completes a request that was done in part.
    """
    return await produce_in_topic(request, topic, producing, parameters, [NDJSON], key, work)


@router.get(
    RECORD_LINES,
    operation_id="fetchRecordLines",
    summary="Fetch records as lines",
    response_class=Response,
    responses={**FETCHED_LINES, **problems(*READ, "inconsistent_topic_id")},
    openapi_extra=IF_NONE_MATCH,
    dependencies=[Depends(within_fetch_quota)],
)
@answered_on_connection(
    fetch_json,
    accepts={"": NDJSON, "*/*": NDJSON, NDJSON: NDJSON, f"{NDJSON},{PROBLEM}": NDJSON},
    parameters=FAST_PATH_TEXT_PARAMETERS,
    varies=True,
    quota=QuotaKind.FETCH,
    answers_late=answer_of,
)
@needs(Operation.READ, ResourceKind.TOPIC)
async def fetch_record_lines(
    request: Request, log: PartitionOf, fetching: FetchingOf, parameters: Annotated[TextFetchParameters, Query()]
) -> Response:
    """Return one record per line from one start on. With `wait_ms` the request waits until there are some.

    `Next-Offset` is the start of the next fetch.
    """
    return await fetch_partition(request, log, fetching, parameters, accept(request, [NDJSON]))
