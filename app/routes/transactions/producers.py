"""Route that gives a producer its identity."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.access.needs import AccessOf, asks
from app.access.operations import Operation, ResourceKind, transactional_id_resource
from app.openapi.documented_problems import PRODUCER, problems
from app.paths import PRODUCERS
from app.routes.answers import request_body
from app.routes.dependencies import EngineOf, json_body
from schemas.base import WholeNumber
from schemas.producers import TRANSACTION_TIMEOUT_MS_DEFAULT, Producer, ProducerRequest

END_TIMEOUT_MS_DEFAULT = 30_000
END_TIMEOUT_MS_MAX = 600_000

EndTimeout = Annotated[
    int,
    WholeNumber(1, END_TIMEOUT_MS_MAX),
    Query(description="Milliseconds to wait for the markers of the ending transaction; the end goes on afterwards."),
]

router = APIRouter(tags=["transactions"])


@router.post(
    PRODUCERS,
    operation_id="initialiseProducer",
    summary="Get a producer id, or take over a transactional one",
    response_description="The identity of the producer.",
    responses=problems(*PRODUCER, "invalid_transaction_timeout"),
    openapi_extra=request_body(
        ProducerRequest,
        required=False,
        example={"transactional_id": "orders-loader-1", "transaction_timeout_ms": 60_000},
    ),
)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
@asks(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER)
@asks(Operation.WRITE, ResourceKind.TOPIC)
async def initialise_producer(
    engine: EngineOf,
    access: AccessOf,
    request: Annotated[ProducerRequest, Depends(json_body(ProducerRequest, optional=True))],
    timeout_ms: EndTimeout = END_TIMEOUT_MS_DEFAULT,
) -> Producer:
    """Return a new producer id; or, with a `transactional_id`, the next epoch of its producer.

    A new producer id was never given before, and is for idempotent producing. If authentication is on, it belongs to
    the caller: other principals cannot write with it.

    With a `transactional_id` every earlier instance of the producer is fenced from then on (409 `producer_fenced`). A
    transaction that it left open is aborted first; 503 `concurrent_transactions` if that takes too long.
    """
    if request.transactional_id is None:
        access.require_producer_id()
        given = await engine.transactions.allocate(access.principal if access.is_authenticated else None)
    else:
        access.require(Operation.WRITE, transactional_id_resource(request.transactional_id))
        lasting_ms = request.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS_DEFAULT
        given = await engine.transactions.initialise(request.transactional_id, lasting_ms, timeout_ms)
    return Producer(producer_id=given.producer_id, producer_epoch=given.producer_epoch)
