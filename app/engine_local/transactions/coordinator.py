"""The transaction coordinator: the states of ``state`` made durable, one transition of an id at a time.

Every transition is a task of its own: a client that goes away cancels no transition (invariant 8). A caller receives no
transition before it is durable in ``__transaction_state``. The one exception is the completion of a transaction: a
restart repeats it by writing the markers again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from app.engine.partitions import Partition
from app.engine.transactions import (
    DescribedTransaction,
    PartitionTransaction,
    ProducerIdentity,
    Transaction,
    Transactions,
    TransactionState,
)
from app.engine_local.logs import Logs, log_behind
from app.engine_local.partitions.last_sequences import last_sequences
from app.engine_local.transactions.attempts import LocalAttempts
from app.engine_local.transactions.endings import Endings, EndsLaterError
from app.engine_local.transactions.enlister import Enlister
from app.engine_local.transactions.hanging import HangingTransactions
from app.engine_local.transactions.initialiser import Initialiser
from app.engine_local.transactions.left_open import LeftOpen
from app.engine_local.transactions.limits import TransactionLimits
from app.engine_local.transactions.log import state
from app.engine_local.transactions.log.state import TransactionTable
from app.engine_local.transactions.log.state_log import TransactionStateLog
from app.engine_local.transactions.markers import MarkerWriter
from app.engine_local.transactions.pool import ProducerPool, UntilEnded, is_pooled
from app.engine_local.transactions.sessions import Enlistment
from app.engine_local.transactions.turns import Turns
from app.engine_local.transactions.upkeep import Upkeep
from app.event_loop.piecewise import smallest
from app.problems import kinds
from app.problems.problem import Problem
from log_model.errors import (
    ConcurrentTransactionsError,
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


class TransactionCoordinator:
    """All transactional ids of one data directory.

    Thread: the event loop. Call ``start`` before every other method. The other calls wait until it is done.
    """

    def __init__(self, logs: Logs, limits: TransactionLimits | None = None) -> None:
        self._logs = logs
        self._limits = limits or TransactionLimits()
        self._table = TransactionTable(logs.protected_clock)
        self._state_log = TransactionStateLog(logs)
        self._markers = MarkerWriter(logs)
        self._turns = Turns(lambda name: self._table.find(name) is not None)
        self._sessions = self._turns.sessions
        self._tasks = self._turns.tasks
        self._loading: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._endings = Endings(logs, self._table, self._state_log, self._markers, self._turns)
        self._upkeep = Upkeep(logs, self._limits, self._table, self._state_log, self._turns, self._endings)
        self._left_open = LeftOpen(self._table, self._turns, self._endings, logs.now_ms)
        self.pool = ProducerPool(self.initialise, self._table.is_current, self._endings.wait_of, self._left_open.abort)
        """Producers for requests that are a transaction each."""
        self.attempts = LocalAttempts(
            logs, self._limits, self._table, self._state_log, self._markers, self._turns, self._endings.begin
        )
        """Transactions that an owner decides together, and that never time out."""
        self._initialiser = Initialiser(logs, self._limits, self._table, self._state_log, self._endings)
        self._enlister = Enlister(
            logs, self._limits, self._table, self._state_log, self._markers, self.attempts.check_open
        )
        self._hanging = HangingTransactions(logs, self._table, self.start, self._check_known)

    # Start and stop

    async def start(self) -> None:
        """Read the transactions that were known at the last stop, and go on ending the decided ones.

        A damaged log does not keep the service from starting. Transactions are then refused, and the reason is shown.
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
                self._endings.begin(transaction.transactional_id)
            elif transaction.is_ongoing and is_pooled(transaction.transactional_id):
                # The earlier process was its producer: readers need not wait for its timeout.
                self._left_open.abort(transaction.transactional_id, transaction.producer)

    async def close(self) -> None:
        """Take no more requests, and finish the running work.

        The next start ends transactions that wait for a partition.
        """
        self._endings.stop()
        await self._tasks.finished()

    async def _check_ready(self) -> None:
        if self._endings.is_stopping:
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
        """Why the transactions are unknown; ``None`` if they are known."""
        return self._failure

    # Looking

    def find(self, transactional_id: str) -> Transaction | None:
        """Return the transaction of this id; ``None`` if the id is not known."""
        return self._table.find(transactional_id)

    def name_of(self, producer_id: int) -> str | None:
        """Return the transactional id that has this producer id now.

        Raises:
            PartitionOfflineError: the log of transactions could not be read.
        """
        self._check_known()
        return self._table.find_name(producer_id)

    @property
    def largest_producer_id(self) -> int:
        """The largest producer id that a transactional id has, or will have next; -1 if there is none."""
        return max((max(each.producer_id, each.next_producer_id) for each in self._table), default=-1)

    async def describe(self, transactional_id: str) -> DescribedTransaction | None:
        """Return the transaction of this id; ``None`` if the id is not known."""
        transaction = self._table.find(transactional_id)
        return (
            None if transaction is None else DescribedTransaction(transaction, self._endings.waits_of(transactional_id))
        )

    async def last_sequences(self, partition: PartitionName, producer_ids: Collection[int]) -> Mapping[int, int]:
        """Return the sequence of the last record of each of these producers in a partition; see ``Transactions``."""
        try:
            log = await self._logs.with_producers(*partition)
            return {} if log is None else await last_sequences(log, producer_ids)
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

    async def page(
        self,
        states: frozenset[TransactionState],
        start_after: str,
        limit: int,
        is_shown: Callable[[str], bool] = lambda _: True,
    ) -> list[Transaction]:
        """Return the first ``limit`` shown transactions in one of these states, by id, behind ``start_after``."""

        def is_wanted(transaction: Transaction) -> bool:
            name = transaction.transactional_id
            return transaction.state in states and name > start_after and is_shown(name)

        return await smallest(self._table, limit, lambda transaction: transaction.transactional_id, is_wanted)

    def open_count(self) -> int:
        """Return the number of transactions that readers of committed records wait for."""
        return self._table.open_count

    def id_count(self) -> int:
        """Return the number of transactional ids that are known."""
        return len(self._table)

    @property
    def is_busy(self) -> bool:
        """Whether a transition or the end of a transaction is under way."""
        return bool(self._tasks)

    # Producers

    async def allocate(self, principal: str | None = None) -> ProducerIdentity:
        """Return a producer id that no producer had before, without transactions. Durable: it is given once.

        With ``principal`` no other principal may write under the id.

        Raises:
            CorruptionError, DiskFullError: no id is available.
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
        """Give a transactional id to the new instance of its producer, and fence the older instances.

        An open transaction of an older instance is aborted first: ``until_ended`` waits for that, up to ``wait_ms``.

        Raises:
            InvalidTransactionTimeoutError: ``timeout_ms`` is above the limit of the service.
            ConcurrentTransactionsError: the open transaction was not ended in time; the abort goes on.
            Problem: overloaded.
            StorageError: the change could not be written down.
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
                        transactional_id,
                        lambda session: self._initialiser.initialise(session, transactional_id, timeout_ms),
                    )
                    if isinstance(given, ProducerIdentity):
                        return given
                    await until_ended(given)
        except TimeoutError:
            raise ConcurrentTransactionsError(
                f"the last transaction of {transactional_id!r} was not ended within {wait_ms} ms; that goes on"
            ) from None

    # Enlisting

    async def enlist(
        self,
        producer: ProducerIdentity,
        appends: Mapping[PartitionName, Sequence[BatchHeader]],
        transactional_id: str | None = None,
    ) -> Enlistment:
        """Make these partitions part of the producer's transaction, durably, before anything is appended to them.

        ``appends`` has the headers of the batches that follow. The call costs nothing for partitions that are part of
        the transaction. A batch that is in its log already, or that cannot follow the batches there, enlists nothing:
        a late request of a transaction that has ended must not open another. An offline partition is not enlisted.

        Raises:
            InvalidPidMappingError: the producer belongs to no transactional id, or not to the given one.
            ProducerFencedError: a newer instance was initialised, or the transaction timed out.
            ConcurrentTransactionsError: the last transaction is being ended.
            Problem: overloaded, too_many_partitions.
            StorageError: the change could not be written down.
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
        # If the client has gone while it waited, its enlistment is released.
        return await self._turns.in_turn(
            name, lambda session: self._enlister.enlist(session, name, producer, appends), undo=Enlistment.release
        )

    # Ending

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, wait_ms: int
    ) -> Transaction:
        """Commit or abort. On return the decision is durable and every reader sees it.

        The producer of the returned transaction goes on with the next transaction. A repeated request, after a lost
        response and before the next transaction, returns the same transaction.

        Raises:
            InvalidPidMappingError: the transactional id is not known, or it belongs to another producer.
            ProducerFencedError: a newer instance was initialised, the transaction timed out, or the request belongs to
                an earlier transaction.
            InvalidTxnStateError: there is nothing to commit, or the transaction has ended the other way.
            ConcurrentTransactionsError: the transaction before is being ended.
            Problem: request_timed_out. The end goes on, and may still fail before it is decided.
            StorageError: the decision could not be written down.
        """
        await self._check_ready()
        if self._table.find(transactional_id) is None:
            raise InvalidPidMappingError(f"there is no transactional id {transactional_id!r}")
        try:
            async with asyncio.timeout(wait_ms / 1000):
                ended = await self._turns.in_turn(
                    transactional_id,
                    lambda session: self._endings.end(session, transactional_id, producer, commit=commit),
                )
                # The table may hold a newer instance by now, and its epoch would let this instance back in.
                return ended if isinstance(ended, Transaction) else await asyncio.shield(ended)
        except TimeoutError:
            raise _too_late(self._endings.waits_of(transactional_id), wait_ms) from None
        except EndsLaterError:
            detail = "the transaction is decided; the next start of the service ends it"
            raise Problem(kinds.SHUTTING_DOWN_UNFINISHED, detail) from None

    async def abort(self, transactional_id: str, producer: ProducerIdentity) -> None:
        """Abort for a caller that does not go on with the producer. Durable: the decision, on return.

        The markers follow later.

        Raises:
            The errors of ``end`` except request_timed_out.
        """
        await self._check_ready()
        await self._turns.in_turn(
            transactional_id, lambda session: self._endings.end(session, transactional_id, producer, commit=False)
        )

    # Background

    def hurry(self) -> None:
        """Try now to write the markers that wait for a partition."""
        self._markers.hurry()

    async def run_jobs(self) -> None:
        """Abort timed-out transactions, forget expired ids, and shorten the log, as far as that is due."""
        if self._loading is None or not self._loading.done() or self._failure is not None or self._endings.is_stopping:
            return
        await self._upkeep.run()


def _too_late(waits: Mapping[PartitionName, str], wait_ms: int) -> Problem:
    return Problem(
        kinds.REQUEST_TIMED_OUT,
        f"the transaction was not ended within {wait_ms} ms; that goes on, and the same request tells how it ended",
        waits_for=[
            {"topic": name.topic, "partition": name.partition, "reason": waits[name]}
            for name in sorted(waits)[:_WAITS_SHOWN_MAX]
        ],
    )


_: type[Transactions] = TransactionCoordinator
