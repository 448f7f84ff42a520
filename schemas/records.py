"""Records in JSON, and the answers to produce and fetch.

Bodies of records are read by faster coders than these models (app.translate); a test holds the two to the same
answers. What is written here is what the OpenAPI document shows.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, RootModel

from schemas.base import Count, Long, RecordTimestamp, Schema
from schemas.errors import Problem
from schemas.names import Offset, Partition

Encoding = Literal["utf8", "base64", "json"]
TimestampType = Literal["CreateTime", "LogAppendTime"]


def _base64(text: str) -> str:
    try:
        base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("must be base64 with its padding") from None
    return text


Base64Text = Annotated[str, AfterValidator(_base64), Field(json_schema_extra={"contentEncoding": "base64"})]


class Base64Bytes(Schema):
    """Bytes that are not text."""

    base64: Annotated[Base64Text, Field(description="RFC 4648, with padding.", examples=["AAEC/w=="])]


class RecordHeader(Schema):
    """One header of a record. Names may repeat; their order is kept."""

    name: Annotated[
        str | Base64Bytes,
        Field(
            description="Name of the header; it may occur again. Bytes that are not text are base64.",
            examples=["trace"],
        ),
    ]
    value: Annotated[
        str | Base64Bytes | None,
        Field(description="Text, or bytes that are not text; null: no value.", examples=["a1b2"]),
    ]


class _AppendedRecord(Schema):
    """What records to append have beside key and value. A record as it was fetched can be sent as it is."""

    headers: Annotated[list[RecordHeader], Field(description="In order, repeated names included.")] = Field(default=[])
    timestamp: Annotated[
        RecordTimestamp | None, Field(description="Absent and null: the time the service got it. -1: none.")
    ] = None
    offset: Annotated[Offset | None, Field(description="Of a fetched record; ignored.")] = None
    timestamp_type: Annotated[TimestampType | None, Field(description="Of a fetched record; ignored.")] = None


class ProducedRecord(_AppendedRecord):
    """A record to append."""

    key: Annotated[str | Base64Bytes | None, Field(description="Absent and null: no key.", examples=["kitchen"])] = None
    value: Annotated[str | Base64Bytes | None, Field(description="null: a tombstone.", examples=["21.5"])]
    partition: Annotated[Partition | None, Field(description="If given, the partition that the request is for.")] = None


class RoutedRecord(ProducedRecord):
    """A record to append to the partition it names, or that of its key, or any."""

    partition: Annotated[Partition | None, Field(description="Absent and null: by the key; without one: sticky.")] = (
        None
    )


class JsonProducedRecord(_AppendedRecord):
    """A record to append with ``encoding=json``: key and value are JSON, stored as its text.

    An object with ``base64`` alone is bytes.
    """

    key: Annotated[JsonValue, Field(description="Absent and null: no key.", examples=[7])] = None
    value: Annotated[
        JsonValue, Field(description="null: a tombstone.", examples=[{"sensor": "kitchen", "value": 21.5}])
    ]
    partition: Annotated[Partition | None, Field(description="If given, the partition that the request is for.")] = None


class JsonRoutedRecord(JsonProducedRecord):
    """A record of any JSON, to append to the partition it names, or that of its key, or any."""

    partition: Annotated[Partition | None, Field(description="Absent and null: by the key; without one: sticky.")] = (
        None
    )


class JsonRecordList(Schema):
    """Records to append to one partition with ``encoding=json``."""

    records: Annotated[list[JsonProducedRecord], Field(description="The records, in order.")]


class JsonRoutedRecordList(Schema):
    """Records to append to a topic with ``encoding=json``."""

    records: Annotated[list[JsonRoutedRecord], Field(description="The records, in order.")]


class RecordList(Schema):
    """Records to append to one partition."""

    records: Annotated[list[ProducedRecord], Field(description="The records, in order.")]


class RoutedRecordList(Schema):
    """Records to append to a topic."""

    records: Annotated[list[RoutedRecord], Field(description="The records, in order.")]


class ProduceResult(Schema):
    """Where the records of one partition went. ``base_offset`` and ``last_offset`` are -1 when there were none, and
    with acks=0, which does not wait to know them."""

    partition: Partition
    base_offset: Annotated[Long, Field(description="Offset of the first record.", examples=[0])]
    last_offset: Annotated[Long, Field(description="Offset of the last record, inclusive.", examples=[2])]
    record_count: Annotated[
        Count, Field(description="How many records were appended; with acks=0, taken.", examples=[3])
    ]
    log_append_time: Annotated[Long, Field(description="-1 unless the topic stamps records itself.", examples=[-1])]
    log_start_offset: Annotated[Offset, Field(description="First readable offset.", examples=[0])]
    durable_offset: Annotated[Offset, Field(description="Everything below survives a power cut.", examples=[3])]
    duplicate: Annotated[bool, Field(description="Whether these are the offsets of an earlier, equal request.")]
    throttle_time_ms: Annotated[
        Count,
        Field(
            description="How long the client is to wait, as it broke a quota; requests before are answered 429.",
            examples=[0],
        ),
    ] = 0


class ProduceFailure(Schema):
    """The records of one partition were not taken, or it is not known."""

    partition: Annotated[Partition | None, Field(description="null when no partition could be chosen.")]
    error: Annotated[Problem, Field(description="Why the records were not taken, or that it is not known.")]


class PartitionProduceOutcome(RootModel[ProduceResult | ProduceFailure]):
    """A line of the answer to lines of records: a batch's result, or the error that has ended the stream."""


class TopicProduceResult(Schema):
    """One result or error for each partition that was given records."""

    results: Annotated[
        list[ProduceResult | ProduceFailure],
        Field(description="One result or error for each partition that was given records."),
    ]
    throttle_time_ms: Annotated[
        Count,
        Field(
            description="How long the client is to wait, as it broke a quota; requests before are answered 429.",
            examples=[0],
        ),
    ] = 0


_Shown = str | Base64Bytes | None | dict[str, JsonValue] | list[JsonValue] | int | float | bool


class FetchedRecord(Schema):
    """A record as it is stored. What is not UTF-8 comes as ``{"base64": "..."}``."""

    offset: Offset
    timestamp: Annotated[Long, Field(description="Milliseconds since the epoch; -1: none.", examples=[1714566000000])]
    timestamp_type: Annotated[
        TimestampType,
        Field(description="Who gave the timestamp: the producer (CreateTime), or the log (LogAppendTime)."),
    ]
    key: Annotated[
        _Shown,
        Field(
            description="Text; bytes as base64; with encoding=json any other JSON. null: none.", examples=["kitchen"]
        ),
    ]
    value: Annotated[_Shown, Field(description="As key; null: a tombstone.", examples=["22.1"])]
    headers: Annotated[list[RecordHeader], Field(description="In order, repeated names included.", examples=[[]])]
    partition: Partition


class FetchResult(Schema):
    """Records of one partition, and where to go on."""

    records: Annotated[list[FetchedRecord], Field(description="The records, in the order of their offsets.")]
    next_offset: Annotated[Offset, Field(description="Fetch here next.", examples=[3])]
    log_start_offset: Annotated[Offset, Field(description="First readable offset.", examples=[0])]
    high_watermark: Annotated[Offset, Field(description="End of what consumers may read.", examples=[3])]
    last_stable_offset: Annotated[
        Offset, Field(description="End of what read_committed consumers may read.", examples=[3])
    ]
    log_end_offset: Annotated[Offset, Field(description="Offset the next record will get.", examples=[3])]
