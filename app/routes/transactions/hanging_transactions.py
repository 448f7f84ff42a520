"""Routes for the open transactions of one partition: list them, abort one that the coordinator does not know."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.access.needs import AccessOf, asks, needs
from app.access.operations import Operation, ResourceKind, transactional_id_resource
from app.openapi.documented_problems import BODY, NAMED, WRITE, problems
from app.paths import ABORT_HANGING, PARTITION_TRANSACTIONS
from app.routes.answers import request_body
from app.routes.dependencies import EngineOf, PartitionOf, json_body
from schemas.base import WholeNumber
from schemas.hanging_transactions import AbortHanging, AbortMarker, OpenTransaction, OpenTransactions
from schemas.names import OffsetParameter

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000

router = APIRouter(tags=["transactions"])


@router.get(
    PARTITION_TRANSACTIONS,
    operation_id="listOpenTransactions",
    summary="List the open transactions of a partition",
    responses=problems(*NAMED, "partition_offline"),
)
@needs(Operation.DESCRIBE, ResourceKind.TOPIC)
@asks(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
async def list_open_transactions(
    partition: PartitionOf,
    engine: EngineOf,
    access: AccessOf,
    start_after: Annotated[OffsetParameter | None, Query(description="next_cursor of the previous page.")] = None,
    limit: Annotated[
        int, WholeNumber(1, PAGE_SIZE_MAX), Query(description="Transactions per page.")
    ] = PAGE_SIZE_DEFAULT,
) -> OpenTransactions:
    """List one page of the partition's open transactions, the longest open first.

    Readers of committed records wait for them. The coordinator does not know a transaction that is `hanging`: it ends
    only when an operator aborts it.
    """
    found = await engine.transactions.open_in(partition)
    if start_after is not None:
        found = [each for each in found if each.first_offset > start_after]
    data = []
    for each in found[:limit]:
        owner = each.transactional_id
        is_shown = owner is not None and access.allows(Operation.DESCRIBE, transactional_id_resource(owner))
        data.append(
            OpenTransaction(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                first_offset=each.first_offset,
                transactional_id=owner if is_shown else None,
                hanging=owner is None,
            )
        )
    has_more = len(found) > len(data)
    cursor = str(data[-1].first_offset) if has_more else None
    return OpenTransactions(partition=partition.name.partition, data=data, has_more=has_more, next_cursor=cursor)


@router.post(
    ABORT_HANGING,
    operation_id="abortHangingTransaction",
    summary="Abort a hanging transaction",
    response_description="The abort marker is durable: readers of committed records continue, and skip the records of "
    "the transaction.",
    responses=problems(*BODY, *NAMED, *WRITE, "invalid_txn_state", "transaction_not_hanging"),
    openapi_extra=request_body(AbortHanging, example={"producer_id": 4000, "producer_epoch": 0, "first_offset": 17}),
)
@needs(Operation.ALTER, ResourceKind.CLUSTER)
async def abort_hanging_transaction(
    partition: PartitionOf, engine: EngineOf, body: Annotated[AbortHanging, Depends(json_body(AbortHanging))]
) -> AbortMarker:
    """Abort a transaction of this partition that the coordinator does not know, for example after its log was lost.

    If the coordinator knows the transaction, the request is refused with the `transactional_id`, which can be aborted
    instead. The same request sent again gets 409 `invalid_txn_state`.
    """
    marker_offset = await engine.transactions.abort_hanging(
        partition, body.producer_id, body.first_offset, body.producer_epoch
    )
    return AbortMarker(partition=partition.name.partition, marker_offset=marker_offset)
