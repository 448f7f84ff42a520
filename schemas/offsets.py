"""Offsets by time, and the log start offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from schemas.base import (
    LONG_MAX,
    NUMBER_TEXT,
    Count,
    Schema,
    Timestamp,
    WholeNumber,
    number_of_text,
    parse_parameter_timestamp,
    parse_timestamp,
    timestamp_schema,
)
from schemas.errors import Problem
from schemas.names import LeaderEpoch, Offset, Partition, TopicName

Isolation = Literal["read_uncommitted", "read_committed"]
SpecialTimestamp = Literal["earliest", "latest", "max_timestamp"]

_SPECIAL: dict[object, SpecialTimestamp] = {
    "earliest": "earliest",
    "latest": "latest",
    "max_timestamp": "max_timestamp",
}
_PLACE_TEXT = (
    "A time: milliseconds since the epoch, or an RFC 3339 date and time; or earliest, latest, or max_timestamp: the "
    "record with the largest timestamp, none while it is not visible."
)
_WORDS = {"type": "string", "enum": list(_SPECIAL)}
_PLACE_SCHEMA = timestamp_schema(f"{_PLACE_TEXT} The milliseconds may be text.", NUMBER_TEXT, _WORDS)
_PLACE_PARAMETER_SCHEMA = timestamp_schema(_PLACE_TEXT, _WORDS)


def _parse_place(value: object) -> int | SpecialTimestamp:
    return _place_or_time(number_of_text(value), parse_timestamp)


def _parse_parameter_place(value: object) -> int | SpecialTimestamp:
    return _place_or_time(value, parse_parameter_timestamp)


def _place_or_time(value: object, parse: Callable[[object], int]) -> int | SpecialTimestamp:
    special = _SPECIAL.get(value) if isinstance(value, str) else None
    if special is not None:
        return special
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError(f"{error}; or one of {', '.join(map(str, _SPECIAL))}") from None


TimeOrPlace = Annotated[int | SpecialTimestamp, PlainValidator(_parse_place), WithJsonSchema(_PLACE_SCHEMA)]
"""A time in a body, or one of the three special places."""

TimeOrPlaceParameter = Annotated[
    int | SpecialTimestamp, PlainValidator(_parse_parameter_place), WithJsonSchema(_PLACE_PARAMETER_SCHEMA)
]
"""The same in a query."""


FetchPlace = Literal["earliest", "latest"]


def _parse_fetch_place(value: object) -> int | FetchPlace:
    if value == "earliest":
        return "earliest"
    if value == "latest":
        return "latest"
    try:
        return WholeNumber().parse(value)
    except ValueError:
        raise ValueError("must be an offset, earliest or latest") from None


OffsetOrPlaceParameter = Annotated[
    int | FetchPlace,
    PlainValidator(_parse_fetch_place),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "format": "int64", "minimum": 0, "maximum": LONG_MAX},
                {"type": "string", "enum": ["earliest", "latest"]},
            ]
        }
    ),
]
"""Where a fetch begins: an offset, or one end of the log."""


class OffsetQuery(Schema):
    """One question: the first record at or after a time, or one of the three special places."""

    topic: TopicName
    partition: Partition
    timestamp: TimeOrPlace
    current_leader_epoch: Annotated[
        LeaderEpoch | None, Field(description="The leader epoch the client knows; another one than it is an error.")
    ] = None


class OffsetQueries(Schema):
    """Many questions, one answer each, in order."""

    queries: Annotated[list[OffsetQuery], Field(description="The questions.", min_length=1, max_length=10_000)]
    isolation: Annotated[
        Isolation, Field(description="The end is the last stable offset (read_committed) or the high watermark.")
    ] = "read_uncommitted"


class OffsetAnswer(Schema):
    """The place asked for; ``offset`` and ``timestamp`` are null when no visible record is that late."""

    partition: Partition
    offset: Annotated[
        Offset | None, Field(description="Offset of the place; null when no visible record is that late.", examples=[1])
    ]
    timestamp: Annotated[
        Count | None, Field(description="Of the record found; null for earliest and latest.", examples=[1714565400000])
    ]
    leader_epoch: Annotated[LeaderEpoch | None, Field(description="Of the place found, where it is known.")]


class OffsetResult(OffsetAnswer):
    """The answer to one of many questions."""

    topic: TopicName


class OffsetFailure(Schema):
    """A question that has no answer, and why."""

    topic: TopicName
    partition: Partition
    error: Annotated[Problem, Field(description="Why it has no answer.")]


class OffsetResults(Schema):
    """One answer or error for each question, in their order."""

    results: Annotated[
        list[OffsetResult | OffsetFailure], Field(description="The answers, in the order of the questions.")
    ]


class DeleteRecords(Schema):
    """The new start of the log: exactly one of ``offset`` and ``before_timestamp``."""

    offset: Annotated[
        int | None,
        Field(ge=-1, le=LONG_MAX, description="The new log start offset; -1: the high watermark.", examples=[7]),
    ] = None
    before_timestamp: Annotated[
        Timestamp | None, Field(description="Keep everything from the first record at or after this time on.")
    ] = None
    dry_run: Annotated[bool, Field(description="Only say where the log would start.")] = False

    @model_validator(mode="after")
    def _one_place(self) -> DeleteRecords:
        if (self.offset is None) == (self.before_timestamp is None):
            raise ValueError("give exactly one of offset and before_timestamp")
        return self


class LogStart(Schema):
    """Where the log starts now, or would."""

    log_start_offset: Annotated[Offset, Field(description="First readable offset.", examples=[7])]
