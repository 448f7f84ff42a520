"""Route that splits a topic for bulk readers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from app.access.needs import needs
from app.access.operations import Operation, ResourceKind
from app.fetch.splitting import split_topic
from app.openapi.documented_problems import BODY, NAMED, problems
from app.paths import SPLITS
from app.routes.answers import request_body
from app.routes.dependencies import FetchingOf, TopicName, json_body
from schemas.splits import SplitRequest, TopicSplits

router = APIRouter(tags=["records"])


@router.post(
    SPLITS,
    operation_id="splitTopic",
    summary="Split a topic for readers that share the work",
    responses=problems(
        *BODY, *NAMED, "inconsistent_topic_id", "offset_out_of_range", "offset_not_available", "stored_data_corrupt"
    ),
    openapi_extra=request_body(
        SplitRequest, required=False, example={"split_count": 64, "isolation": "read_committed"}
    ),
)
@needs(Operation.DESCRIBE, ResourceKind.TOPIC)
async def split(
    topic: TopicName,
    fetching: FetchingOf,
    body: Annotated[SplitRequest, Depends(json_body(SplitRequest, optional=True))],
) -> TopicSplits:
    """Split the topic into offset ranges of about equal bytes.

    Splits begin and end between batches, so each byte is fetched once. Every offset of the requested range is in
    exactly one split. The ends are fixed: records that arrive later are in no split. Fetch a split as record batches
    with `offset` and `end_offset`, and the same `isolation`.
    """
    return await split_topic(fetching, topic, body)
