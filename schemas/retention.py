"""Retention: the policy, the plan, the run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Count, Long, Schema
from schemas.names import Offset, Partition


class RetentionPolicy(Schema):
    """What shall be kept of a topic, as a whole: null stands for the service's default, and nothing is left out."""

    retention_ms: Annotated[
        Long | None, Field(description="Age at which a segment is deleted; -1: never.", examples=[604800000])
    ]
    retention_bytes: Annotated[
        Long | None, Field(description="Size a partition is kept above when deleting; -1: no limit.", examples=[-1])
    ]
    cleanup_policy: Annotated[
        str | None, Field(description="delete, compact or delete,compact.", examples=["delete"], max_length=100)
    ]


class RetentionPolicyInForce(Schema):
    """What is kept of a topic, as it is in force."""

    retention_ms: Annotated[Long, Field(examples=[604800000])]
    retention_bytes: Annotated[Long, Field(examples=[-1])]
    cleanup_policy: Annotated[str, Field(examples=["delete"])]


class PlannedSegment(Schema):
    """What retention would do with one segment if it ran now."""

    base_offset: Offset
    end_offset: Annotated[Offset, Field(description="End of the segment, exclusive.")]
    size_bytes: Count
    largest_timestamp: Annotated[Long, Field(examples=[1372996800000])]
    deleted: Annotated[bool, Field(description="Whether a run now would delete it.")]
    reason: Annotated[
        str | None, Field(description="The rule by which it goes: null when it stays.", examples=["retention.ms"])
    ]
    held_by: Annotated[str | None, Field(description="What holds it: null when it goes.", examples=[None])]
    due_ms: Annotated[
        int | None, Field(description="When it falls due by its age, in ms since the epoch; null: not by age.")
    ]


class PartitionPlan(Schema):
    """The plan for one partition, oldest segment first."""

    partition: Partition
    segments: list[PlannedSegment]


class RetentionPlan(Schema):
    """What a retention run would do now; nothing is changed by asking."""

    partitions: list[PartitionPlan]


class DeletedSegment(Schema):
    """One segment that retention deleted."""

    partition: Partition
    base_offset: Offset
    size_bytes: Count
    reason: Annotated[str, Field(examples=["retention.bytes"])]


class RetentionRun(Schema):
    """What a retention run deleted."""

    deleted: list[DeletedSegment]
