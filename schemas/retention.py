"""Retention: the policy, the plan of a run, and its result."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Count, Long, Schema
from schemas.names import Offset, Partition


class RetentionPolicy(Schema):
    """The whole retention policy of a topic. No setting may be left out; null stands for the service's default."""

    retention_ms: Annotated[
        Long | None, Field(description="Age at which a segment is deleted; -1: never.", examples=[604800000], ge=-1)
    ]
    retention_bytes: Annotated[
        Long | None,
        Field(
            description="Retention by size leaves at least this many bytes in a partition; -1: no limit.",
            examples=[-1],
            ge=-1,
        ),
    ]
    cleanup_policy: Annotated[
        Literal["delete", "compact", "delete,compact", "compact,delete"] | None,
        Field(description="Treatment of old segments.", examples=["delete"]),
    ]


class RetentionPolicyInForce(Schema):
    """The retention policy of a topic, in force."""

    retention_ms: Annotated[
        Long, Field(description="Age at which a segment is deleted; -1: never.", examples=[604800000])
    ]
    retention_bytes: Annotated[
        Long,
        Field(
            description="Retention by size leaves at least this many bytes in a partition; -1: no limit.", examples=[-1]
        ),
    ]
    cleanup_policy: Annotated[str, Field(description="delete, compact or delete,compact.", examples=["delete"])]


class PlannedSegment(Schema):
    """The effect that a retention run would have on one segment now."""

    base_offset: Annotated[Offset, Field(description="Offset of its first record.", examples=[0])]
    end_offset: Annotated[Offset, Field(description="End of the segment, exclusive.", examples=[3])]
    size_bytes: Annotated[Count, Field(description="Bytes of its record batches.", examples=[12846])]
    largest_timestamp: Annotated[
        Long, Field(description="Largest timestamp of its records; -1: none.", examples=[1714566000000])
    ]
    deleted: Annotated[bool, Field(description="Whether a run now would delete it.", examples=[True])]
    reason: Annotated[
        str | None, Field(description="The rule that deletes it; null if it stays.", examples=["retention.ms"])
    ]
    held_by: Annotated[
        str | None, Field(description="The reason that it stays; null if it is deleted.", examples=[None])
    ]
    due_ms: Annotated[
        int | None,
        Field(
            description="Time at which its age lets it be deleted, in milliseconds since the epoch; null: not by age.",
            examples=[1715170800000],
        ),
    ]


class PartitionPlan(Schema):
    """The plan for one partition, oldest segment first."""

    partition: Partition
    segments: Annotated[list[PlannedSegment], Field(description="Its segments, oldest first.")]


class RetentionPlan(Schema):
    """The effect that a retention run would have now. The request changes nothing."""

    partitions: Annotated[list[PartitionPlan], Field(description="The plan of each partition.")]


class DeletedSegment(Schema):
    """One segment that retention deleted."""

    partition: Partition
    base_offset: Annotated[Offset, Field(description="Offset of its first record.", examples=[0])]
    size_bytes: Annotated[Count, Field(description="Bytes of its record batches.", examples=[12846])]
    reason: Annotated[str, Field(description="The rule that deleted it.", examples=["retention.bytes"])]


class RetentionRun(Schema):
    """The segments that a retention run deleted."""

    deleted: Annotated[list[DeletedSegment], Field(description="The deleted segments, by partition, oldest first.")]
