"""Routes for leader epochs: list them, find the end of one, begin a new one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.access.capabilities import needs_capability
from app.access.needs import needs
from app.access.operations import Operation, ResourceKind
from app.openapi.documented_problems import EPOCH, NAMED, WRITE, problems
from app.paths import PARTITION_EPOCHS
from app.routes.answers import describe_epochs
from app.routes.dependencies import CurrentLeaderEpoch, EngineOf, PartitionOf
from schemas.epochs import EpochHistory, EpochStart
from schemas.names import LeaderEpochParameter

router = APIRouter(tags=["topics"])


@router.get(
    PARTITION_EPOCHS, operation_id="getEpochs", summary="List leader epochs", responses=problems(*NAMED, *EPOCH)
)
@needs(Operation.DESCRIBE, ResourceKind.TOPIC)
async def get_epochs(
    partition: PartitionOf,
    engine: EngineOf,
    epoch: Annotated[
        LeaderEpochParameter | None, Query(description="Also return the end offset of this epoch.", examples=[0])
    ] = None,
    current_leader_epoch: CurrentLeaderEpoch = None,
) -> EpochHistory:
    """List the leader epochs, each with the offsets of its records.

    With `epoch` the response also has the end offset of that epoch. A client whose last record is of that epoch must
    truncate its own records from that offset on.
    """
    epochs = await engine.topics.epochs(partition, epoch, current_leader_epoch=current_leader_epoch)
    return describe_epochs(partition.name.partition, epochs, epoch)


@router.post(
    PARTITION_EPOCHS,
    operation_id="beginEpoch",
    summary="Begin a leader epoch",
    responses=problems(*NAMED, *WRITE),
)
@needs(Operation.ALTER, ResourceKind.TOPIC)
@needs_capability("begin_epoch")
async def begin_epoch(partition: PartitionOf, engine: EngineOf) -> EpochStart:
    """Begin a new leader epoch at the log end.

    New records carry the new epoch. Requests that send an older epoch in `current_leader_epoch` are refused.
    """
    entry = await engine.topics.begin_epoch(partition)
    return EpochStart(partition=partition.name.partition, epoch=entry.epoch, start_offset=entry.start_offset)
