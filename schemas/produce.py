"""Producing to many topic-partitions in one request.

The body is read by a faster coder than these models (app.produce.produce_body); a test holds both to the same answers.
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
"""As long as a text of Kafka's protocol. Longer than a topic's name can be: such a part is refused by itself."""
TopicNameInBody = Annotated[
    str, Field(max_length=TOPIC_TEXT_LENGTH_MAX, description="Name of the topic.", examples=["readings"])
]
ProducerId = Annotated[
    Annotated[int, Field(ge=0, le=PRODUCER_ID_MAX, json_schema_extra={"format": "int64"})] | None,
    Field(description="The producer of all `records`; record batches carry theirs themselves."),
]
ProducerEpoch = Annotated[Annotated[int, Field(ge=0, le=2**15 - 1)] | None, Field(description="Of the producer.")]
TransactionalId = Annotated[
    Annotated[str, Field(min_length=1, max_length=249)] | None,
    Field(description="Everything joins this id's transaction, which its producer ends with commit or abort."),
]


class PartToProduce(Schema):
    """What to append to one partition: either `records` or `record_batches`."""

    topic: TopicNameInBody
    partition: Partition
    record_batches: Annotated[
        Base64Text | None, Field(description="Instead of records: record batches of format 2, stored as they are.")
    ] = None
    base_sequence: Annotated[
        Annotated[int, Field(ge=0, le=2**31 - 1)] | None,
        Field(description="With producer_id: the sequence of the first of the records; the others count on."),
    ] = None
    records: Annotated[list[ProducedRecord] | None, Field(description="All of them are appended, or none.")] = None

    @model_validator(mode="after")
    def _has_one_of_both(self) -> Self:
        if (self.records is None) == (self.record_batches is None):
            raise ValueError("give either records or record_batches")
        return self


class PartsToProduce(Schema):
    """Records for many partitions. One may occur again: its records are appended in the order of the request."""

    transactional_id: TransactionalId = None
    producer_id: ProducerId = None
    producer_epoch: ProducerEpoch = None
    partitions: Annotated[list[PartToProduce], Field(description="What to append, by topic and partition.")]


class PartProduceResult(ProduceResult):
    """Where the records of one partition of the request went."""

    topic: TopicNameInBody


class RecordErrorOfBatch(Schema):
    """Why one record was refused; the others of its partition were as well."""

    batch_index: Annotated[
        Count, Field(description="Place of the record in its part of the request, from 0.", examples=[0])
    ]
    message: Annotated[str, Field(description="What is wrong with it.", examples=["the timestamp is before 1970"])]


class PartProduceFailure(Schema):
    """The records of one partition of the request were not taken, or it is not known."""

    topic: TopicNameInBody
    partition: Partition
    base_offset: Annotated[
        Long, Field(description="-1; after request_timed_out where the records are, if that is known.", examples=[-1])
    ]
    log_start_offset: Annotated[
        Long, Field(description="First readable offset; -1 where the error keeps it from being told.", examples=[-1])
    ]
    record_errors: Annotated[list[RecordErrorOfBatch], Field(description="The records at fault, if single ones are.")]
    error: Annotated[Problem, Field(description="Why the records were not taken, or that it is not known.")]


class PartsProduceResult(Schema):
    """One result or error for each part of the request, in its order."""

    results: Annotated[
        list[PartProduceResult | PartProduceFailure],
        Field(description="One result or error each, in the order of the request."),
    ]
    throttle_time_ms: Annotated[
        Count,
        Field(
            description="How long the client is to wait, as it broke a quota; requests before are answered 429.",
            examples=[0],
        ),
    ] = 0
