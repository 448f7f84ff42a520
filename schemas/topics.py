"""Topics, partitions and segments."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from schemas.base import Count, Long, Schema
from schemas.names import Offset, Partition, TopicName

_SETTING_TYPES: list[dict[str, str]] = [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}]


def _setting(value: object) -> str | int | bool:
    if not isinstance(value, str | int | bool):
        raise ValueError("must be text, a whole number, true or false")
    return value


def _setting_or_none(value: object) -> str | int | bool | None:
    return None if value is None else _setting(value)


ConfigSetting = Annotated[str | int | bool, PlainValidator(_setting), WithJsonSchema({"anyOf": _SETTING_TYPES})]
"""A setting's value. A number may be written as text, as Kafka's tools write it."""

ConfigChange = Annotated[
    str | int | bool | None,
    PlainValidator(_setting_or_none),
    WithJsonSchema({"anyOf": [*_SETTING_TYPES, {"type": "null"}]}),
]
"""A setting's new value, or null for the service's default."""

PARTITION_COUNT_MAX = 10_000

PartitionCount = Annotated[
    int, Field(ge=1, le=PARTITION_COUNT_MAX, description="Number of partitions of the topic.", examples=[6])
]


class TopicSpecification(Schema):
    """The partitions and the configuration of a topic."""

    partitions: PartitionCount = 1
    config: Annotated[
        dict[str, ConfigSetting],
        Field(
            description="Settings by their Kafka names, over the service's defaults.",
            examples=[{"retention.ms": 86400000, "segment.bytes": 1048576}],
        ),
    ] = Field(default={})


class TopicChange(Schema):
    """Changes to a topic. Partitions can only be added."""

    partitions: Annotated[
        PartitionCount | None,
        Field(description="Number of partitions after the change, no fewer than now; absent: the present number."),
    ] = None
    config: Annotated[
        dict[str, ConfigChange],
        Field(
            description="Settings to change; null resets a setting to the service's default.",
            examples=[{"retention.ms": 3600000, "segment.ms": None}],
        ),
    ] = Field(default={})


class ConfigValue(Schema):
    """A setting's value in force, and its origin."""

    value: Annotated[ConfigSetting, Field(description="The value in force.", examples=[-1])]
    source: Annotated[
        Literal["topic", "service", "default"],
        Field(description="Origin of the value: this topic, the service's settings, or the built-in default."),
    ]


class PartitionDescription(Schema):
    """One partition's limits and size. Every end is exclusive."""

    partition: Partition
    leader_epoch: Annotated[int, Field(ge=-1, description="Generation of the partition's leader.", examples=[0])]
    log_start_offset: Annotated[Offset, Field(description="First readable offset.", examples=[0])]
    high_watermark: Annotated[Offset, Field(description="End of what consumers may read.", examples=[3])]
    last_stable_offset: Annotated[
        Offset, Field(description="End of what read_committed consumers may read.", examples=[3])
    ]
    log_end_offset: Annotated[Offset, Field(description="Offset the next record will get.", examples=[3])]
    recovery_point: Annotated[Offset, Field(description="Everything below survives a power cut.", examples=[3])]
    size_bytes: Annotated[Count, Field(description="Bytes of record batches.", examples=[12846])]
    segments: Annotated[Count, Field(description="Number of segments.", examples=[1])]
    replicas: Annotated[list[int], Field(description="Nodes that hold a copy.", examples=[[1]])]
    isr: Annotated[list[int], Field(description="Nodes whose copy is in sync.", examples=[[1]])]
    offline_reason: Annotated[
        str | None, Field(description="Reason that the partition takes no appends; null if it does.", examples=[None])
    ] = None


class TopicDescription(Schema):
    """A topic with its partitions and its settings in force."""

    name: TopicName
    topic_id: Annotated[
        str, Field(description="22 characters, never assigned twice.", examples=["vbX5CGHpTq2OyL3cZhW1Uw"])
    ]
    internal: Annotated[
        bool,
        Field(description="Whether it belongs to the service: it can be read and described, not written or changed."),
    ] = False
    partitions: Annotated[list[PartitionDescription], Field(description="Its partitions, by number.")]
    config: Annotated[
        dict[str, ConfigValue],
        Field(
            description="Its settings by their Kafka names.",
            examples=[{"retention.ms": {"value": -1, "source": "topic"}}],
        ),
    ]


class TopicPage(Schema):
    """One page of topics, sorted by name."""

    data: Annotated[list[TopicDescription], Field(description="The topics of this page.")]
    has_more: Annotated[bool, Field(description="Whether there are more: next_cursor leads to them.")]
    next_cursor: Annotated[str | None, Field(description="start_after of the next page; null: none.", examples=[None])]


class PartitionList(Schema):
    """All partitions of a topic."""

    topic_id: Annotated[
        str,
        Field(
            description="The topic's id. A topic of the same name that is created later has a different id.",
            examples=["vbX5CGHpTq2OyL3cZhW1Uw"],
        ),
    ]
    partitions: Annotated[list[PartitionDescription], Field(description="The partitions, by number.")]


class SegmentDescription(Schema):
    """One segment of a partition, oldest first."""

    base_offset: Annotated[Offset, Field(description="Offset of its first record.", examples=[0])]
    next_offset: Annotated[Offset, Field(description="End of the segment, exclusive.", examples=[3])]
    size_bytes: Annotated[Count, Field(description="Bytes of its record batches.", examples=[12846])]
    first_timestamp: Annotated[Long, Field(description="Of the first batch; -1: none.", examples=[1714564800000])]
    largest_timestamp: Annotated[Long, Field(description="-1: none.", examples=[1714566000000])]
    offset_index_entries: Annotated[Count, Field(description="Entries of its offset index.", examples=[3])]
    time_index_entries: Annotated[Count, Field(description="Entries of its time index.", examples=[3])]
    state: Annotated[str, Field(description="active or sealed; other values may be added.", examples=["active"])]


class SegmentList(Schema):
    """All segments of a partition."""

    partition: Partition
    segments: Annotated[list[SegmentDescription], Field(description="The segments, oldest first.")]
