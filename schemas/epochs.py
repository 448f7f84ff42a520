"""Leader epochs of a partition."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Schema
from schemas.names import LeaderEpoch, Offset, Partition


class EpochRange(Schema):
    """One leader epoch: the offsets written in it, the end exclusive."""

    epoch: LeaderEpoch
    start_offset: Annotated[Offset, Field(description="Offset of its first record.", examples=[0])]
    end_offset: Annotated[Offset, Field(description="The offset after its last record.", examples=[3])]


class EpochEnd(Schema):
    """Where the records of an epoch end; nulls when it is not known."""

    epoch: Annotated[
        LeaderEpoch | None,
        Field(description="The greatest epoch not above the one asked for that has records.", examples=[0]),
    ]
    end_offset: Annotated[
        Offset | None, Field(description="The offset after the last record of the epoch; null when it is not known.")
    ]


class EpochHistory(Schema):
    """The leader epochs of a partition, oldest first."""

    partition: Partition
    leader_epoch: Annotated[LeaderEpoch, Field(description="The current one.")]
    epochs: Annotated[list[EpochRange], Field(description="The epochs that have records, oldest first.")]
    asked: Annotated[EpochEnd | None, Field(description="The answer for `epoch`; null when none was asked for.")]


class EpochStart(Schema):
    """A leader epoch that has begun."""

    partition: Partition
    epoch: LeaderEpoch
    start_offset: Annotated[Offset, Field(description="The offset that its first record gets.", examples=[3])]
