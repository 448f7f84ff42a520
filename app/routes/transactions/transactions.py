"""Routes for transactions: commit, abort, list and describe."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.access.needs import AccessOf, asks, needs
from app.access.operations import Operation, ResourceKind, transactional_id_resource
from app.engine.engine import Engine
from app.engine.transactions import ProducerIdentity
from app.openapi.documented_problems import TRANSACTION, problems
from app.paths import ABORT, COMMIT, TRANSACTIONS
from app.paths import TRANSACTION as TRANSACTION_PATH
from app.problems import kinds
from app.problems.problem import Problem
from app.routes.answers import request_body
from app.routes.dependencies import EngineOf, TransactionalIdInPath, json_body
from app.routes.transaction_answers import STATES_OF, describe_transaction, summarise_transaction
from app.routes.transactions.producers import END_TIMEOUT_MS_DEFAULT, EndTimeout
from schemas.base import WholeNumber
from schemas.names import TRANSACTIONAL_ID_LENGTH_MAX
from schemas.transactions import EndTransaction, StateFilter, TransactionDescription, TransactionPage

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000

router = APIRouter(tags=["transactions"])

_END_BODY = request_body(EndTransaction, example={"producer_id": 4000, "producer_epoch": 0})
_EndBody = Annotated[EndTransaction, Depends(json_body(EndTransaction))]


@router.post(
    COMMIT,
    operation_id="commitTransaction",
    summary="Commit a transaction",
    response_description="The transaction is committed: every reader sees its records.",
    responses=problems(*TRANSACTION),
    openapi_extra=_END_BODY,
)
@needs(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def commit_transaction(
    transactional_id: TransactionalIdInPath,
    engine: EngineOf,
    body: _EndBody,
    timeout_ms: EndTimeout = END_TIMEOUT_MS_DEFAULT,
) -> TransactionDescription:
    """Commit the transaction: readers of committed records see all of its records, in all partitions.

    The response has the `producer_id` and `producer_epoch` of the next transaction, whose sequences begin at 0 again.
    From then on, requests with the previous `producer_id` and `producer_epoch` are refused (409 `producer_fenced`), so
    they cannot write into the next transaction.

    Send the same request again if the response was lost, or after 504: until the next transaction begins, it gets the
    same response. A transaction without records cannot be committed (409 `invalid_txn_state`).
    """
    return await _end(engine, transactional_id, body, commit=True, timeout_ms=timeout_ms)


@router.post(
    ABORT,
    operation_id="abortTransaction",
    summary="Abort a transaction",
    response_description="The transaction is aborted: readers of committed records never see its records.",
    responses=problems(*TRANSACTION),
    openapi_extra=_END_BODY,
)
@needs(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def abort_transaction(
    transactional_id: TransactionalIdInPath,
    engine: EngineOf,
    body: _EndBody,
    timeout_ms: EndTimeout = END_TIMEOUT_MS_DEFAULT,
) -> TransactionDescription:
    """Abort the transaction. Its records stay in the log, and readers of committed records skip them.

    As for a commit, the response has the `producer_id` and `producer_epoch` of the next transaction, and the same
    request may be sent again. An abort without records succeeds, and fences records that have not arrived yet.
    """
    return await _end(engine, transactional_id, body, commit=False, timeout_ms=timeout_ms)


async def _end(
    engine: Engine, transactional_id: str, body: EndTransaction, *, commit: bool, timeout_ms: int
) -> TransactionDescription:
    producer = ProducerIdentity(body.producer_id, body.producer_epoch)
    ended = await engine.transactions.end(transactional_id, producer, commit=commit, wait_ms=timeout_ms)
    return describe_transaction(ended)


@router.get(
    TRANSACTIONS,
    operation_id="listTransactions",
    summary="List transactions",
    responses=problems("invalid_request"),
)
@asks(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
async def list_transactions(
    engine: EngineOf,
    access: AccessOf,
    state: Annotated[
        StateFilter, Query(description="Only transactions in this state; open: all that have not ended.")
    ] = "open",
    start_after: Annotated[
        str, Query(max_length=TRANSACTIONAL_ID_LENGTH_MAX, description="next_cursor of the previous page.")
    ] = "",
    limit: Annotated[
        int, WholeNumber(1, PAGE_SIZE_MAX), Query(description="Transactional ids per page.")
    ] = PAGE_SIZE_DEFAULT,
) -> TransactionPage:
    """List one page of the transactional ids that the caller may describe, sorted.

    Without `state` the list has only transactional ids with an open transaction.
    """
    page = await engine.transactions.page(
        STATES_OF[state],
        start_after,
        limit + 1,
        lambda name: access.allows(Operation.DESCRIBE, transactional_id_resource(name)),
    )
    has_more = len(page) > limit
    data = [summarise_transaction(found) for found in page[:limit]]
    return TransactionPage(data=data, has_more=has_more, next_cursor=data[-1].transactional_id if has_more else None)


@router.get(
    TRANSACTION_PATH,
    operation_id="getTransaction",
    summary="Describe a transaction",
    responses=problems("invalid_request", "transactional_id_not_found"),
)
@needs(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
async def get_transaction(transactional_id: TransactionalIdInPath, engine: EngineOf) -> TransactionDescription:
    """Return the state of a transactional id and the partitions of its open transaction.

    Each partition has the reason why its marker is not written yet, if the transaction is ending.
    """
    found = await engine.transactions.describe(transactional_id)
    if found is None:
        detail = f"there is no transactional id {transactional_id!r}"
        raise Problem(kinds.TRANSACTIONAL_ID_NOT_FOUND, detail)
    return describe_transaction(found.transaction, found.waits)
