"""Names that travel in paths and bodies."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from schemas.base import Count, WholeNumber

TOPIC_NAME_PATTERN = r"^[a-zA-Z0-9._-]{1,249}$"
TOPIC_NAME_LENGTH_MAX = 249
PARTITION_MAX = 2**31 - 1


def _no_directory(name: str) -> str:
    if name in {".", ".."}:
        raise ValueError('a topic name cannot be "." or ".."')
    return name


TopicName = Annotated[
    str,
    AfterValidator(_no_directory),
    Field(
        min_length=1,
        max_length=TOPIC_NAME_LENGTH_MAX,
        pattern=TOPIC_NAME_PATTERN,
        description='ASCII letters, digits, ".", "_" and "-"; at most 249 of them; not "." and not "..".',
        examples=["flights"],
    ),
]
"""A topic's name in a body."""

Partition = Annotated[int, Field(ge=0, le=PARTITION_MAX, description="Number of the partition.", examples=[0])]
"""A partition's number in a body."""

PartitionParameter = Annotated[int, WholeNumber(0, PARTITION_MAX)]
"""A partition's number in a path."""

OffsetParameter = Annotated[int, WholeNumber()]
"""An offset in a path or a query."""

Offset = Annotated[Count, Field(description="Number of a record in its partition.", examples=[42])]
"""An offset in a body."""
