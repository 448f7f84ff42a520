"""Transactions: their states, and the request that ends one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Count, Long, Schema
from schemas.names import Partition, TopicName
from schemas.producers import ProducerEpoch, ProducerId

State = Literal["empty", "ongoing", "prepare_commit", "prepare_abort", "complete_commit", "complete_abort"]
StateFilter = Literal[
    "open", "all", "empty", "ongoing", "prepare_commit", "prepare_abort", "complete_commit", "complete_abort"
]

_TransactionalId = Annotated[str, Field(description="Name of the producer.", examples=["orders-loader-1"])]


class EndTransaction(Schema):
    """The producer that ends the transaction: the identity that its records were sent with.

    `POST /v1/producers` returns the first identity, and each commit or abort returns the next one.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class TransactionSummary(Schema):
    """One transactional id and its last transaction."""

    transactional_id: _TransactionalId
    state: Annotated[
        State,
        Field(
            description="empty: the producer has begun none yet. ongoing: it takes records. prepare_commit, "
            "prepare_abort: it is decided and is being ended. complete_commit, complete_abort: it has ended.",
            examples=["ongoing"],
        ),
    ]
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transaction_timeout_ms: Annotated[Count, Field(description="Age at which it is aborted.", examples=[60_000])]
    start_timestamp: Annotated[Long, Field(description="When it began; -1: none has begun.", examples=[1714564800000])]
    last_update_timestamp: Annotated[Long, Field(description="When its state last changed.", examples=[1714564800000])]
    partition_count: Annotated[Count, Field(description="Partitions it writes to; 0 once it has ended.", examples=[1])]


class TransactionPartition(Schema):
    """One partition that an open transaction writes to."""

    topic: TopicName
    partition: Partition
    waits_for: Annotated[
        str | None,
        Field(
            description="The reason that the decided transaction has not ended in this partition yet; null before the "
            "decision and after its marker.",
            examples=[None],
        ),
    ] = None


class TransactionDescription(TransactionSummary):
    """One transactional id, with the partitions of its open transaction."""

    partitions: Annotated[
        list[TransactionPartition],
        Field(description="Partitions that its open transaction writes to; empty once it has ended."),
    ]


class TransactionPage(Schema):
    """One page of transactional ids, sorted."""

    data: Annotated[list[TransactionSummary], Field(description="The transactional ids of this page.")]
    has_more: Annotated[bool, Field(description="Whether there are more: next_cursor leads to them.")]
    next_cursor: Annotated[str | None, Field(description="start_after of the next page; null: none.", examples=[None])]
