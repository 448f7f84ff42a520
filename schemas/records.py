"""Records in JSON, and the responses to produce and fetch.

``app.record_json.translate`` reads bodies of records faster than these models do. A test holds both to the same
results. The OpenAPI document shows these models.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, RootModel, model_validator

from schemas.base import Count, Long, RecordTimestamp, Schema
from schemas.errors import Problem
from schemas.names import Offset, Partition

Encoding = Literal["utf8", "base64", "json"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
NOT_BASE64 = "must be base64 (RFC 4648, the alphabet with + and /) with its padding, without line breaks or spaces"


def _base64(text: str) -> str:
    try:
        base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError(NOT_BASE64) from None
    # Python accepts more padding than the RFC allows.
    if "===" in text:
        raise ValueError(NOT_BASE64)
    return text


Base64Text = Annotated[str, AfterValidator(_base64), Field(json_schema_extra={"contentEncoding": "base64"})]


def check_pair(model: Schema, name: str, *, needs_one: bool) -> None:
    """Require that at most one of ``name`` and ``name_base64`` has a value.

    With ``needs_one`` one of them must be present, null or not.

    Raises:
        ValueError: both have a value, or a required one is missing.
    """
    pair = (name, f"{name}_base64")
    if all(getattr(model, each) is not None for each in pair):
        raise ValueError(f"give {name} or {name}_base64, not both")
    if needs_one and not model.model_fields_set.intersection(pair):
        raise ValueError(f"give {name} or {name}_base64")


class RecordHeader(Schema):
    """One header of a record. Names may repeat; their order is kept.

    Responses have one member of each pair: ``name`` or ``name_base64``, ``value`` or ``value_base64``.
    """

    name: Annotated[
        str | None, Field(description="Name of the header, as text; it may occur again.", examples=["trace"])
    ] = None
    name_base64: Annotated[
        Base64Text | None, Field(description="Name of the header, if it is not UTF-8.", examples=["/w=="])
    ] = None
    value: Annotated[
        str | None,
        Field(description="The value as text; null: no value. Not with encoding=base64.", examples=["a1b2"]),
    ] = None
    value_base64: Annotated[
        Base64Text | None,
        Field(
            description="The value's bytes, if they are not UTF-8. With encoding=base64 always; null: no value.",
            examples=["AAEC/w=="],
        ),
    ] = None

    @model_validator(mode="after")
    def _has_one_of_each(self) -> Self:
        check_pair(self, "name", needs_one=True)
        if self.name is None and self.name_base64 is None:
            raise ValueError("a header has a name: give name or name_base64")
        check_pair(self, "value", needs_one=True)
        return self


class ProducedRecord(Schema):
    """A record to append. A fetched record can be sent unchanged.

    It has ``value`` or ``value_base64``, one of which may be null: a tombstone. Without ``key`` and ``key_base64``, or
    with null, it has no key. Both of a pair are an error, unless one of them is null.
    """

    key: Annotated[
        Any,
        Field(
            description="encoding=utf8: text. encoding=json: any JSON value, stored as its text. encoding=base64: "
            "absent or null. Null: no key.",
            examples=["kitchen"],
        ),
    ] = None
    key_base64: Annotated[
        Base64Text | None, Field(description="The key's bytes, with any encoding. Null: no key.", examples=["AAEC/w=="])
    ] = None
    value: Annotated[
        Any,
        Field(
            description="encoding=utf8: text. encoding=json: any JSON value, stored as its text. encoding=base64: "
            "absent or null. Null, without value_base64: a tombstone.",
            examples=["21.5"],
        ),
    ] = None
    value_base64: Annotated[
        Base64Text | None,
        Field(
            description="The value's bytes, with any encoding. Null, without value: a tombstone.", examples=["AAEC/w=="]
        ),
    ] = None
    headers: Annotated[list[RecordHeader], Field(description="In order, repeated names included.")] = Field(default=[])
    timestamp: Annotated[
        RecordTimestamp | None, Field(description="Absent and null: the time the service received it. -1: none.")
    ] = None
    partition: Annotated[Partition | None, Field(description="If given, the partition that the request is for.")] = None
    offset: Annotated[Offset | None, Field(description="Offset of a fetched record; ignored.")] = None
    timestamp_type: Annotated[TimestampType | None, Field(description="Type of a fetched record; ignored.")] = None

    @model_validator(mode="after")
    def _has_one_of_each(self) -> Self:
        check_pair(self, "key", needs_one=False)
        check_pair(self, "value", needs_one=True)
        return self


class RoutedRecord(ProducedRecord):
    """A record to append to the partition that it names, else to its key's partition, else to any.

    Key and value are as in a record for one partition.
    """

    partition: Annotated[
        Partition | None, Field(description="Absent and null: chosen by the key, or sticky without a key.")
    ] = None


class RecordList(Schema):
    """Records to append to one partition."""

    records: Annotated[list[ProducedRecord], Field(description="The records, in order.")]


class RoutedRecordList(Schema):
    """Records to append to a topic."""

    records: Annotated[list[RoutedRecord], Field(description="The records, in order.")]


class ProduceResult(Schema):
    """The offsets of the records appended to one partition. ``base_offset`` and ``last_offset`` are -1 if there were no
    records, and with acks=0, which does not wait for them."""

    partition: Partition
    base_offset: Annotated[Long, Field(description="Offset of the first record.", examples=[0])]
    last_offset: Annotated[Long, Field(description="Offset of the last record, inclusive.", examples=[2])]
    record_count: Annotated[
        Count, Field(description="Number of records appended; with acks=0, accepted.", examples=[3])
    ]
    log_append_time: Annotated[
        Long, Field(description="Timestamp the log gave the records; -1 if they keep theirs.", examples=[-1])
    ]
    log_start_offset: Annotated[Offset, Field(description="First readable offset.", examples=[0])]
    durable_offset: Annotated[Offset, Field(description="Everything below survives a power cut.", examples=[3])]
    duplicate: Annotated[bool, Field(description="Whether these are the offsets of an earlier, equal request.")]
    throttle_time_ms: Annotated[
        Count,
        Field(
            description="Milliseconds to wait because the client exceeded a quota; earlier requests get 429.",
            examples=[0],
        ),
    ] = 0


class ProduceFailure(Schema):
    """A failed append to one partition. Its records were not appended, or it is unknown whether they were."""

    partition: Annotated[Partition | None, Field(description="null if no partition could be chosen.")]
    error: Annotated[Problem, Field(description="The error; `applied` is unknown if the records may be appended.")]


class PartitionProduceOutcome(RootModel[ProduceResult | ProduceFailure]):
    """A line of the response to lines of records: a batch's result, or the error that ended the stream."""


