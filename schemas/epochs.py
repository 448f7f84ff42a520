"""Leader epochs of a partition."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Schema
from schemas.names import LeaderEpoch, Offset, Partition


class Epoch(Schema):
    """One leader epoch: the offsets written in it, the end exclusive."""

    epoch: LeaderEpoch
    start_offset: Offset
    end_offset: Offset


class EpochEnd(Schema):
    """Where the records of an epoch end; nulls when it is not known."""

    epoch: Annotated[
        LeaderEpoch | None, Field(description="The greatest epoch not above the one asked for that has records.")
    ]
    end_offset: Offset | None


class EpochHistory(Schema):
    """The leader epochs of a partition, oldest first."""

    partition: Partition
    leader_epoch: Annotated[LeaderEpoch, Field(description="The current one.")]
    epochs: list[Epoch]
    asked: Annotated[EpochEnd | None, Field(description="The answer for `epoch`; null when none was asked for.")]


class EpochStart(Schema):
    """A leader epoch that has begun."""

    partition: Partition
    epoch: LeaderEpoch
    start_offset: Offset
