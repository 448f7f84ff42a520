"""Retention: the policy, the plan, the run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Count, Long, Schema
from schemas.names import Offset, Partition


class RetentionPolicy(Schema):
    """The whole retention policy of a topic: null stands for the service's default, and no setting is left out."""

    retention_ms: Annotated[
        Long | None, Field(description="Age at which a segment is deleted; -1: never.", examples=[604800000], ge=-1)
    ]
    retention_bytes: Annotated[
        Long | None,
        Field(description="Size a partition is kept above when deleting; -1: no limit.", examples=[-1], ge=-1),
    ]
    cleanup_policy: Annotated[
        Literal["delete", "compact", "delete,compact", "compact,delete"] | None,
        Field(description="What becomes of old segments.", examples=["delete"]),
    ]


class RetentionPolicyInForce(Schema):
    """What is kept of a topic, as it is in force."""

    retention_ms: Annotated[
        Long, Field(description="Age at which a segment is deleted; -1: never.", examples=[604800000])
    ]
    retention_bytes: Annotated[
        Long, Field(description="Size a partition is kept above when deleting; -1: no limit.", examples=[-1])
    ]
    cleanup_policy: Annotated[str, Field(description="delete, compact or delete,compact.", examples=["delete"])]


class PlannedSegment(Schema):
    """What retention would do with one segment if it ran now."""

    base_offset: Annotated[Offset, Field(description="Offset of its first record.", examples=[0])]
    end_offset: Annotated[Offset, Field(description="End of the segment, exclusive.", examples=[3])]
    size_bytes: Annotated[Count, Field(description="Bytes of its record batches.", examples=[12846])]
    largest_timestamp: Annotated[Long, Field(description="Of its records; -1: none.", examples=[1714566000000])]
    deleted: Annotated[bool, Field(description="Whether a run now would delete it.", examples=[True])]
    reason: Annotated[
        str | None, Field(description="The rule by which it goes: null when it stays.", examples=["retention.ms"])
    ]
    held_by: Annotated[str | None, Field(description="What holds it: null when it goes.", examples=[None])]
    due_ms: Annotated[
        int | None,
        Field(
            description="When it falls due by its age, in ms since the epoch; null: not by age.",
            examples=[1715170800000],
        ),
    ]


class PartitionPlan(Schema):
    """The plan for one partition, oldest segment first."""

    partition: Partition
    segments: Annotated[list[PlannedSegment], Field(description="Its segments, oldest first.")]


class RetentionPlan(Schema):
    """What a retention run would do now; nothing is changed by asking."""

    partitions: Annotated[list[PartitionPlan], Field(description="The plan of each partition.")]


class DeletedSegment(Schema):
    """One segment that retention deleted."""

    partition: Partition
    base_offset: Annotated[Offset, Field(description="Offset of its first record.", examples=[0])]
    size_bytes: Annotated[Count, Field(description="Bytes of its record batches.", examples=[12846])]
    reason: Annotated[str, Field(description="The rule by which it went.", examples=["retention.bytes"])]


class RetentionRun(Schema):
    """What a retention run deleted."""

    deleted: Annotated[
        list[DeletedSegment], Field(description="The segments that are gone, by partition, oldest first.")
    ]
