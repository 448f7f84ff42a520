"""Transactions that nobody ends: open in a partition, unknown to the coordinator, as when its log was lost.

They keep readers of committed records waiting for ever. An operator finds them here, and aborts them one by one.
"""

from __future__ import annotations

from typing import NamedTuple

from app.engine_local.transactions.coordinator import TransactionCoordinator
from app.engine_local.transactions.logs import Logs
from app.engine_local.transactions.markers import MARKER_BYTES
from app.problems import kinds
from app.problems.problem import Problem
from log_model.errors import InvalidTxnStateError
from log_model.names import refuse_internal
from log_model.offsets import Offset
from log_model.transactions import TransactionMarker
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog
from storage.producers.producer_entry import ProducerEntry


class PartitionTransaction(NamedTuple):
    """A transaction that is open in one partition; ``transactional_id`` is ``None`` when the coordinator does not know
    it, and nobody but an operator will end it."""

    producer_id: int
    producer_epoch: int
    first_offset: Offset
    transactional_id: str | None


async def list_open(coordinator: TransactionCoordinator, log: PartitionLog) -> list[PartitionTransaction]:
    """The transactions that are open in this partition, the longest open first.

    Raises:
        PartitionOfflineError: nobody can tell whose they are, as the log of transactions could not be read.
    """
    await coordinator.start()
    entries = [entry for entry in log.producers.entries.values() if entry.is_in_transaction]
    entries.sort(key=lambda entry: entry.current_txn_first_offset)
    return [
        PartitionTransaction(
            entry.producer_id, entry.producer_epoch, entry.current_txn_first_offset, _owner(coordinator, log, entry)
        )
        for entry in entries
    ]


async def abort_hanging(
    coordinator: TransactionCoordinator,
    logs: Logs,
    log: PartitionLog,
    producer_id: int,
    first_offset: int,
    producer_epoch: int | None = None,
) -> AppendResult:
    """End a transaction that the coordinator does not know, with an abort marker in this partition; durable on return.

    Raises:
        InvalidTopicError: the topic is internal.
        InvalidTxnStateError: no such transaction is open here; maybe it was aborted before.
        Problem: the coordinator knows it; or overloaded.
        StorageError: the marker could not be written, or nobody can tell what the coordinator knew.
    """
    refuse_internal(log.name.topic)
    await coordinator.start()
    # Behind everything that was submitted before.
    entry = await logs.writer_of(log).run(lambda: log.producers.find(producer_id))
    if entry is None or not entry.is_in_transaction or entry.current_txn_first_offset != first_offset:
        raise InvalidTxnStateError(
            f"producer {producer_id} has no transaction open in {log.name} since offset {first_offset}"
        )
    if producer_epoch is not None and producer_epoch != entry.producer_epoch:
        raise InvalidTxnStateError(f"the transaction at offset {first_offset} is of epoch {entry.producer_epoch}")
    owner = _owner(coordinator, log, entry)
    if owner is not None:
        raise Problem(
            kinds.TRANSACTION_NOT_HANGING,
            f"the transaction belongs to {owner!r}: abort it there, for all its partitions",
            transactional_id=owner,
        )
    # Nothing waits between the look at the coordinator and this: whatever it enlists now is appended behind the marker.
    marker = TransactionMarker(producer_id, entry.producer_epoch, max(entry.coordinator_epoch, 0), commit=False)
    request = AppendRequest.marker(marker)
    return await logs.writer_of(log).append(request, size_bytes=MARKER_BYTES, wants_fsync=True).fsynced


def _owner(coordinator: TransactionCoordinator, log: PartitionLog, entry: ProducerEntry) -> str | None:
    """The transactional id whose open transaction this is."""
    name = coordinator.name_of(entry.producer_id)
    transaction = None if name is None else coordinator.find(name)
    if transaction is None or not transaction.is_open or log.name not in transaction.partitions:
        return None
    return name
