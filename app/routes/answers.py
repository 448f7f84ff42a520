"""From what the engine says to what the interface answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.responses import Response
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from app.http.bodies.byte_budget import Hold
from app.problems.problems import Problem
from schemas.epochs import EpochEnd, EpochHistory, EpochRange
from schemas.retention import PartitionPlan, PlannedSegment, RetentionPolicyInForce
from schemas.topics import ConfigValue, PartitionDescription, SegmentDescription, TopicDescription
from storage.config import TopicConfig
from storage.log.log_snapshot import SegmentInfo
from storage.log.partition_log import PartitionLog
from storage.log.retention import RetentionEntry
from storage.manager.topic_registry import Topic
from storage.offsets import LeaderEpoch

IS_HELD = "rollway.is_held"
"""Of a scope: its answer counts among those of a budget already."""


def describe_topic(topic: Topic, partitions: Sequence[PartitionLog], *, with_config: bool = True) -> TopicDescription:
    """The topic as the interface shows it, with these of its partitions, and with or without its settings."""
    return TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        partitions=[describe_partition(log) for log in partitions],
        config={
            name: ConfigValue.model_construct(value=topic.config.value_of(name), source=topic.config_source(name))
            for name in (TopicConfig.options() if with_config else ())
        },
    )


def describe_partition(log: PartitionLog) -> PartitionDescription:
    """The partition's limits, all from one snapshot."""
    snapshot = log.snapshot
    return PartitionDescription(
        partition=log.name.partition,
        leader_epoch=log.leader_epoch,
        log_start_offset=snapshot.log_start_offset,
        high_watermark=snapshot.high_watermark,
        last_stable_offset=snapshot.last_stable_offset,
        log_end_offset=snapshot.log_end_offset,
        recovery_point=log.recovery_point,
        size_bytes=snapshot.size_bytes,
        segments=len(snapshot.segments),
        replicas=list(log.replicas.replicas),
        isr=list(log.replicas.in_sync),
        offline_reason=log.offline_reason,
    )


def describe_epochs(log: PartitionLog, asked: int | None) -> EpochHistory:
    """The partition's leader epochs, and where the one asked for ends."""
    entries, log_end = log.epochs.entries, log.snapshot.log_end_offset
    ends = [*(entry.start_offset for entry in entries[1:]), log_end]
    answer = None
    if asked is not None:
        found = log.epochs.end_offset_for(LeaderEpoch(asked), log_end)
        answer = EpochEnd(epoch=found and found.epoch, end_offset=found and found.end_offset)
    return EpochHistory(
        partition=log.name.partition,
        leader_epoch=log.leader_epoch,
        epochs=[
            EpochRange(epoch=entry.epoch, start_offset=entry.start_offset, end_offset=max(end, entry.start_offset))
            for entry, end in zip(entries, ends, strict=False)
        ],
        asked=answer,
    )


def describe_segment(info: SegmentInfo) -> SegmentDescription:
    """The segment as the interface shows it."""
    return SegmentDescription(
        base_offset=info.base_offset,
        next_offset=info.next_offset,
        size_bytes=info.size_bytes,
        first_timestamp=info.first_timestamp,
        largest_timestamp=info.largest_timestamp,
        offset_index_entries=info.offset_index_entries,
        time_index_entries=info.time_index_entries,
        state=info.state,
    )


def policy_of(topic: Topic) -> RetentionPolicyInForce:
    """The topic's retention policy."""
    return RetentionPolicyInForce(
        retention_ms=topic.config.retention_ms,
        retention_bytes=topic.config.retention_bytes,
        cleanup_policy=topic.config.cleanup_policy,
    )


def describe_plan(log: PartitionLog, entries: Sequence[RetentionEntry]) -> PartitionPlan:
    """One partition's plan as the interface shows it."""
    return PartitionPlan(
        partition=log.name.partition,
        segments=[
            PlannedSegment(
                base_offset=entry.base_offset,
                end_offset=entry.end_offset,
                size_bytes=entry.size_bytes,
                largest_timestamp=entry.largest_timestamp,
                deleted=entry.reason is not None,
                reason=entry.reason,
                held_by=entry.held_by,
                due_ms=entry.due_ms,
            )
            for entry in entries
        ],
    )


def combined_problem(failures: Sequence[Problem | None], results: object) -> Problem:
    """The problem that stands for several, when every part of a request failed: the first, with all ``results``.

    It is retryable only when all are, and its outcome is unknown when that of any is.
    """
    failed = [failure for failure in failures if failure is not None]
    first = failed[0]
    return Problem(
        first.status,
        first.code,
        first.detail,
        kafka_code=first.kafka_code,
        retryable=all(failure.retryable for failure in failed),
        applied="unknown" if any(failure.applied == "unknown" for failure in failed) else "no",
        retry_after_ms=first.retry_after_ms,
        errors=first.errors,
        headers=first.headers,
        **first.extra,
        results=results,
    )


def request_body(model: type[BaseModel], *, example: dict[str, Any], required: bool = True) -> dict[str, Any]:
    """The ``requestBody`` of a route that reads a JSON body itself; the model is added to the document's components."""
    return {
        "requestBody": {
            "required": required,
            "content": {
                "application/json": {
                    "schema": {"$ref": f"#/components/schemas/{model.__name__}"},
                    "example": example,
                }
            },
        }
    }


class HeldResponse(Response):
    """An answer whose bytes count among those of a budget until the client has taken them, or is gone."""

    def __init__(
        self, content: bytes, headers: Mapping[str, str], media_type: str, hold: Hold, status: int = 200
    ) -> None:
        super().__init__(content, status, headers=headers, media_type=media_type)
        self._hold = hold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[IS_HELD] = True
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hold.release()


def json_answer(content: bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON that was encoded already."""
    return Response(content, status, headers, media_type="application/json")
