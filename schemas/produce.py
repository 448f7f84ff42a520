"""Producing to many topic-partitions in one request.

``app.produce.produce_body`` reads the body faster than these models do. A test holds both to the same results.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from schemas.base import Count, Long, Schema
from schemas.errors import Problem
from schemas.names import Partition
from schemas.records import Base64Text, ProducedRecord, ProduceResult

PRODUCER_ID_MAX = 2**62 - 1

TOPIC_TEXT_LENGTH_MAX = 32_767
"""The longest text of Kafka's protocol. A topic's name is shorter: only a part that has a longer one is refused."""
TopicNameInBody = Annotated[
    str, Field(max_length=TOPIC_TEXT_LENGTH_MAX, description="Name of the topic.", examples=["readings"])
]
ProducerId = Annotated[
    Annotated[int, Field(ge=0, le=PRODUCER_ID_MAX, json_schema_extra={"format": "int64"})] | None,
    Field(description="Id of the producer of all `records`; record batches carry their own."),
]
ProducerEpoch = Annotated[
    Annotated[int, Field(ge=0, le=2**15 - 1)] | None, Field(description="Epoch of the producer of `producer_id`.")
]
TransactionalId = Annotated[
    Annotated[str, Field(min_length=1, max_length=249)] | None,
    Field(description="All records join this id's transaction, which its producer ends with commit or abort."),
]


class PartToProduce(Schema):
    """The records to append to one partition: either `records` or `record_batches`."""

    topic: TopicNameInBody
    partition: Partition
    record_batches: Annotated[
        Base64Text | None, Field(description="Instead of records: record batches of format 2, stored as they are.")
    ] = None
    base_sequence: Annotated[
        Annotated[int, Field(ge=0, le=2**31 - 1)] | None,
        Field(description="With producer_id: sequence of the first record; each record after it has the next one."),
    ] = None
    records: Annotated[list[ProducedRecord] | None, Field(description="All of them are appended, or none.")] = None

    @model_validator(mode="after")
    def _has_one_of_both(self) -> Self:
        if (self.records is None) == (self.record_batches is None):
            raise ValueError("give either records or record_batches")
        return self


class PartsToProduce(Schema):
    """Records for many partitions. A partition may occur again: its records are appended in the request's order."""

    transactional_id: TransactionalId = None
    producer_id: ProducerId = None
    producer_epoch: ProducerEpoch = None
    partitions: Annotated[list[PartToProduce], Field(description="The records to append, by topic and partition.")]


class PartProduceResult(ProduceResult):
    """The offsets of the records that one part of the request appended."""

    topic: TopicNameInBody


class RecordErrorOfBatch(Schema):
    """The fault of one record. Because of it, all records of its part were refused."""

    batch_index: Annotated[
        Count, Field(description="Index of the record in its part of the request, from 0.", examples=[0])
    ]
    message: Annotated[str, Field(description="The fault, for people.", examples=["the timestamp is before 1970"])]


class PartProduceFailure(Schema):
    """A failed part of the request. Its records were not appended, or it is unknown whether they were."""

    topic: TopicNameInBody
    partition: Partition
    base_offset: Annotated[
        Long, Field(description="-1; after request_timed_out the first record's offset, if known.", examples=[-1])
    ]
    log_start_offset: Annotated[
        Long, Field(description="First readable offset; -1 if the error leaves it unknown.", examples=[-1])
    ]
    record_errors: Annotated[list[RecordErrorOfBatch], Field(description="The records at fault, if single ones are.")]
    error: Annotated[Problem, Field(description="The error; `applied` is unknown if the records may be appended.")]


class PartsProduceResult(Schema):
    """One result or error for each part of the request, in its order."""

    results: Annotated[
        list[PartProduceResult | PartProduceFailure],
        Field(description="One result or error each, in the order of the request."),
    ]
    throttle_time_ms: Annotated[
        Count,
        Field(
            description="Milliseconds to wait because the client exceeded a quota; earlier requests get 429.",
            examples=[0],
        ),
    ] = 0
