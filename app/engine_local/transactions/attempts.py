"""Transactions that are decided together: the attempts of load jobs. Each has a producer of its own, and writes once.

Their owner makes the decision durable in a log of its own. This module carries it out, in Kafka's states and markers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

from app.engine.attempt_names import is_attempt
from app.engine.transactions import Attempts, Transaction
from app.engine_local.logs import Logs
from app.engine_local.transactions.limits import OVERLOAD_RETRY_AFTER_MS, TransactionLimits
from app.engine_local.transactions.log import state
from app.engine_local.transactions.log.state import TransactionTable
from app.engine_local.transactions.log.state_log import TransactionStateLog
from app.engine_local.transactions.markers import MarkerWriter
from app.engine_local.transactions.sessions import Session
from app.engine_local.transactions.turns import Turns
from app.event_loop.piecewise import all_in_turns, pieces
from app.problems import kinds
from app.problems.problem import Problem
from log_model.names import PartitionName

_TIMEOUT_MS = 2**31 - 1
"""The timeout that is written down. The owner of the attempts ends them, and not their age."""
_AT_A_TIME = 200
"""Limit on the ends that run at a time: there may be more attempts than a mailbox takes."""


class LocalAttempts:
    """Makes, decides and ends attempts; see ``app.engine.transactions``. Thread: the event loop."""

    def __init__(
        self,
        logs: Logs,
        limits: TransactionLimits,
        table: TransactionTable,
        state_log: TransactionStateLog,
        markers: MarkerWriter,
        turns: Turns,
        begin_ending: Callable[[str], asyncio.Future[Transaction]],
    ) -> None:
        self._logs = logs
        self._limits = limits
        self._table = table
        self._state_log = state_log
        self._markers = markers
        self._turns = turns
        self._begin_ending = begin_ending
        self.guard: Callable[[str], None] = _no_owner
        """Called before records of an attempt are taken; raises if the attempt's owner has decided or decides now."""

    def check_open(self, name: str) -> None:
        """Return if this id is no attempt, or if the owner of the attempt lets it take records.

        Raises:
            ProducerFencedError: the attempt is over.
            ConcurrentTransactionsError: the attempt is being decided.
            PartitionOfflineError: the owner could not read its log.
        """
        if is_attempt(name):
            self.guard(name)

    async def all(self) -> list[Transaction]:
        """Return every attempt that is known."""
        return [transaction for transaction in self._table if is_attempt(transaction.transactional_id)]

    async def partitions_of(self, names: Collection[str]) -> Mapping[str, Collection[PartitionName]]:
        """Return the partitions that each of these attempts writes to."""
        found: dict[str, Collection[PartitionName]] = {}
        async for piece in pieces(names):
            for name in piece:
                transaction = self._table.find(name)
                if transaction is not None:
                    found[name] = transaction.partitions
        return found

    async def create(self, name_of: Callable[[int], str]) -> Transaction:
        """Make an attempt with a producer id that no producer had before. Durable: on return.

        Raises:
            Problem: overloaded.
            StorageError: the attempt could not be written down.
        """
        if len(self._table) >= self._limits.id_count_max:
            raise Problem(
                kinds.OVERLOADED,
                f"there are {len(self._table)} transactional ids; those of jobs go with them",
                retry_after_ms=OVERLOAD_RETRY_AFTER_MS,
            )
        producer_id = await self._logs.allocate_producer_id()
        made = Transaction(name_of(producer_id), producer_id, 0, _TIMEOUT_MS, updated_ms=self._logs.now_ms())

        async def write(_: Session) -> None:
            await self._state_log.write(made)
            self._table.put(made)

        await self._turns.in_turn(made.transactional_id, write)
        return made

    async def decide(
        self, names: Collection[str], winners: Collection[str], decision: Callable[[], Awaitable[None]]
    ) -> None:
        """Hold all these attempts while ``decision`` writes down how they end.

        No attempt takes a record meanwhile. Before ``decision`` is called, appends under way have reached their
        partitions, and the records of the winners are durable.

        Raises:
            Problem: overloaded.
            StorageError: a partition of a winner is offline.
            The errors of ``decision``.
        """
        async with contextlib.AsyncExitStack() as held:
            sessions = []
            for name in sorted(names):
                session = self._turns.enter(name)
                held.callback(self._turns.leave, name, session)
                await held.enter_async_context(session.lock)
                sessions.append(session)
            for session in sessions:
                await held.enter_async_context(_closed(session))
            for winner in sorted(winners):
                transaction = self._table.find(winner)
                if transaction is not None:
                    await self._markers.make_records_durable(transaction)
            await decision()

    async def finish(self, names: Collection[str], winners: Collection[str]) -> None:
        """Commit the winners and abort the other attempts, as was decided. On return every reader sees it.

        The call may be repeated, also after a restart: an attempt that has ended stays as it is.

        Raises:
            Problem: overloaded; some attempts may have ended.
            StorageError: an end could not be written down, or the service stops; some attempts may have ended.
        """
        turns = asyncio.Semaphore(_AT_A_TIME)

        async def end(name: str) -> Exception | None:
            try:
                async with turns:
                    ended = await self._turns.in_turn(name, lambda session: self._end(session, name, name in winners))
                    if ended is not None:
                        await asyncio.shield(ended)
            except Exception as error:  # noqa: BLE001 - raised once all other attempts have ended
                return error
            return None

        for failure in await all_in_turns(map(end, sorted(names))):
            if failure is not None:
                raise failure

    async def _end(self, session: Session, name: str, commit: bool) -> asyncio.Future[Transaction] | None:
        transaction = self._table.find(name)
        if transaction is None:
            return None
        if transaction.is_ongoing:
            async with _closed(session):
                decided = state.end(
                    transaction, transaction.producer, commit=commit, now_ms=self._logs.now_ms(), allocate=_no_other_id
                )
                await self._state_log.write(decided)
                self._table.put(decided)
            return self._begin_ending(name)
        return session.ended if transaction.is_ending else None

    async def forget(self, names: Sequence[str]) -> None:
        """Forget attempts that have ended or never wrote. The next start may still find them.

        Raises:
            Problem: overloaded.
            StorageError: the change could not be written down.
        """
        known = [name for name in names if self._table.find(name) is not None]
        if known:
            await self._state_log.note_forgotten(known)
            for name in known:
                self._table.remove(name)
                session = self._turns.sessions.get(name)
                if session is not None and session.users == 0 and session.in_flight == 0:
                    del self._turns.sessions[name]


@contextlib.asynccontextmanager
async def _closed(session: Session) -> AsyncIterator[None]:
    """Let no append start in the context, which begins once all appends under way have reached their partitions."""
    session.closing = True
    try:
        await session.drained()
        yield
    finally:
        session.closing = False


def _no_other_id() -> int:
    raise AssertionError("an attempt writes one transaction: its epochs are not used up")


def _no_owner(name: str) -> None:
    raise AssertionError(f"{name!r} has no owner")


_: type[Attempts] = LocalAttempts
