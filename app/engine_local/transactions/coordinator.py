"""The transaction coordinator: the states of ``state`` made durable, one transition of an id at a time.

Every transition is a task of its own: a client that goes away takes nothing back (invariant 8). Nothing is answered
before it is durable in ``__transaction_state``; the one exception is that a transaction is complete, which a restart
finds out again by writing the markers once more.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence

from app.engine.attempt_names import is_attempt
from app.engine.partitions import Partition
from app.engine.transactions import (
    NO_PRODUCER_ID,
    DescribedTransaction,
    PartitionTransaction,
    ProducerIdentity,
    Transaction,
    Transactions,
    TransactionState,
)
from app.engine_local.transactions.attempts import LocalAttempts
from app.engine_local.transactions.enlister import Enlister
from app.engine_local.transactions.hanging import HangingTransactions
from app.engine_local.transactions.last_sequences import last_sequences
from app.engine_local.transactions.left_open import LeftOpen
from app.engine_local.transactions.limits import OVERLOAD_RETRY_AFTER_MS, TransactionLimits
from app.engine_local.transactions.log import state
from app.engine_local.transactions.log.state import TransactionTable
from app.engine_local.transactions.log.state_log import StateLog
from app.engine_local.transactions.logs import Logs, log_behind
from app.engine_local.transactions.markers import RETRY_MS_MAX, MarkerWriter
from app.engine_local.transactions.pool import ProducerPool, UntilEnded, Wait, is_pooled
from app.engine_local.transactions.sessions import Enlistment, Session
from app.engine_local.transactions.turns import Turns
from app.event_loop.piecewise import pieces, smallest
from app.problems import kinds
from app.problems.problem import Problem
from log_model.errors import (
    ConcurrentTransactionsError,
    DiskFullError,
    InvalidPidMappingError,
    InvalidTransactionTimeoutError,
    PartitionOfflineError,
    ShuttingDownError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from log_model.names import PartitionName
from log_model.offsets import NO_TIMESTAMP, Offset
from rollway.records import BatchHeader

logger = logging.getLogger(__name__)

_WAITS_SHOWN_MAX = 100
EXPIRED_COUNT = 5_000
"""Transactional ids that are forgotten before timeouts are looked at again."""
WRITTEN_COUNT = 64
"""Transactions that are written again in one turn of the loop."""


class EndsLaterError(ShuttingDownError):
    """The service stops between a decision and its markers."""


class TransactionCoordinator:
    """All transactional ids of one data directory.

    Thread: the event loop. ``start`` comes before everything else; until it is through, everything waits for it.
    """

    def __init__(self, logs: Logs, limits: TransactionLimits | None = None) -> None:
        self._logs = logs
        self._limits = limits or TransactionLimits()
        self._table = TransactionTable(logs.protected_clock)
        self._state_log = StateLog(logs)
        self._markers = MarkerWriter(logs)
        self._turns = Turns(lambda name: self._table.find(name) is not None)
        self._sessions = self._turns.sessions
        self._tasks = self._turns.tasks
        self._loading: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._stopping = False
        self._left_open = LeftOpen(self, self._turns, logs.now_ms, self._pause)
        self.pool = ProducerPool(self.initialise, self._is_current, self._wait_of, self._left_open.abort)
        """Producers for requests that are a transaction each."""
        self._hanging = HangingTransactions(logs, self.start, self._owner_of)
        self.attempts = LocalAttempts(
            logs, self._limits, self._table, self._state_log, self._markers, self._turns, self._begin_ending
        )
        """Transactions that are ended together by somebody else, and never by their own timeout."""
        self._enlister = Enlister(
            logs, self._limits, self._table, self._state_log, self._markers, self.attempts.check_open
        )

    # The life of it

    async def start(self) -> None:
        """Read what was known at the last stop, and go on ending what was decided then.

        A damaged log does not keep the service from starting: transactions are refused then, and the reason is shown.
        """
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load(), name="reading __transaction_state")
        await asyncio.shield(self._loading)

    async def _load(self) -> None:
        try:
            known = await self._state_log.load()
        except (StorageError, OSError) as error:
            self._failure = str(error)
            logger.error("there are no transactions: %s", error)
            return
        for transaction in known:
            self._table.restore(transaction)
            if transaction.is_ending:
                self._begin_ending(transaction.transactional_id)
            elif transaction.is_ongoing and is_pooled(transaction.transactional_id):
                # The process before was its producer: readers need not wait for its timeout.
                self._left_open.abort(transaction.transactional_id, transaction.producer)

    async def _pause(self, delay_ms: int) -> bool:
        """Wait before another try, or until told to hurry; false when the service stops."""
        if not self._stopping:
            await self._markers.pause(delay_ms)
        return not self._stopping

    async def close(self) -> None:
        """Take nothing more and finish what runs; what waits for a partition is ended by the next start."""
        self._stopping = True
        self._markers.stop()
        await self._turns.finished()

    async def _check_ready(self) -> None:
        if self._stopping:
            raise ShuttingDownError("the service is stopping")
        if self._loading is None or not self._loading.done():
            await self.start()
        self._check_known()
        self._state_log.check_online()

    def _check_known(self) -> None:
        if self._failure is not None:
            raise PartitionOfflineError(f"there are no transactions: {self._failure}")

    @property
    def failure(self) -> str | None:
        """Why nothing is known of transactions, if so."""
        return self._failure

    # Looking

    def find(self, transactional_id: str) -> Transaction | None:
        """What is known of an id."""
        return self._table.find(transactional_id)

    def _is_current(self, transactional_id: str, producer: ProducerIdentity) -> bool:
        transaction = self._table.find(transactional_id)
        return transaction is not None and transaction.producer == producer

    def _wait_of(self, transactional_id: str) -> Wait:
        transaction = self._table.find(transactional_id)
        if transaction is None or not transaction.is_ending:
            return Wait.NONE
        session = self._sessions.get(transactional_id)
        if session is not None and session.space_wanted is not None:
            return Wait.SPACE
        return Wait.SPACE if any(map(self._markers.waits_for_space, transaction.partitions)) else Wait.MARKERS

    def name_of(self, producer_id: int) -> str | None:
        """The transactional id that has this producer id now.

        Raises:
            PartitionOfflineError: nobody can tell, as the log of transactions could not be read.
        """
        self._check_known()
        return self._table.find_name(producer_id)

    @property
    def largest_producer_id(self) -> int:
        """The largest producer id that a transactional id has, or goes on with; -1 for none."""
        return max((max(each.producer_id, each.next_producer_id) for each in self._table), default=-1)

    def waits_of(self, transactional_id: str) -> Mapping[PartitionName, str]:
        """The partitions whose marker an ending transaction waits for, and why."""
        session = self._sessions.get(transactional_id)
        return {} if session is None else dict(session.waits)

    async def describe(self, transactional_id: str) -> DescribedTransaction | None:
        """Return the transaction of this id; ``None`` if the id is not known."""
        transaction = self._table.find(transactional_id)
        return None if transaction is None else DescribedTransaction(transaction, self.waits_of(transactional_id))

    async def last_sequences(self, partition: PartitionName, producer_ids: Collection[int]) -> Mapping[int, int]:
        """Return the sequence of the last record of each of these producers in a partition; see ``Transactions``."""
        try:
            return await last_sequences(self._logs.partition(*partition), producer_ids)
        except UnknownTopicOrPartitionError:
            return {}

    async def open_in(self, partition: Partition) -> list[PartitionTransaction]:
        """Return the transactions that are open in this partition; see ``Transactions``."""
        return await self._hanging.open_in(log_behind(partition))

    async def abort_hanging(
        self, partition: Partition, producer_id: int, first_offset: int, producer_epoch: int | None = None
    ) -> Offset:
        """End a transaction that no transactional id has; see ``Transactions``."""
        return await self._hanging.abort(log_behind(partition), producer_id, first_offset, producer_epoch)

    def _owner_of(self, producer_id: int, partition: PartitionName) -> str | None:
        name = self.name_of(producer_id)
        transaction = None if name is None else self._table.find(name)
        if transaction is None or not transaction.is_open or partition not in transaction.partitions:
            return None
        return name

    async def page(
        self,
        states: frozenset[TransactionState],
        start_after: str,
        limit: int,
        is_shown: Callable[[str], bool] = lambda _: True,
    ) -> list[Transaction]:
        """The first ``limit`` ids in one of these states after ``start_after``, sorted, of those that are shown."""

        def is_wanted(transaction: Transaction) -> bool:
            name = transaction.transactional_id
            return transaction.state in states and name > start_after and is_shown(name)

        return await smallest(self._table, limit, lambda transaction: transaction.transactional_id, is_wanted)

    def open_count(self) -> int:
        """Transactions that readers of committed records wait for."""
        return self._table.open_count

    def id_count(self) -> int:
        """Transactional ids that are known."""
        return len(self._table)

    @property
    def is_busy(self) -> bool:
        """Whether a transition or the end of a transaction is under way."""
        return bool(self._tasks)

    # Producers

    async def allocate(self, principal: str | None = None) -> ProducerIdentity:
        """A producer that never was, without transactions; with ``principal`` no other may write under its id.

        Raises:
            CorruptionError, DiskFullError: no id can be had.
        """
        return ProducerIdentity(await self._logs.allocate_producer_id(principal), 0)

    async def initialise(
        self,
        transactional_id: str,
        timeout_ms: int,
        wait_ms: int,
        *,
        until_ended: UntilEnded = asyncio.shield,
    ) -> ProducerIdentity:
        """Give a transactional id to its producer's new instance, and shut the older ones out.

        An open transaction of an older instance is aborted first: ``until_ended`` waits for that, up to ``wait_ms``.

        Raises:
            InvalidTransactionTimeoutError: above what the service allows.
            ConcurrentTransactionsError: the open transaction was not ended in time; the abort goes on.
            Problem: overloaded.
            StorageError: it could not be written down.
        """
        await self._check_ready()
        if not 0 < timeout_ms <= self._limits.timeout_ms_max:
            raise InvalidTransactionTimeoutError(
                f"transaction_timeout_ms {timeout_ms} is not between 1 and {self._limits.timeout_ms_max}"
            )
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while True:
                    given = await self._turns.in_turn(
                        transactional_id, lambda session: self._initialise(session, transactional_id, timeout_ms)
                    )
                    if isinstance(given, ProducerIdentity):
                        return given
                    await until_ended(given)
        except TimeoutError:
            raise ConcurrentTransactionsError(
                f"the last transaction of {transactional_id!r} was not ended within {wait_ms} ms; that goes on"
            ) from None

    async def _initialise(
        self, session: Session, transactional_id: str, timeout_ms: int
    ) -> ProducerIdentity | asyncio.Future[Transaction]:
        existing = self._table.find(transactional_id)
        if existing is None and len(self._table) >= self._limits.id_count_max:
            raise Problem(
                kinds.OVERLOADED,
                f"there are {len(self._table)} transactional ids; idle ones are forgotten in time",
                retry_after_ms=OVERLOAD_RETRY_AFTER_MS,
            )
        if existing is not None and existing.is_ongoing:
            return await self.decide(session, state.fence(existing, self._logs.now_ms()))
        if existing is not None and existing.is_ending:
            assert session.ended is not None
            if session.space_wanted is not None:
                raise DiskFullError(session.space_wanted)
            if session.ended.done():
                raise ConcurrentTransactionsError(f"the end of the last transaction of {transactional_id!r} waits")
            return session.ended
        fresh_id = -1
        if existing is None or state.needs_producer_id(existing):
            fresh_id = await self._logs.allocate_producer_id()
        given = state.initialise(existing, transactional_id, timeout_ms, self._logs.now_ms(), lambda: fresh_id)
        await self._state_log.write(given)
        self._table.put(given)
        return ProducerIdentity(given.producer_id, given.producer_epoch)

    # Enlisting

    async def enlist(
        self,
        producer: ProducerIdentity,
        appends: Mapping[PartitionName, Sequence[BatchHeader]],
        transactional_id: str | None = None,
    ) -> Enlistment:
        """Make these partitions part of the producer's transaction, durably, before anything is appended to them.

        Given are the headers of what shall be appended. Free of charge for partitions that are part of it. A batch
        that is in its log already, or that cannot follow what is there, enlists nothing: a request of a transaction
        long ended that arrives late opens no other. Nor does a partition that is offline.

        Raises:
            InvalidPidMappingError: the producer belongs to no transactional id, or to another one than given.
            ProducerFencedError: a newer instance was initialised, or the transaction timed out.
            ConcurrentTransactionsError: the last transaction is being ended.
            Problem: overloaded, too_many_partitions.
            StorageError: it could not be written down.
        """
        await self._check_ready()
        name = self._table.find_name(producer.producer_id) if transactional_id is None else transactional_id
        transaction = None if name is None else self._table.find(name)
        if name is None or transaction is None:
            raise InvalidPidMappingError(f"producer {producer.producer_id} belongs to no transactional id")
        self.attempts.check_open(name)
        session = self._sessions.get(name)
        if session is not None and not session.closing and transaction.is_ongoing:
            enlisted = state.enlist(transaction, producer, appends, NO_TIMESTAMP)
            if enlisted is transaction:
                return Enlistment(session, {}, {})
        # The enlistment of a client that has gone away while it waited is given back.
        return await self._turns.in_turn(
            name, lambda session: self._enlister.enlist(session, name, producer, appends), undo=Enlistment.release
        )

    # Ending

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, wait_ms: int
    ) -> Transaction:
        """Commit or abort. When this returns, the decision is durable and every reader sees it.

        The producer of what is returned goes on with the next transaction. The same request again, after a lost answer
        and before the next transaction, returns the same.

        Raises:
            InvalidPidMappingError: the transactional id is not known, or it belongs to another producer.
            ProducerFencedError: a newer instance was initialised, the transaction timed out, or the request is one of
                an earlier transaction.
            InvalidTxnStateError: there is nothing to commit, or it has ended the other way.
            ConcurrentTransactionsError: the transaction before is being ended.
            Problem: request_timed_out; that goes on, and may yet fail while it is not decided.
            StorageError: it could not be written down.
        """
        await self._check_ready()
        if self._table.find(transactional_id) is None:
            raise InvalidPidMappingError(f"there is no transactional id {transactional_id!r}")
        try:
            async with asyncio.timeout(wait_ms / 1000):
                ended = await self._turns.in_turn(
                    transactional_id, lambda session: self._end(session, transactional_id, producer, commit=commit)
                )
                # Never what the table says now: that may be a newer instance, and its epoch would let this one back in.
                return ended if isinstance(ended, Transaction) else await asyncio.shield(ended)
        except TimeoutError:
            raise self._too_late(transactional_id, wait_ms) from None
        except EndsLaterError:
            detail = "the transaction is decided; the next start of the service ends it"
            raise Problem(kinds.SHUTTING_DOWN_UNFINISHED, detail) from None

    async def abort(self, transactional_id: str, producer: ProducerIdentity) -> None:
        """Abort, for a caller that does not go on with the producer. Durable: the decision, when this returns; the
        markers follow.

        Raises:
            as ``end``, but for request_timed_out.
        """
        await self._check_ready()
        await self._turns.in_turn(
            transactional_id, lambda session: self._end(session, transactional_id, producer, commit=False)
        )

    def _too_late(self, transactional_id: str, wait_ms: int) -> Problem:
        waits = self.waits_of(transactional_id)
        return Problem(
            kinds.REQUEST_TIMED_OUT,
            f"the transaction was not ended within {wait_ms} ms; that goes on, and the same request tells how it ended",
            waits_for=[
                {"topic": name.topic, "partition": name.partition, "reason": waits[name]}
                for name in sorted(waits)[:_WAITS_SHOWN_MAX]
            ],
        )

    async def _end(
        self, session: Session, name: str, producer: ProducerIdentity, *, commit: bool
    ) -> Transaction | asyncio.Future[Transaction]:
        transaction = self._table.find(name)
        if transaction is None:
            raise InvalidPidMappingError(f"there is no transactional id {name!r}")
        fresh_id = await self._logs.allocate_producer_id() if state.needs_producer_id(transaction) else NO_PRODUCER_ID
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
        """Make a decision durable and begin to carry it out; done when readers see it. Holds the session's lock."""
        session.closing = True
        try:
            await session.drained()
            if decided.commits:
                await self._markers.make_records_durable(decided)
            await self._state_log.write(decided)
            self._table.put(decided)
        finally:
            session.closing = False
        return self._begin_ending(decided.transactional_id)

    def _begin_ending(self, name: str) -> asyncio.Future[Transaction]:
        session = self._turns.enter(name)
        session.ended = asyncio.get_running_loop().create_future()
        self._turns.spawn(self._finish(name, session, session.ended), f"ending a transaction of {name!r}")
        return session.ended

    async def _finish(self, name: str, session: Session, ended: asyncio.Future[Transaction]) -> None:
        """Write the markers, then that they are written. The answer does not wait for a second try of the latter."""
        ending = self._table.find(name)
        assert ending is not None
        try:
            if not await self._markers.write(ending, self._state_log.coordinator_epoch, session.waits):
                return
            complete = state.complete(ending, self._logs.now_ms())
            while not self._stopping:
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
                # Nobody may be waiting for it.
                ended.exception()
            self._turns.leave(name, session)

    # Background

    async def abort_timed_out(self) -> int:
        """Abort every transaction that is older than its timeout, and fence its producer; how many those were."""
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
                    # One that cannot be aborted now keeps no other open.
                    failure = error
        if failure is not None:
            raise failure
        return count

    async def _abort_timed_out(self, name: str, session: Session) -> bool:
        transaction = self._table.find(name)
        if transaction is None or not self._table.is_timed_out(transaction):
            return False
        logger.warning("the transaction of %r is aborted: it is older than %d ms", name, transaction.timeout_ms)
        await self.decide(session, state.fence(transaction, self._logs.now_ms()))
        return True

    async def expire(self, count_max: int = EXPIRED_COUNT) -> int:
        """Forget transactional ids that were idle for too long; how many those were, ``count_max`` at the most."""
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
        """Write what counts again and forget the rest of the log, when most of it is old news."""
        if not self._state_log.is_long(len(self._table)):
            return False
        await self._state_log.shorten(self._live())
        return True

    async def _live(self) -> AsyncGenerator[Sequence[Transaction], None]:
        # Sessions too: an id that is being written down for the first time is not in the table yet.
        names = dict.fromkeys((*(each.transactional_id for each in self._table), *self._sessions))
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

    def hurry(self) -> None:
        """Try again now where markers wait for a partition."""
        self._markers.hurry()

    async def run_jobs(self) -> None:
        """What must be done from time to time: timeouts, expiry, a shorter log."""
        if self._loading is None or not self._loading.done() or self._failure is not None or self._stopping:
            return
        await self.abort_timed_out()
        while await self.expire() == EXPIRED_COUNT:
            # All ids may expire at the same time. Readers must not wait until all of them are forgotten.
            await self.abort_timed_out()
        await self.shorten_log()


def _set_done(future: asyncio.Future[Transaction], complete: Transaction) -> None:
    if not future.done():
        future.set_result(complete)


_: type[Transactions] = TransactionCoordinator
