"""Routes that produce records in the media type of Content-Type."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from app.access.needs import asks, needs
from app.access.operations import Operation, ResourceKind
from app.fast_path.declarations import answered_on_connection
from app.fast_path.produce import BODY_BYTES_MAX, LARGE_BODY_BYTES_MAX, produce_batches
from app.fast_path.produce_json import BODY_BYTES_MAX as FAST_PATH_JSON_BYTES_MAX
from app.fast_path.produce_json import PLAIN_BODY_BYTES_MAX as PLAIN_JSON_BYTES_MAX
from app.fast_path.produce_json import produce_json
from app.media_types import JSON, MESSAGE_SET, NDJSON, RECORD_BATCHES
from app.openapi.documented_problems import PRODUCE, problems
from app.openapi.documented_records import APPENDED, json_body
from app.paths import RECORDS, TOPIC_RECORDS
from app.quotas.limits import QuotaKind
from app.routes.dependencies import (
    ProducingOf,
    TopicName,
    TransactionalIdHeader,
    WorkOf,
    no_old_library,
    within_produce_quota,
)
from app.routes.records.idempotence_headers import IdempotenceOf, TopicKeyOf, no_transactional_id
from app.routes.records.produce_requests import (
    FAST_PATH_PARTITION_PARAMETERS,
    TRANSACTIONS_NEED_A_PARTITION,
    PartitionProduceOf,
    PartitionProduceParameters,
    TextProduceParameters,
    produce_in_topic,
)
from schemas.records import ProduceResult, TopicProduceResult

router = APIRouter(tags=["records"])


@router.post(
    RECORDS,
    operation_id="produceRecords",
    summary="Append records to a partition",
    response_model=ProduceResult,
    responses={200: APPENDED, **problems(*PRODUCE)},
    openapi_extra=json_body("RecordList"),
    dependencies=[Depends(no_old_library), Depends(within_produce_quota)],
)
@answered_on_connection(
    produce_batches,
    content_types=[RECORD_BATCHES],
    parameters=[*FAST_PATH_PARTITION_PARAMETERS, "encoding"],
    takes_key=True,
    quota=QuotaKind.PRODUCE,
    charges_quota=True,
    body_bytes_max=BODY_BYTES_MAX,
    large_bytes_max=LARGE_BODY_BYTES_MAX,
)
@answered_on_connection(
    produce_json,
    content_types=[JSON],
    parameters=[*FAST_PATH_PARTITION_PARAMETERS, "encoding"],
    takes_key=True,
    takes_producer=True,
    quota=QuotaKind.PRODUCE,
    charges_quota=True,
    body_bytes_max=FAST_PATH_JSON_BYTES_MAX,
    large_bytes_max=PLAIN_JSON_BYTES_MAX,
)
@needs(Operation.WRITE, ResourceKind.TOPIC)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def produce_records(
    produce: PartitionProduceOf,
    idempotence: IdempotenceOf,
    parameters: Annotated[PartitionProduceParameters, Query()],
    transactional_id: TransactionalIdHeader,
) -> Response:
    """Append all records of the request at consecutive offsets, or none.

    Content-Type may also name the media types of `record-batches` and `record-lines`, which have paths of their own.
    With an Idempotency-Key, or a producer's id, epoch and sequence, the request may be sent again.
    """
    forms = [JSON, NDJSON, RECORD_BATCHES, MESSAGE_SET]
    return await produce.run(
        parameters, forms, idempotence, encoding=parameters.encoding, transactional_id=transactional_id
    )


@router.post(
    TOPIC_RECORDS,
    operation_id="produceRecordsToTopic",
    summary="Append records to a topic",
    response_model=TopicProduceResult,
    responses={
        200: APPENDED,
        207: {
            "model": TopicProduceResult,
            "description": "Some partitions failed; each partition has a result or an error.",
        },
        **problems(*PRODUCE),
    },
    openapi_extra=json_body("RoutedRecordList"),
    dependencies=[
        Depends(no_old_library),
        Depends(within_produce_quota),
        Depends(no_transactional_id(TRANSACTIONS_NEED_A_PARTITION)),
    ],
)
@needs(Operation.WRITE, ResourceKind.TOPIC)
async def produce_records_to_topic(
    request: Request,
    topic: TopicName,
    producing: ProducingOf,
    key: TopicKeyOf,
    parameters: Annotated[TextProduceParameters, Query()],
    work: WorkOf,
) -> Response:
    """Spread the records over the partitions of the topic.

    Each record goes to the partition that it names, or to the partition of its key as Kafka's producers choose it.
    Records with neither go to a partition that changes from time to time.

    All records of the request for one partition are appended, or none. If all partitions fail, the response is the
    first error. With an Idempotency-Key the request may be sent again, and a retry completes a request that was done
    in part.
    """
    return await produce_in_topic(request, topic, producing, parameters, [JSON, NDJSON], key, work)
