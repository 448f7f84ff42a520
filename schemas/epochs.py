"""Leader epochs of a partition."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Schema
from schemas.names import LeaderEpoch, Offset, Partition


class EpochRange(Schema):
    """One leader epoch: the range of offsets written in it, the end exclusive."""

    epoch: LeaderEpoch
    start_offset: Annotated[Offset, Field(description="Offset of its first record.", examples=[0])]
    end_offset: Annotated[Offset, Field(description="Offset after its last record.", examples=[3])]


class EpochEnd(Schema):
    """The end of an epoch's records. Both members are null if it is not known."""

    epoch: Annotated[
        LeaderEpoch | None,
        Field(description="The greatest epoch with records that is not above the requested one.", examples=[0]),
    ]
    end_offset: Annotated[
        Offset | None, Field(description="Offset after the last record of the epoch; null if it is not known.")
    ]


class EpochHistory(Schema):
    """The leader epochs of a partition, oldest first."""

    partition: Partition
    leader_epoch: Annotated[LeaderEpoch, Field(description="The current leader epoch.")]
    epochs: Annotated[list[EpochRange], Field(description="The epochs that have records, oldest first.")]
    asked: Annotated[EpochEnd | None, Field(description="The end of the requested `epoch`; null without a request.")]


class EpochStart(Schema):
    """A new leader epoch."""

    partition: Partition
    epoch: LeaderEpoch
    start_offset: Annotated[Offset, Field(description="Offset that its first record will get.", examples=[3])]
