"""Producers with an identity: idempotent and transactional ones."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from schemas.base import LONG_MAX, Schema
from schemas.names import TransactionalId

PRODUCER_EPOCH_MAX = 2**15 - 1
TRANSACTION_TIMEOUT_MS_DEFAULT = 60_000
INT_MAX = 2**31 - 1

ProducerId = Annotated[
    int, Field(ge=0, le=LONG_MAX, description="Id of the producer; never assigned twice.", examples=[4000])
]
ProducerEpoch = Annotated[
    int,
    Field(
        ge=0,
        le=PRODUCER_EPOCH_MAX,
        description="Rises with each new instance of a transactional producer and with each end of a transaction; "
        "requests with an earlier one are refused.",
        examples=[0],
    ),
]


class ProducerRequest(Schema):
    """A request for an identity: of a new producer, or of the next instance of a transactional producer."""

    transactional_id: Annotated[
        TransactionalId | None,
        Field(description="Name of the transactional producer; absent: the producer id in the response is a new one."),
    ] = None
    transaction_timeout_ms: Annotated[
        int | None,
        Field(
            ge=1,
            le=INT_MAX,
            description="Age at which an open transaction is aborted; 60000 when absent. Only with a transactional_id.",
            examples=[60_000],
        ),
    ] = None

    @model_validator(mode="after")
    def _timeout_of_a_transaction(self) -> ProducerRequest:
        if self.transaction_timeout_ms is not None and self.transactional_id is None:
            raise ValueError("transaction_timeout_ms needs a transactional_id")
        return self


class Producer(Schema):
    """A producer's identity. Sequences begin at 0 in each partition."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
