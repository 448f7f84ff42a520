"""Routes for topics, their partitions and segments."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from app.access.access import Access
from app.access.capabilities import needs_capability
from app.access.needs import AccessOf, asks, needs
from app.access.operations import Operation, ResourceKind, topic_resource
from app.engine.engine import Engine
from app.engine.partitions import Topic
from app.openapi.documented_problems import CHANGE, CONTROL, NAMED, problems
from app.paths import PARTITION, PARTITIONS, SEGMENTS, TOPIC, TOPICS
from app.routes.answers import describe_partition, describe_segment, json_answer, request_body
from app.routes.dependencies import EngineOf, PartitionNumber, PartitionOf, TopicName, json_body
from app.routes.topic_answers import page_json, partitions_json, topic_json
from schemas.base import WholeNumber
from schemas.names import TOPIC_NAME_LENGTH_MAX
from schemas.topics import (
    PartitionDescription,
    PartitionList,
    SegmentList,
    TopicChange,
    TopicDescription,
    TopicPage,
    TopicSpecification,
)

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000

router = APIRouter(tags=["topics"])

_Cursor = Query(
    description="Only topics whose names begin with this.", max_length=TOPIC_NAME_LENGTH_MAX, examples=["read"]
)


@router.put(
    TOPIC,
    operation_id="ensureTopic",
    summary="Make sure a topic exists",
    response_model=TopicDescription,
    response_description="A topic with these partitions and settings existed already.",
    responses={
        201: {"model": TopicDescription, "description": "The topic was created."},
        **problems(*CONTROL, "topic_exists"),
    },
    openapi_extra=request_body(
        TopicSpecification,
        required=False,
        example={"partitions": 1, "config": {"retention.ms": -1}},
    ),
)
@asks(Operation.CREATE, ResourceKind.TOPIC)
@asks(Operation.CREATE, ResourceKind.CLUSTER)
async def ensure_topic(
    topic: TopicName,
    engine: EngineOf,
    access: AccessOf,
    specification: Annotated[TopicSpecification, Depends(json_body(TopicSpecification, optional=True))],
) -> Response:
    """Create the topic (201), or return the existing topic if it has these partitions and settings (200).

    An existing topic with other partitions or settings stays unchanged: 409. The right CREATE may be on the topic or
    on the cluster. For an existing topic the caller also needs DESCRIBE.
    """
    access.require_create(topic)
    made, created = await engine.topics.ensure(topic, specification.partitions, dict(specification.config))
    if not created:
        access.require(Operation.DESCRIBE, topic_resource(topic))
    return await _described(engine, made, access, status=201 if created else 200)


@router.get(
    TOPICS,
    operation_id="listTopics",
    summary="List topics",
    response_model=TopicPage,
    responses=problems("invalid_request", "invalid_topic"),
)
@asks(Operation.DESCRIBE, ResourceKind.TOPIC)
async def list_topics(
    engine: EngineOf,
    access: AccessOf,
    prefix: Annotated[str, _Cursor] = "",
    start_after: Annotated[
        str, Query(max_length=TOPIC_NAME_LENGTH_MAX, description="next_cursor of the previous page.")
    ] = "",
    limit: Annotated[int, WholeNumber(1, PAGE_SIZE_MAX), Query(description="Topics per page.")] = PAGE_SIZE_DEFAULT,
) -> Response:
    """List one page of the topics that the caller may describe, sorted by name."""
    page = await engine.topics.page(prefix, start_after, limit + 1, access.allows_describe)
    has_more = len(page) > limit
    return json_answer(await page_json(engine.topics, page[:limit], has_more, lambda name: _shows_config(name, access)))


@router.get(
    TOPIC,
    operation_id="getTopic",
    summary="Describe a topic",
    response_model=TopicDescription,
    responses=problems(*NAMED),
)
@needs(Operation.DESCRIBE, ResourceKind.TOPIC)
async def get_topic(topic: TopicName, engine: EngineOf, access: AccessOf) -> Response:
    """Return the topic's partitions, and its settings, each with its source.

    The settings are empty for a caller without DESCRIBE_CONFIGS on the topic.
    """
    return await _described(engine, engine.topic(topic), access)


@router.patch(
    TOPIC,
    operation_id="alterTopic",
    summary="Change a topic",
    response_model=TopicDescription,
    responses=problems(*CONTROL),
    openapi_extra=request_body(
        TopicChange, example={"partitions": 12, "config": {"retention.ms": 3600000, "segment.ms": None}}
    ),
)
@asks(Operation.ALTER, ResourceKind.TOPIC)
@asks(Operation.ALTER_CONFIGS, ResourceKind.TOPIC)
async def alter_topic(
    topic: TopicName,
    engine: EngineOf,
    access: AccessOf,
    change: Annotated[TopicChange, Depends(json_body(TopicChange))],
) -> Response:
    """Change settings and add partitions. null resets a setting to the service's default.

    Adding partitions needs ALTER on the topic; changing settings needs ALTER_CONFIGS.
    """
    resource = topic_resource(topic)
    if change.partitions is not None or not change.config:
        access.require(Operation.ALTER, resource)
    if change.config:
        access.require(Operation.ALTER_CONFIGS, resource)
    changed = await engine.topics.alter(topic, config=dict(change.config), partition_count=change.partitions)
    return await _described(engine, changed, access)


@router.delete(
    TOPIC,
    operation_id="deleteTopic",
    summary="Delete a topic",
    status_code=204,
    response_description="The topic was deleted.",
    responses=problems(*NAMED, "overloaded", *CHANGE, "partition_offline"),
)
@needs(Operation.DELETE, ResourceKind.TOPIC)
async def delete_topic(topic: TopicName, engine: EngineOf) -> Response:
    """Delete the topic at once. Its files are removed after `file.delete.delay.ms`."""
    await engine.topics.delete(topic)
    return Response(status_code=204)


@router.get(
    PARTITIONS,
    operation_id="listPartitions",
    summary="List partitions",
    response_model=PartitionList,
    responses=problems(*NAMED),
)
@needs(Operation.DESCRIBE, ResourceKind.TOPIC)
async def list_partitions(topic: TopicName, engine: EngineOf) -> Response:
    """List all partitions of the topic with their offsets."""
    return json_answer(await partitions_json(engine.topics, engine.topic(topic)))


@router.get(PARTITION, operation_id="getPartition", summary="Describe a partition", responses=problems(*NAMED))
@needs(Operation.DESCRIBE, ResourceKind.TOPIC)
async def get_partition(topic: TopicName, partition: PartitionNumber, engine: EngineOf) -> PartitionDescription:
    """Return the partition's offsets, size and replicas."""
    return describe_partition(await engine.topics.describe_partition(topic, partition))


@router.get(
    SEGMENTS,
    operation_id="listSegments",
    summary="List segments",
    responses=problems(*NAMED, "stored_data_corrupt"),
)
@needs(Operation.DESCRIBE, ResourceKind.TOPIC)
@needs_capability("segments")
async def list_segments(partition: PartitionOf, engine: EngineOf) -> SegmentList:
    """List the partition's segments, the oldest first."""
    infos = await engine.topics.segments(partition)
    return SegmentList(partition=partition.name.partition, segments=[describe_segment(info) for info in infos])


async def _described(engine: Engine, topic: Topic, access: Access, *, status: int = 200) -> Response:
    """Return the topic; its settings are empty if the caller may not see them."""
    with_config = _shows_config(topic.name, access)
    return json_answer(await topic_json(engine.topics, topic, with_config=with_config), status=status)


def _shows_config(name: str, access: Access) -> bool:
    return access.allows(Operation.DESCRIBE_CONFIGS, topic_resource(name))
