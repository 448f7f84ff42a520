"""Ends of transactions: the durable decision, a marker in every partition, and the record of completion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from app.engine.transactions import NO_PRODUCER_ID, ProducerIdentity, Transaction
from app.engine_local.logs import Logs
from app.engine_local.transactions.log import state
from app.engine_local.transactions.log.state import TransactionTable
from app.engine_local.transactions.log.state_log import TransactionStateLog
from app.engine_local.transactions.markers import RETRY_MS_MAX, MarkerWriter
from app.engine_local.transactions.pool import Wait
from app.engine_local.transactions.sessions import Session
from app.engine_local.transactions.turns import Turns
from app.problems.problem import Problem
from log_model.errors import DiskFullError, InvalidPidMappingError, ShuttingDownError, StorageError
from log_model.names import PartitionName

logger = logging.getLogger(__name__)


class EndsLaterError(ShuttingDownError):
    """An error because the service stops between a decision and its markers."""


class Endings:
    """Decides transactions and ends them in the background. Thread: the event loop."""

    def __init__(
        self, logs: Logs, table: TransactionTable, state_log: TransactionStateLog, markers: MarkerWriter, turns: Turns
    ) -> None:
        self.is_stopping = False
        self._logs = logs
        self._table = table
        self._state_log = state_log
        self._markers = markers
        self._turns = turns

    def stop(self) -> None:
        """Give up the ends that wait for a partition. The next start goes on with them."""
        self.is_stopping = True
        self._markers.stop()

    async def pause(self, delay_ms: int) -> bool:
        """Wait before another try, or until ``hurry`` is called. Return false if the service stops."""
        if not self.is_stopping:
            await self._markers.pause(delay_ms)
        return not self.is_stopping

    def waits_of(self, name: str) -> Mapping[PartitionName, str]:
        """Return the partitions whose marker an ending transaction waits for, and why."""
        session = self._turns.sessions.get(name)
        return {} if session is None else dict(session.waits)

    def wait_of(self, name: str) -> Wait:
        """Return the cause for which the next transaction of this id waits."""
        transaction = self._table.find(name)
        if transaction is None or not transaction.is_ending:
            return Wait.NONE
        session = self._turns.sessions.get(name)
        if session is not None and session.space_wanted is not None:
            return Wait.SPACE
        return Wait.SPACE if any(map(self._markers.waits_for_space, transaction.partitions)) else Wait.MARKERS

    async def end(
        self, session: Session, name: str, producer: ProducerIdentity, *, commit: bool
    ) -> Transaction | asyncio.Future[Transaction]:
        """Commit or abort as the producer asks; see ``Transactions.end``. The caller holds the session's lock.

        Return the transaction if it has ended before, otherwise a future that is done when readers see the end.
        """
        transaction = self._table.find(name)
        if transaction is None:
            raise InvalidPidMappingError(f"there is no transactional id {name!r}")
        fresh_id = NO_PRODUCER_ID
        if state.needs_producer_id(transaction):
            fresh_id = await self._logs.allocate_producer_id()
        decided = state.end(transaction, producer, commit=commit, now_ms=self._logs.now_ms(), allocate=lambda: fresh_id)
        if decided is not transaction and decided.is_ending:
            return await self.decide(session, decided)
        if decided is not transaction:
            await self._state_log.write(decided)
            self._table.put(decided)
        if not decided.is_ending:
            return decided
        assert session.ended is not None
        return session.ended

    async def decide(self, session: Session, decided: Transaction) -> asyncio.Future[Transaction]:
        """Make a decision durable and begin to carry it out. The caller holds the session's lock.

        The future is done when readers see the end.
        """
        session.closing = True
        try:
            await session.drained()
            if decided.commits:
                await self._markers.make_records_durable(decided)
            await self._state_log.write(decided)
            self._table.put(decided)
        finally:
            session.closing = False
        return self.begin(decided.transactional_id)

    def begin(self, name: str) -> asyncio.Future[Transaction]:
        """Carry out the decision of this transaction in the background. The future is done when readers see the end."""
        session = self._turns.enter(name)
        session.ended = asyncio.get_running_loop().create_future()
        self._turns.tasks.spawn(self._finish(name, session, session.ended), f"ending a transaction of {name!r}")
        return session.ended

    async def _finish(self, name: str, session: Session, ended: asyncio.Future[Transaction]) -> None:
        """Write the markers, and then the record of completion. ``ended`` does not wait for its second try."""
        ending = self._table.find(name)
        assert ending is not None
        try:
            if not await self._markers.write(ending, self._state_log.coordinator_epoch, session.waits):
                return
            complete = state.complete(ending, self._logs.now_ms())
            while not self.is_stopping:
                try:
                    async with session.lock:
                        await self._state_log.note(complete)
                        self._table.put(complete)
                        session.ended = None
                    break
                except (StorageError, Problem) as error:
                    logger.warning("the end of a transaction of %r is not written down yet: %s", name, error)
                    session.space_wanted = str(error) if isinstance(error, DiskFullError) else None
                    _set_done(ended, complete)
                await self._markers.pause(RETRY_MS_MAX)
            _set_done(ended, complete)
        finally:
            session.space_wanted = None
            if not ended.done():
                ended.set_exception(EndsLaterError("the service is stopping"))
                # The exception counts as retrieved now: there may be no waiter.
                ended.exception()
            self._turns.leave(name, session)


def _set_done(future: asyncio.Future[Transaction], complete: Transaction) -> None:
    if not future.done():
        future.set_result(complete)
