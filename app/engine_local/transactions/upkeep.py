"""The coordinator's background work: timeouts, transactional ids that were idle for too long, a shorter log."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Sequence

from app.engine.attempt_names import is_attempt
from app.engine.transactions import Transaction
from app.engine_local.logs import Logs
from app.engine_local.transactions.endings import Endings
from app.engine_local.transactions.limits import TransactionLimits
from app.engine_local.transactions.log import state
from app.engine_local.transactions.log.state import TransactionTable
from app.engine_local.transactions.log.state_log import TransactionStateLog
from app.engine_local.transactions.sessions import Session
from app.engine_local.transactions.turns import Turns
from app.event_loop.piecewise import pieces
from app.problems.problem import Problem
from log_model.errors import StorageError

logger = logging.getLogger(__name__)

EXPIRED_COUNT = 5_000
"""Limit on the transactional ids that are forgotten before the next look at timeouts."""
WRITTEN_COUNT = 64
"""Limit on the transactions that are written again in one turn of the loop."""


class Upkeep:
    """Aborts timed-out transactions, forgets expired ids, and shortens the log. Thread: the event loop."""

    def __init__(
        self,
        logs: Logs,
        limits: TransactionLimits,
        table: TransactionTable,
        state_log: TransactionStateLog,
        turns: Turns,
        endings: Endings,
    ) -> None:
        self._logs = logs
        self._limits = limits
        self._table = table
        self._state_log = state_log
        self._turns = turns
        self._endings = endings

    async def run(self) -> None:
        """Do all background work that is due now.

        Raises:
            Problem: overloaded.
            StorageError: a change could not be written down.
        """
        await self.abort_timed_out()
        while await self.expire() == EXPIRED_COUNT:
            # All ids may expire at the same time. Readers must not wait until all of them are forgotten.
            await self.abort_timed_out()
        await self.shorten_log()

    async def abort_timed_out(self) -> int:
        """Abort every transaction that is older than its timeout, and fence its producer. Return their number."""
        count = 0
        failure: StorageError | Problem | None = None
        async for piece in pieces(self._table):
            for transaction in filter(self._table.is_timed_out, piece):
                name = transaction.transactional_id
                if is_attempt(name):
                    continue
                try:
                    count += await self._turns.in_turn(name, functools.partial(self._abort_timed_out, name))
                except (StorageError, Problem) as error:
                    # A transaction that cannot be aborted now must not keep others open.
                    failure = error
        if failure is not None:
            raise failure
        return count

    async def _abort_timed_out(self, name: str, session: Session) -> bool:
        transaction = self._table.find(name)
        if transaction is None or not self._table.is_timed_out(transaction):
            return False
        logger.warning("the transaction of %r is aborted: it is older than %d ms", name, transaction.timeout_ms)
        await self._endings.decide(session, state.fence(transaction, self._logs.now_ms()))
        return True

    async def expire(self, count_max: int = EXPIRED_COUNT) -> int:
        """Forget at most ``count_max`` transactional ids that were idle for too long. Return their number."""
        count = 0
        async for piece in pieces(self._table):
            for transaction in piece:
                name = transaction.transactional_id
                if count == count_max:
                    return count
                if self._table.is_expired(transaction, self._limits.expiration_ms) and not is_attempt(name):
                    count += await self._turns.in_turn(name, functools.partial(self._expire, name))
        return count

    async def _expire(self, name: str, _: Session) -> bool:
        transaction = self._table.find(name)
        if transaction is None or not self._table.is_expired(transaction, self._limits.expiration_ms):
            return False
        await self._state_log.note_forgotten([name])
        self._table.remove(name)
        return True

    async def shorten_log(self) -> bool:
        """Write the current transactions again and delete the rest of the log, if most of its records are replaced.

        Return whether the log was shortened.
        """
        if not self._state_log.is_long(len(self._table)):
            return False
        await self._state_log.shorten(self._live())
        return True

    async def _live(self) -> AsyncGenerator[Sequence[Transaction], None]:
        # The sessions are included: an id that is being written down for the first time is not in the table yet.
        names = dict.fromkeys((*(each.transactional_id for each in self._table), *self._turns.sessions))
        for count, name in enumerate(names, start=1):
            session = self._turns.enter(name)
            try:
                async with session.lock:
                    current = self._table.find(name)
                    if current is not None:
                        yield [current]
            finally:
                self._turns.leave(name, session)
            if count % WRITTEN_COUNT == 0:
                await asyncio.sleep(0)
