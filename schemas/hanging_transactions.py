"""Transactions of one partition."""

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
    first_offset: Annotated[Offset, Field(description="Where it begins in this partition.", examples=[17])]
    transactional_id: Annotated[
        str | None,
        Field(
            description="Whose it is; null when it hangs, or when the caller may not describe the id.",
            examples=["orders-loader-1"],
        ),
    ]
    hanging: Annotated[
        bool, Field(description="Whether the coordinator does not know it, and so will not end it.", examples=[False])
    ]


class OpenTransactions(Schema):
    """The open transactions of a partition, the longest open first."""

    partition: Partition
    data: Annotated[list[OpenTransaction], Field(description="The transactions, the longest open first.")]
    has_more: Annotated[bool, Field(description="Whether there are more than are shown.")]
    next_cursor: Annotated[str | None, Field(description="Give it as start_after to go on.", examples=[None])]


class AbortHanging(Schema):
    """Which transaction: as the list of open ones shows it."""

    producer_id: ProducerId
    producer_epoch: Annotated[
        ProducerEpoch | None,
        Field(description="The producer's epoch in the transaction; absent: that of the open transaction."),
    ] = None
    first_offset: Annotated[Offset, Field(description="Where the transaction begins in this partition.", examples=[17])]


class AbortMarker(Schema):
    """A transaction was ended."""

    partition: Partition
    marker_offset: Annotated[Offset, Field(description="Where its abort marker is.", examples=[20])]
