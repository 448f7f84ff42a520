"""The step that gives a transactional id to a new instance of its producer."""

from __future__ import annotations

import asyncio

from app.engine.transactions import NO_PRODUCER_ID, ProducerIdentity, Transaction
from app.engine_local.logs import Logs
from app.engine_local.transactions.endings import Endings
from app.engine_local.transactions.limits import OVERLOAD_RETRY_AFTER_MS, TransactionLimits
from app.engine_local.transactions.log import state
from app.engine_local.transactions.log.state import TransactionTable
from app.engine_local.transactions.log.state_log import TransactionStateLog
from app.engine_local.transactions.sessions import Session
from app.problems import kinds
from app.problems.problem import Problem
from log_model.errors import ConcurrentTransactionsError, DiskFullError


class Initialiser:
    """One step of the coordinator's ``initialise``. Thread: the event loop."""

    def __init__(
        self,
        logs: Logs,
        limits: TransactionLimits,
        table: TransactionTable,
        state_log: TransactionStateLog,
        endings: Endings,
    ) -> None:
        self._logs = logs
        self._limits = limits
        self._table = table
        self._state_log = state_log
        self._endings = endings

    async def initialise(
        self, session: Session, transactional_id: str, timeout_ms: int
    ) -> ProducerIdentity | asyncio.Future[Transaction]:
        """Return the identity of the new instance. The caller holds the session's lock.

        If the last transaction has no end yet, return a future that is done when it ends; then call again.

        Raises:
            ConcurrentTransactionsError: the last transaction ended, and its completion is not written down yet.
            DiskFullError: the record of completion waits for space on a disk.
            Problem: overloaded.
            StorageError: the change could not be written down.
        """
        existing = self._table.find(transactional_id)
        if existing is None and len(self._table) >= self._limits.id_count_max:
            raise Problem(
                kinds.OVERLOADED,
                f"there are {len(self._table)} transactional ids; idle ones are forgotten in time",
                retry_after_ms=OVERLOAD_RETRY_AFTER_MS,
            )
        if existing is not None and existing.is_ongoing:
            return await self._endings.decide(session, state.fence(existing, self._logs.now_ms()))
        if existing is not None and existing.is_ending:
            assert session.ended is not None
            if session.space_wanted is not None:
                raise DiskFullError(session.space_wanted)
            if session.ended.done():
                raise ConcurrentTransactionsError(f"the end of the last transaction of {transactional_id!r} waits")
            return session.ended
        fresh_id = NO_PRODUCER_ID
        if existing is None or state.needs_producer_id(existing):
            fresh_id = await self._logs.allocate_producer_id()
        given = state.initialise(existing, transactional_id, timeout_ms, self._logs.now_ms(), lambda: fresh_id)
        await self._state_log.write(given)
        self._table.put(given)
        return ProducerIdentity(given.producer_id, given.producer_epoch)
