"""Start positions of groups of readers."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from schemas.base import LONG_MAX, Schema
from schemas.names import PARTITION_MAX, TopicId, TopicName

_NUMBER = re.compile(r"(0|[1-9][0-9]{0,9})", re.ASCII)
# A number from 0 to 2147483647.
_NUMBER_PATTERN = (
    "^(0|[1-9][0-9]{0,8}|1[0-9]{9}|20[0-9]{8}|21[0-3][0-9]{7}|214[0-6][0-9]{6}|2147[0-3][0-9]{5}|21474[0-7][0-9]{4}|"
    "214748[0-2][0-9]{3}|2147483[0-5][0-9]{2}|21474836[0-3][0-9]|214748364[0-7])$"
)
# The pattern describes the names; without this an object may have other names as well.
_NO_OTHER_NAMES: dict[str, Any] = {"additionalProperties": False}
_EXAMPLE = {"readings": {"0": 123, "1": 0}}


def _number(name: str) -> str:
    if _NUMBER.fullmatch(name) is None or int(name) > PARTITION_MAX:
        raise ValueError(f"must be a partition number, from 0 to {PARTITION_MAX}")
    return name


_PartitionName = Annotated[
    str,
    AfterValidator(_number),
    Field(
        description="Number of a partition.",
        json_schema_extra={"minLength": 1, "maxLength": 10, "pattern": _NUMBER_PATTERN},
    ),
]
_Offset = Annotated[int, Field(ge=0, le=LONG_MAX, json_schema_extra={"format": "int64"})]
_Positions = Annotated[
    dict[TopicName, Annotated[dict[_PartitionName, _Offset], Field(json_schema_extra=_NO_OTHER_NAMES)]],
    Field(
        description="Offsets of the first record to read, by topic and partition.",
        examples=[_EXAMPLE],
        json_schema_extra=_NO_OTHER_NAMES,
    ),
]


class StartPositions(Schema):
    """The start positions of a group, to pin for partitions that have none yet."""

    positions: _Positions
    topic_ids: Annotated[
        Annotated[dict[TopicName, TopicId], Field(json_schema_extra=_NO_OTHER_NAMES)] | None,
        Field(
            description="Ids of the topics that the offsets belong to: 409 if a topic has a different id; then nothing "
            "is pinned. Topics without an id here are not checked.",
            examples=[{"readings": "vbX5CGHpTq2OyL3cZhW1Uw"}],
        ),
    ] = None


class GroupPositions(Schema):
    """The start positions of a group."""

    group_id: Annotated[str, Field(description="Id of the group.", examples=["readings-dashboard"])]
    positions: _Positions
