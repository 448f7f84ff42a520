"""Transactions that are decided together: the attempts of load jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from app.engine.attempt_names import is_attempt
from app.engine.transactions import Transaction
from app.engine_local.transactions.log import state
from log_model.names import PartitionName

if TYPE_CHECKING:
    from tests.memory_engine.transactions import MemoryTransactions

_TIMEOUT_MS = 2**31 - 1


def _refuse(name: str) -> None:
    raise AssertionError(f"{name!r} has no owner")


class MemoryAttempts:
    """Makes, decides and ends attempts; see ``Attempts`` of the port. Thread: the event loop."""

    def __init__(self, transactions: MemoryTransactions) -> None:
        self.guard: Callable[[str], None] = _refuse
        self._transactions = transactions

    async def all(self) -> list[Transaction]:
        """Return every attempt that is known."""
        return [each for each in self._transactions.table if is_attempt(each.transactional_id)]

    async def partitions_of(self, names: Collection[str]) -> Mapping[str, Collection[PartitionName]]:
        """Return the partitions that each of these attempts writes to."""
        found = {name: self._transactions.table.find(name) for name in names}
        return {name: each.partitions for name, each in found.items() if each is not None}

    async def create(self, name_of: Callable[[int], str]) -> Transaction:
        """Make an attempt with a fresh producer id."""
        transactions = self._transactions
        transactions.check_room("those of jobs go with them")
        producer_id = transactions.fresh_id()
        made = Transaction(name_of(producer_id), producer_id, 0, _TIMEOUT_MS, updated_ms=transactions.now_ms())
        transactions.put(made)
        return made

    async def decide(
        self, names: Collection[str], winners: Collection[str], decision: Callable[[], Awaitable[None]]
    ) -> None:
        """Hold all these attempts while ``decision`` writes down how they end."""
        async with contextlib.AsyncExitStack() as held:
            for name in sorted(names):
                await held.enter_async_context(self._transactions.sessions[name].turn())
            await decision()

    async def finish(self, names: Collection[str], winners: Collection[str]) -> None:
        """Commit the winners and abort the others; what has ended stays as it is."""
        transactions = self._transactions
        for name in sorted(names):
            async with transactions.sessions[name].turn():
                found = transactions.table.find(name)
                if found is not None and found.is_ongoing:
                    now_ms, wins = transactions.now_ms(), name in winners
                    decided = state.end(
                        found, found.producer, commit=wins, now_ms=now_ms, allocate=transactions.fresh_id
                    )
                    transactions.finish(decided)

    async def forget(self, names: Sequence[str]) -> None:
        """Forget attempts that have ended or never wrote."""
        for name in names:
            self._transactions.remove(name)