class TopicProduceResult(Schema):
    """One result or error for each partition that the request has records for."""

    results: Annotated[
        list[ProduceResult | ProduceFailure],
        Field(description="One result or error for each partition that the request has records for."),
    ]
    throttle_time_ms: Annotated[
        Count,
        Field(
            description="Milliseconds to wait because the client exceeded a quota; earlier requests get 429.",
            examples=[0],
        ),
    ] = 0


class FetchedRecord(Schema):
    """A record as it is stored.

    It has ``key`` or ``key_base64``, and ``value`` or ``value_base64``: one of each pair. With ``encoding=base64`` it
    has the second of a pair. Otherwise it has the first, unless the bytes are not UTF-8, or not JSON with
    ``encoding=json``.
    """

    offset: Offset
    timestamp: Annotated[Long, Field(description="Milliseconds since the epoch; -1: none.", examples=[1714566000000])]
    timestamp_type: Annotated[
        TimestampType,
        Field(description="Origin of the timestamp: the producer (CreateTime), or the log (LogAppendTime)."),
    ]
    key: Annotated[
        Any,
        Field(
            description="encoding=utf8: text. encoding=json: the JSON value that is stored. Null: no key.",
            examples=["kitchen"],
        ),
    ] = None
    key_base64: Annotated[
        Base64Text | None,
        Field(
            description="The key's bytes: with encoding=base64, and where key cannot show them. With encoding=base64 "
            "null: no key.",
            examples=["AAEC/w=="],
        ),
    ] = None
    value: Annotated[
        Any,
        Field(
            description="encoding=utf8: text. encoding=json: the JSON value that is stored. Null: a tombstone.",
            examples=["22.1"],
        ),
    ] = None
    value_base64: Annotated[
        Base64Text | None,
        Field(
            description="The value's bytes: with encoding=base64, and where value cannot show them, as the text null "
            "with encoding=json. With encoding=base64 null: a tombstone.",
            examples=["AAEC/w=="],
        ),
    ] = None
    headers: Annotated[list[RecordHeader], Field(description="In order, repeated names included.", examples=[[]])]
    partition: Partition


class FetchResult(Schema):
    """Records of one partition, and the offset for the next fetch."""

    records: Annotated[list[FetchedRecord], Field(description="The records, in the order of their offsets.")]
    next_offset: Annotated[Offset, Field(description="Offset for the next fetch.", examples=[3])]
    log_start_offset: Annotated[Offset, Field(description="First readable offset.", examples=[0])]
    high_watermark: Annotated[Offset, Field(description="End of what consumers may read.", examples=[3])]
    last_stable_offset: Annotated[
        Offset, Field(description="End of what read_committed consumers may read.", examples=[3])
    ]
    log_end_offset: Annotated[Offset, Field(description="Offset the next record will get.", examples=[3])]
