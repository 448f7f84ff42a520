"""Conversion of transactions to documents of the interface."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from app.engine.transactions import Transaction, TransactionState
from log_model.names import PartitionName
from schemas.transactions import (
    State,
    StateFilter,
    TransactionDescription,
    TransactionPartition,
    TransactionSummary,
)

_OPEN = frozenset({TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
_OURS = _OPEN | {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}

STATES_OF: dict[StateFilter, frozenset[TransactionState]] = {
    "open": _OPEN,
    "all": _OURS,
    **{cast("StateFilter", state.name.lower()): frozenset({state}) for state in _OURS},
}
"""The states that each filter of the list selects."""

_NO_WAITS: Mapping[PartitionName, str] = MappingProxyType({})


def summarise_transaction(transaction: Transaction) -> TransactionSummary:
    """Return the transaction's document for the list."""
    return TransactionSummary(**_summary(transaction))  # type: ignore[arg-type]


def describe_transaction(
    transaction: Transaction, waits: Mapping[PartitionName, str] = _NO_WAITS
) -> TransactionDescription:
    """Return the transaction's document with its partitions.

    ``waits`` has the reason why a partition's marker is not written yet.
    """
    return TransactionDescription(
        **_summary(transaction),  # type: ignore[arg-type]
        partitions=[
            TransactionPartition(topic=name.topic, partition=name.partition, waits_for=waits.get(name))
            for name in sorted(transaction.partitions)
        ],
    )


def _summary(transaction: Transaction) -> dict[str, object]:
    return {
        "transactional_id": transaction.transactional_id,
        "state": cast("State", transaction.state.name.lower()),
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "start_timestamp": transaction.start_ms,
        "last_update_timestamp": transaction.updated_ms,
        "partition_count": len(transaction.partitions),
    }
