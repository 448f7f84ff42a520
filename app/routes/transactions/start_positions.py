"""Routes for start positions of groups: pin, list, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from app.access.needs import AccessOf, asks, needs
from app.access.operations import Operation, ResourceKind, topic_resource
from app.openapi.documented_problems import BODY, NAMED, WRITE, problems
from app.paths import START_POSITIONS
from app.routes.answers import request_body
from app.routes.dependencies import GroupIdInPath, StartPositionsOf, json_body
from app.start_positions.state import Positions
from schemas.names import TOPIC_NAME_LENGTH_MAX
from schemas.start_positions import GroupPositions, StartPositions

router = APIRouter(tags=["start positions"])

_EXAMPLE = {"positions": {"readings": {"0": 123, "1": 0}}}


def _answer(group_id: str, positions: Positions) -> GroupPositions:
    shown = {topic: {str(number): offset for number, offset in each.items()} for topic, each in positions.items()}
    return GroupPositions(group_id=group_id, positions=shown)


@router.post(
    START_POSITIONS,
    operation_id="pinStartPositions",
    summary="Pin where a group starts",
    response_description="All of these positions were pinned before.",
    responses={
        201: {"model": GroupPositions, "description": "The request pinned at least one position."},
        **problems(*BODY, *NAMED, *WRITE, "inconsistent_topic_id"),
    },
    openapi_extra=request_body(StartPositions, example=_EXAMPLE),
)
@needs(Operation.READ, ResourceKind.GROUP)
@asks(Operation.READ, ResourceKind.TOPIC)
async def pin_start_positions(
    group_id: GroupIdInPath,
    positions: StartPositionsOf,
    access: AccessOf,
    response: Response,
    body: Annotated[StartPositions, Depends(json_body(StartPositions))],
) -> GroupPositions:
    """Pin each position that is not pinned yet, and return the pinned positions of exactly the requested partitions.

    The first request decides, and every later request gets the same response, also after a crash of the service. Send
    the request again if the response was lost. The positions of a topic are deleted with the topic.
    """
    for topic in body.positions:
        access.require(Operation.READ, topic_resource(topic))
    wanted = {topic: {int(number): at for number, at in each.items()} for topic, each in body.positions.items()}
    pinned = await positions.pin(group_id, wanted, body.topic_ids or {})
    response.status_code = 201 if pinned.is_new else 200
    return _answer(group_id, pinned.positions)


@router.get(
    START_POSITIONS,
    operation_id="getStartPositions",
    summary="Look where a group starts",
    responses=problems("invalid_request", "partition_offline"),
)
@needs(Operation.DESCRIBE, ResourceKind.GROUP)
async def get_start_positions(group_id: GroupIdInPath, positions: StartPositionsOf, access: AccessOf) -> GroupPositions:
    """Return the group's pinned positions in the topics that the caller may see; empty if there are none."""
    found = positions.find(group_id)
    return _answer(group_id, {topic: each for topic, each in found.items() if access.allows_describe(topic)})


@router.delete(
    START_POSITIONS,
    operation_id="deleteStartPositions",
    summary="Forget where a group starts",
    response_description="The deleted positions.",
    responses=problems("invalid_request", *WRITE),
)
@needs(Operation.DELETE, ResourceKind.GROUP)
async def delete_start_positions(
    group_id: GroupIdInPath,
    positions: StartPositionsOf,
    access: AccessOf,
    topic: Annotated[
        str | None, Query(max_length=TOPIC_NAME_LENGTH_MAX, description="Only positions in this topic.")
    ] = None,
) -> GroupPositions:
    """Delete the positions, so that the next request pins them again. It succeeds also if there are none."""
    gone = await positions.delete(group_id, topic)
    return _answer(group_id, {name: each for name, each in gone.items() if access.allows_describe(name)})
