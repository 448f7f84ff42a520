"""Where a group of readers starts."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from schemas.base import LONG_MAX, Schema
from schemas.names import PARTITION_MAX, TopicName

_EXAMPLE = {"readings": {"0": 123, "1": 0}}


def _in_range(number: str) -> str:
    if int(number) > PARTITION_MAX:
        raise ValueError(f"a partition's number is at most {PARTITION_MAX}")
    return number


_PartitionName = Annotated[
    str,
    AfterValidator(_in_range),
    Field(min_length=1, max_length=10, pattern=r"^(0|[1-9][0-9]*)$", description="Number of a partition."),
]
_Offset = Annotated[int, Field(ge=0, le=LONG_MAX, json_schema_extra={"format": "int64"})]
_Positions = Annotated[
    dict[TopicName, dict[_PartitionName, _Offset]],
    Field(description="Offsets of the first record to read, by topic and partition.", examples=[_EXAMPLE]),
]


class StartPositions(Schema):
    """Where a group shall start, unless it was pinned before."""

    positions: _Positions


class GroupPositions(Schema):
    """Where a group starts."""

    group_id: Annotated[str, Field(description="Id of the group.", examples=["readings-dashboard"])]
    positions: _Positions
