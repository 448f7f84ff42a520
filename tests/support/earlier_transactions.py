"""Transactions as earlier revisions ended them: the epoch stays, so that a late request fits the next one too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app.engine.transactions import NO_PRODUCER_ID, Transaction
from app.engine_local.transactions.log import state


def end_as_before(patch: Callable[[Any, str, object], None] = setattr) -> None:
    """Let ends keep the epoch from now on; ``patch`` sets an attribute of a module."""
    prepared = state._prepared

    def with_the_same_epoch(transaction: Transaction, **options: Any) -> Transaction:
        decided = prepared(transaction, **options)
        return replace(decided, producer_epoch=transaction.producer_epoch, version=0, next_producer_id=NO_PRODUCER_ID)

    patch(state, "_prepared", with_the_same_epoch)
    patch(state, "_raised", lambda transaction, _: transaction)
