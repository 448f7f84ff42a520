"""Splits: ranges of offsets for readers that share a topic between them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, ValidationError, WithJsonSchema, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from schemas.base import LONG_MAX, NUMBER_TEXT, Count, Schema, Timestamp, number_of_text
from schemas.names import Offset, Partition, TopicId
from schemas.offsets import Isolation

SPLIT_COUNT_MAX = 10_000

_PLACES = ("earliest", "latest")


def _parse_place(value: object) -> object:
    value = number_of_text(value)
    is_offset = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LONG_MAX
    if not is_offset and value not in _PLACES:
        raise ValueError("must be an offset, earliest or latest")
    return value


_Place = Annotated[
    int | Literal["earliest", "latest"],
    PlainValidator(_parse_place),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "format": "int64", "minimum": 0, "maximum": LONG_MAX},
                NUMBER_TEXT,
                {"type": "string", "enum": list(_PLACES)},
            ],
            "examples": ["earliest", 42],
        }
    ),
]


class SplitBounds(Schema):
    """The start and the end of a range, each by offset or by time. Absent: all readable offsets."""

    start_offset: Annotated[
        _Place | None, Field(description="First offset, as a number or as text; or earliest, or latest.")
    ] = None
    start_timestamp: Annotated[
        Timestamp | None, Field(description="Start at the first record at or after this time.")
    ] = None
    end_offset: Annotated[
        _Place | None,
        Field(description="Offset after the last one, as a number or as text; or earliest, or latest."),
    ] = None
    end_timestamp: Annotated[
        Timestamp | None,
        Field(description="End before the first record from the start on that is at or after this time, if any."),
    ] = None

    @model_validator(mode="after")
    def _one_way(self) -> SplitBounds:
        for name in ("start", "end"):
            if getattr(self, f"{name}_offset") is not None and getattr(self, f"{name}_timestamp") is not None:
                raise ValueError(f"give at most one of {name}_offset and {name}_timestamp")
        start, end = self.start_offset, self.end_offset
        if isinstance(start, int) and isinstance(end, int) and start > end:
            raise ValueError("start_offset is above end_offset")
        return self


class PartitionBounds(SplitBounds):
    """One partition to split. For a start or an end that it leaves out, the request's holds."""

    partition: Partition


class SplitRequest(SplitBounds):
    """A request to split a topic into ranges of offsets."""

    split_count: Annotated[
        int,
        Field(
            ge=1,
            le=SPLIT_COUNT_MAX,
            description="Number of splits to make. There are more if more partitions have records, and fewer if "
            "batches are large: a batch is never cut.",
            examples=[64],
        ),
    ] = 1
    max_records_per_split: Annotated[
        int | None,
        Field(ge=1, le=LONG_MAX, description="Greatest number of offsets in a split, unless one batch has more."),
    ] = None
    isolation: Annotated[
        Isolation,
        Field(description="Readable offsets end at the last stable offset (read_committed) or the high watermark."),
    ] = "read_uncommitted"
    on_truncated: Annotated[
        Literal["error", "earliest"],
        Field(description="A start_offset below the log start is an error, or means the earliest offset."),
    ] = "error"
    topic_id: Annotated[
        TopicId | None,
        Field(description="Id of the topic that the offsets belong to: 409 if the topic has a different id."),
    ] = None
    partitions: Annotated[
        list[PartitionBounds] | None,
        Field(min_length=1, max_length=SPLIT_COUNT_MAX, description="Partitions to split; absent: all of them."),
    ] = None

    @model_validator(mode="after")
    def _each_once(self) -> SplitRequest:
        seen: set[int] = set()
        for place, each in enumerate(self.partitions or ()):
            if each.partition in seen:
                fault = PydanticCustomError("duplicate_partition", "this partition occurs twice")
                where = InitErrorDetails(type=fault, loc=("partitions", place), input=each.partition)
                raise ValidationError.from_exception_data("SplitRequest", [where])
            seen.add(each.partition)
        return self


class SplitRange(Schema):
    """The offsets ``[start_offset, end_offset)`` of one partition."""

    partition: Partition
    start_offset: Annotated[Offset, Field(description="First offset.", examples=[0])]
    end_offset: Annotated[Count, Field(description="Offset after the last; it does not move.", examples=[1042])]
    size_bytes: Annotated[Count, Field(description="Bytes of its batches as stored.", examples=[1_048_576])]


class SplitPartition(SplitRange):
    """The whole range of one partition that was split, and the partition's limits at that moment."""

    log_start_offset: Annotated[Offset, Field(description="First readable offset.", examples=[0])]
    high_watermark: Annotated[Offset, Field(description="End of what consumers may read.", examples=[1042])]
    last_stable_offset: Annotated[
        Offset, Field(description="End of what read_committed consumers may read.", examples=[1042])
    ]
    skipped_count: Annotated[
        Count,
        Field(
            description="Requested offsets that are below the log start; only with on_truncated=earliest.", examples=[0]
        ),
    ]
    start_is_late: Annotated[
        bool, Field(description="No record that can be read is at or after start_timestamp.", examples=[False])
    ]


class TopicSplits(Schema):
    """Ranges that begin and end between batches. They cover every offset once; empty partitions have none."""

    splits: Annotated[list[SplitRange], Field(description="The ranges, by partition and offset.")]
    partitions: Annotated[list[SplitPartition], Field(description="The whole range of each partition.")]
    size_bytes: Annotated[Count, Field(description="Bytes of all splits.", examples=[67_108_864])]
