"""Routes for retention: policy, plan, run; and for deleting records by hand."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from app.access.capabilities import needs_capability
from app.access.needs import needs
from app.access.operations import Operation, ResourceKind
from app.http.bodies.body import read_body
from app.openapi.documented_problems import CONTROL, NAMED, problems
from app.paths import DELETE_RECORDS, RETENTION, RETENTION_PLAN, RETENTION_RUN
from app.problems.problem import invalid_value
from app.routes.answers import json_answer, policy_of, request_body
from app.routes.dependencies import EngineOf, PartitionOf, TopicName, json_body
from app.routes.topic_answers import plan_json
from schemas.offsets import DeleteRecords, LogStart
from schemas.retention import DeletedSegment, RetentionPlan, RetentionPolicy, RetentionPolicyInForce, RetentionRun

router = APIRouter(tags=["retention"])

_NO_BODY_BYTES_MAX = 65_536
_POLICY = {"retention_ms": 86400000, "retention_bytes": 1073741824, "cleanup_policy": None}


@router.get(
    RETENTION, operation_id="getRetentionPolicy", summary="Get the retention policy", responses=problems(*NAMED)
)
@needs(Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC)
async def get_retention_policy(topic: TopicName, engine: EngineOf) -> RetentionPolicyInForce:
    """Return the topic's retention policy in force."""
    return policy_of(engine.topic(topic))


@router.put(
    RETENTION,
    operation_id="setRetentionPolicy",
    summary="Set the retention policy",
    responses=problems(*CONTROL),
    openapi_extra=request_body(RetentionPolicy, example=_POLICY),
)
@needs(Operation.ALTER_CONFIGS, ResourceKind.TOPIC)
async def set_retention_policy(
    topic: TopicName, engine: EngineOf, policy: Annotated[RetentionPolicy, Depends(json_body(RetentionPolicy))]
) -> RetentionPolicyInForce:
    """Replace the retention policy. null means the service's default; a missing member is refused.

    Use alterTopic to change one setting and keep the other settings.
    """
    changed = await engine.topics.alter(
        topic,
        config={
            "retention.ms": policy.retention_ms,
            "retention.bytes": policy.retention_bytes,
            "cleanup.policy": policy.cleanup_policy,
        },
    )
    return policy_of(changed)


@router.get(
    RETENTION_PLAN,
    operation_id="getRetentionPlan",
    summary="Plan a retention run",
    response_model=RetentionPlan,
    responses=problems(*NAMED, "overloaded", "stored_data_corrupt"),
)
@needs(Operation.DESCRIBE, ResourceKind.TOPIC)
@needs_capability("retention_plan")
async def get_retention_plan(topic: TopicName, engine: EngineOf) -> Response:
    """List the segments that a run would delete now, each with its rule, and why the run would keep each other segment.

    The request changes nothing.
    """
    return json_answer(await plan_json(await engine.topics.retention_plan(topic)))


@router.post(
    RETENTION_RUN,
    operation_id="runRetention",
    summary="Run retention now",
    responses=problems(
        *NAMED, "overloaded", "partition_offline", "append_outcome_unknown", "disk_full", "too_many_open_files"
    ),
)
@needs(Operation.DELETE, ResourceKind.TOPIC)
@needs_capability("retention_run")
async def run_retention(request: Request, topic: TopicName, engine: EngineOf) -> RetentionRun:
    """Apply the policy to every partition, and return the deleted segments.

    A second run directly afterwards deletes nothing more.
    """
    if await read_body(request, limit_bytes=_NO_BODY_BYTES_MAX):
        detail = "this request takes no body; retention/plan says what a run would delete"
        raise invalid_value("", detail)
    deleted = await engine.topics.run_retention(topic)
    return RetentionRun(
        deleted=[
            DeletedSegment(
                partition=partition,
                base_offset=segment.base_offset,
                size_bytes=segment.size_bytes,
                reason=segment.reason,
            )
            for partition, segment in deleted
        ]
    )


@router.post(
    DELETE_RECORDS,
    operation_id="deleteRecords",
    summary="Raise the log start offset",
    responses=problems(*CONTROL, "offset_out_of_range"),
    openapi_extra=request_body(DeleteRecords, example={"offset": 7, "dry_run": False}),
)
@needs(Operation.DELETE, ResourceKind.TOPIC)
async def delete_records(
    partition: PartitionOf,
    engine: EngineOf,
    request: Annotated[DeleteRecords, Depends(json_body(DeleteRecords))],
) -> LogStart:
    """Make all records below an offset, or before a time, unreadable at once.

    Segments that lie wholly below are deleted later. An offset below the present log start changes nothing. -1 means
    the high watermark.
    """
    topics, dry_run = engine.topics, request.dry_run
    if request.before_timestamp is not None:
        start = await topics.delete_records_before(partition, request.before_timestamp, dry_run=dry_run)
    else:
        assert request.offset is not None
        start = await topics.delete_records(partition, request.offset, dry_run=dry_run)
    return LogStart(log_start_offset=start)
