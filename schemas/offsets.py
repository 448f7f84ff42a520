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
    "record with the largest timestamp, if it is visible."
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
"""A time in a query, or one of the three special places."""


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
"""The start of a fetch: an offset, or one end of the log."""


class OffsetQuery(Schema):
    """A query for one offset: of the first record at or after a time, or of one of the three special places."""

    topic: TopicName
    partition: Partition
    timestamp: TimeOrPlace
    current_leader_epoch: Annotated[
        LeaderEpoch | None, Field(description="The leader epoch that the client last saw; a different one is an error.")
    ] = None


class OffsetQueries(Schema):
    """Many queries. Each has one result, in order."""

    queries: Annotated[list[OffsetQuery], Field(description="The queries.", min_length=1, max_length=10_000)]
    isolation: Annotated[
        Isolation,
        Field(description="Visible records end at the last stable offset (read_committed) or the high watermark."),
    ] = "read_uncommitted"


class OffsetAnswer(Schema):
    """The offset that was found. ``offset`` and ``timestamp`` are null if no visible record is that late."""

    partition: Partition
    offset: Annotated[
        Offset | None, Field(description="The offset found; null if no visible record is that late.", examples=[1])
    ]
    timestamp: Annotated[
        Count | None,
        Field(description="Timestamp of the record found; null for earliest and latest.", examples=[1714565400000]),
    ]
    leader_epoch: Annotated[
        LeaderEpoch | None, Field(description="Leader epoch at the offset found; null if it is not known.")
    ]


class OffsetResult(OffsetAnswer):
    """The result of one of many queries."""

    topic: TopicName


class OffsetFailure(Schema):
    """The error of one of many queries."""

    topic: TopicName
    partition: Partition
    error: Annotated[Problem, Field(description="The error of the query.")]


class OffsetResults(Schema):
    """One result or error for each query, in their order."""

    results: Annotated[
        list[OffsetResult | OffsetFailure], Field(description="The results, in the order of the queries.")
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
    dry_run: Annotated[bool, Field(description="Only return the offset; change nothing.")] = False

    @model_validator(mode="after")
    def _one_place(self) -> DeleteRecords:
        if (self.offset is None) == (self.before_timestamp is None):
            raise ValueError("give exactly one of offset and before_timestamp")
        return self


class LogStart(Schema):
    """The log start offset that the request set, or with dry_run would set."""

    log_start_offset: Annotated[Offset, Field(description="First readable offset.", examples=[7])]
