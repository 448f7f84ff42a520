"""Open and hanging transactions of one partition."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Schema
from schemas.names import Offset, Partition
from schemas.producers import ProducerEpoch, ProducerId


class OpenTransaction(Schema):
    """One transaction that has not ended in this partition."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    first_offset: Annotated[Offset, Field(description="Offset of its first record in this partition.", examples=[17])]
    transactional_id: Annotated[
        str | None,
        Field(
            description="Its transactional id; null if it hangs, or if the caller may not describe the id.",
            examples=["orders-loader-1"],
        ),
    ]
    hanging: Annotated[
        bool, Field(description="True if the coordinator has no record of it and so never ends it.", examples=[False])
    ]


class OpenTransactions(Schema):
    """The open transactions of a partition, the longest open first."""

    partition: Partition
    data: Annotated[list[OpenTransaction], Field(description="The transactions, the longest open first.")]
    has_more: Annotated[bool, Field(description="Whether there are more than are shown.")]
    next_cursor: Annotated[str | None, Field(description="start_after of the next page; null: none.", examples=[None])]


class AbortHanging(Schema):
    """The hanging transaction to abort, as the list of open transactions shows it."""

    producer_id: ProducerId
    producer_epoch: Annotated[
        ProducerEpoch | None,
        Field(description="The producer's epoch in the transaction; absent: the epoch of the open transaction."),
    ] = None
    first_offset: Annotated[Offset, Field(description="Offset of its first record in this partition.", examples=[17])]


class AbortMarker(Schema):
    """The marker that aborted a hanging transaction."""

    partition: Partition
    marker_offset: Annotated[Offset, Field(description="Offset of the abort marker.", examples=[20])]
