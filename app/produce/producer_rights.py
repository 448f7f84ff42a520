"""The right to write under a producer id.

The log recognises repetitions and transactions by the producer's id. A batch of another client under that id would take
the sequence of the owner's next batch. The owner's records would then be answered as duplicates, and be lost. So with
authentication an id has an owner: the transactional id, the load job, or the principal that POST /v1/producers gave it
to. An id that was never given is also refused: the next producer might get it.

A principal with CLUSTER_ACTION appends as a copy of the log does, and keeps the ids of other producers.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.access.access import Access
from app.access.operations import CLUSTER, Operation, transactional_id_resource
from app.engine.attempt_names import is_attempt
from app.produce.enlisting import transactional_id_of
from app.produce.submit import Producing
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import InvalidPidMappingError
from schemas.names import INTERNAL_ID_PREFIX


def require_producers(
    producing: Producing, access: Access, batches: Sequence[ValidBatch], named: str | None = None
) -> str | None:
    """Check as ``check_producers``, for a request to one partition. Its audit line is written on return."""
    try:
        return check_producers(producing, access, batches, named)
    finally:
        access.write_audit()


def check_producers(
    producing: Producing, access: Access, batches: Sequence[ValidBatch], named: str | None = None
) -> str | None:
    """Check that the caller may write as the producers of these batches. Return their transactional id, if any.

    ``named`` is the transactional id in the request. Without authentication every caller may use every id.

    Raises:
        Problem: 403, the caller may not use the transactional id or the load job.
        InvalidPidMappingError: an id is not the caller's; or as ``transactional_id_of``.
        InvalidTxnStateError: as ``transactional_id_of``.
        PartitionOfflineError: the owner of an id cannot be found out.
    """
    if named is not None:
        _require_write(access, named)
    owner = transactional_id_of(producing, batches, named)
    if not access.is_authenticated:
        return owner
    for producer_id in {batch.header.producer_id for batch in batches}:
        if producer_id >= 0:
            check_producer(producing, access, producer_id)
    return owner


def require_producer(producing: Producing, access: Access, producer_id: int) -> None:
    """Check as ``require_producers``, for a stream of records under one id."""
    try:
        check_producer(producing, access, producer_id)
    finally:
        access.write_audit()


def check_producer(producing: Producing, access: Access, producer_id: int) -> None:
    """Check that the caller may write under this id. Raises as ``check_producers``."""
    if not access.is_authenticated or producing.engine.producer_owners.principal_of(producer_id) == access.principal:
        return
    name = producing.engine.transactions.name_of(producer_id) or producing.jobs.application_of(producer_id)
    if name is not None and (is_attempt(name) or not name.startswith(INTERNAL_ID_PREFIX)):
        _require_write(access, name, f"as producer {producer_id}")
    elif not access.allows(Operation.CLUSTER_ACTION, CLUSTER):
        raise InvalidPidMappingError(
            f"producer {producer_id} was not given to {access.principal}: POST /v1/producers gives ids"
        )


def _require_write(access: Access, name: str, shown: str | None = None) -> None:
    """Require WRITE on the transactional id. A caller that may not see the id reads ``shown`` in the refusal."""
    refusal = access.refusal(Operation.WRITE, transactional_id_resource(name), shown)
    if refusal is not None:
        raise refusal
