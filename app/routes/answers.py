"""Conversion of engine objects to documents of the interface, and responses with JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.responses import Response
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from app.engine.partitions import Topic
from app.engine.topics import PartitionEpochs, PartitionView
from app.http.bodies.byte_budget import Hold
from app.problems.problem import Problem
from log_model.config import TopicConfig
from log_model.reads import SegmentInfo
from log_model.retention import RetentionEntry
from schemas.epochs import EpochEnd, EpochHistory, EpochRange
from schemas.retention import PartitionPlan, PlannedSegment, RetentionPolicyInForce
from schemas.topics import ConfigValue, PartitionDescription, SegmentDescription, TopicDescription

IS_HELD = "rollway.is_held"
"""Key of an ASGI scope: true if a budget already counts the bytes of its response."""


def describe_topic(topic: Topic, *, with_config: bool = True) -> TopicDescription:
    """Return the topic's document without its partitions; ``config`` is also empty without ``with_config``."""
    return TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        partitions=[],
        config={
            name: ConfigValue.model_construct(value=topic.config.value_of(name), source=topic.config_source(name))
            for name in (TopicConfig.options() if with_config else ())
        },
    )


def describe_partition(view: PartitionView) -> PartitionDescription:
    """Return the partition's document."""
    limits = view.limits
    return PartitionDescription(
        partition=view.partition,
        leader_epoch=view.leader_epoch,
        log_start_offset=limits.log_start_offset,
        high_watermark=limits.high_watermark,
        last_stable_offset=limits.last_stable_offset,
        log_end_offset=limits.log_end_offset,
        recovery_point=view.recovery_point,
        size_bytes=view.size_bytes,
        segments=view.segment_count,
        replicas=list(view.replicas),
        isr=list(view.in_sync),
        offline_reason=view.offline_reason,
    )


def describe_epochs(partition: int, epochs: PartitionEpochs, asked: int | None) -> EpochHistory:
    """Return the document of the leader epochs and, if the caller ``asked`` for an epoch, of its end offset."""
    entries, found = epochs.entries, epochs.asked
    ends = [*(entry.start_offset for entry in entries[1:]), epochs.log_end_offset]
    answer = None
    if asked is not None:
        answer = EpochEnd(epoch=found and found.epoch, end_offset=found and found.end_offset)
    return EpochHistory(
        partition=partition,
        leader_epoch=epochs.leader_epoch,
        epochs=[
            EpochRange(epoch=entry.epoch, start_offset=entry.start_offset, end_offset=max(end, entry.start_offset))
            for entry, end in zip(entries, ends, strict=False)
        ],
        asked=answer,
    )


def describe_segment(info: SegmentInfo) -> SegmentDescription:
    """Return the segment's document."""
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
    """Return the topic's retention policy."""
    return RetentionPolicyInForce(
        retention_ms=topic.config.retention_ms,
        retention_bytes=topic.config.retention_bytes,
        cleanup_policy=topic.config.cleanup_policy,
    )


def describe_plan(partition: int, entries: Sequence[RetentionEntry]) -> PartitionPlan:
    """Return the document of one partition's retention plan."""
    return PartitionPlan(
        partition=partition,
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
    """Return one problem for a request whose parts all failed: the first failure, with ``results`` added.

    It is retryable if all failures are retryable. Its ``applied`` is "unknown" if that of any failure is.
    """
    failed = [failure for failure in failures if failure is not None]
    first = failed[0]
    combined = Problem(
        first.kind,
        first.detail,
        retry_after_ms=first.retry_after_ms,
        headers=first.headers,
        **first.extra,
        results=results,
    )
    combined.errors = first.errors
    combined.retryable = all(failure.retryable for failure in failed)
    combined.applied = "unknown" if any(failure.applied == "unknown" for failure in failed) else "no"
    return combined


def request_body(model: type[BaseModel], *, example: dict[str, Any], required: bool = True) -> dict[str, Any]:
    """Return the ``requestBody`` of a route that reads a JSON body itself.

    It refers to ``model`` by name; ``make_document`` adds the model to the components.
    """
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
    """A response whose bytes count towards a budget until the client has received them or has disconnected."""

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
    """Return a response of ``content``, which is encoded JSON."""
    return Response(content, status, headers, media_type="application/json")
