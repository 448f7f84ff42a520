"""Producers and transactions: writers, partitions and ends, and the transactions that are decided together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from app.engine.appending import Enlistment
from app.engine.partitions import Partition
from log_model.names import PartitionName
from log_model.offsets import Offset
from log_model.producers import SEQUENCE_COUNT
from rollway.records import BatchHeader

NO_TIME = -1
NO_PRODUCER_ID = -1

EPOCH_PER_TRANSACTION = 2
"""``transaction.version`` from which every end raises the epoch. Records of earlier revisions have version 0."""


class TransactionState(IntEnum):
    """A state, by its number in Kafka's records. The last two occur in no transaction of the local engine."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_ENDING = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
_AT_REST = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


class ProducerIdentity(NamedTuple):
    """The id and the epoch that a producer sends."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id: its producer, and its transaction if it has one. Immutable: transitions make new objects.

    Times are milliseconds since 1970; ``start_ms`` is ``NO_TIME`` before the first transaction. ``partitions`` are
    the partitions that the transaction writes to; a complete transaction has none.

    The last three members matter to the engine that keeps the transaction. ``version`` is Kafka's
    ``ClientTransactionVersion``: the rules of the last end. ``next_producer_id`` is set while a transaction of the last
    epoch is being ended: the producer goes on with that id at epoch 0. ``previous_producer_id`` is then the id that the
    last end came from.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[PartitionName] = frozenset()
    start_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    version: int = EPOCH_PER_TRANSACTION
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID

    @property
    def producer(self) -> ProducerIdentity:
        """The only producer that may write in the transaction."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def is_ongoing(self) -> bool:
        """Whether the transaction takes records."""
        return self.state is TransactionState.ONGOING

    @property
    def is_ending(self) -> bool:
        """Whether the transaction is decided and its markers are being written."""
        return self.state in _ENDING

    @property
    def is_open(self) -> bool:
        """Whether readers of committed records wait for the transaction."""
        return self.is_ongoing or self.is_ending

    @property
    def commits(self) -> bool:
        """Whether the decision was to commit."""
        return self.state in {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}

    @property
    def is_at_rest(self) -> bool:
        """Whether no transaction is open, so that the transactional id may be forgotten."""
        return self.state in _AT_REST


class DescribedTransaction(NamedTuple):
    """A transaction, and why partitions have no marker yet if it is being ended."""

    transaction: Transaction
    waits: Mapping[PartitionName, str]


class PartitionTransaction(NamedTuple):
    """A transaction that is open in one partition.

    ``transactional_id`` is ``None`` if the coordinator does not know the transaction: it hangs, and only an operator
    ends it.
    """

    producer_id: int
    producer_epoch: int
    first_offset: Offset
    transactional_id: str | None


class PooledProducer:
    """A producer of the engine's own, for one transaction at a time.

    Example: ``take_sequences(name, 10)`` returns 0 for the first ten records of a transaction in a partition, and 10
    for the next ones.
    """

    def __init__(self, name: str, identity: ProducerIdentity) -> None:
        self.name = name
        self.identity = identity
        self.is_kept = False
        self._sequences: dict[PartitionName, int] = {}

    def take_sequences(self, partition: PartitionName, count: int) -> int:
        """Return the first of the next ``count`` sequences in this partition."""
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = (first + count) % SEQUENCE_COUNT
        return first

    def keep(self, identity: ProducerIdentity) -> None:
        """Go on with the identity that the end of the transaction returned."""
        self.identity = identity
        self._sequences.clear()
        self.is_kept = True


class PooledProducers(Protocol):
    """Transactional producers of the engine's own, for requests that are a transaction each. Thread: the event loop."""

    def producer(self, timeout_ms: int, wait_ms: int) -> AbstractAsyncContextManager[PooledProducer]:
        """Lend a producer without an open transaction.

        Unless the borrower calls ``keep``, the engine aborts a transaction that the producer leaves open. The context
        does not wait for that.

        Raises:
            DiskFullError: the end of an earlier transaction waits for space on a disk.
            The errors of ``Transactions.initialise``.
        """


class Attempts(Protocol):
    """Transactions that are decided together: the attempts of load jobs. Each has its own producer and writes once.

    The owner makes the decision durable in a log of its own, and the engine carries it out. An attempt never times out.
    ``app.engine.attempt_names`` makes the transactional ids of attempts.

    Thread: the event loop. ``Transactions.start`` comes first.
    """

    guard: Callable[[str], None]
    """Called before records of the attempt with this name are taken; raises if its owner has decided or decides now."""

    async def all(self) -> list[Transaction]:
        """Return every attempt that the engine knows, including attempts of earlier runs."""

    async def partitions_of(self, names: Collection[str]) -> Mapping[str, Collection[PartitionName]]:
        """Return the partitions that each of these attempts writes to. An unknown attempt is left out."""

    async def create(self, name_of: Callable[[int], str]) -> Transaction:
        """Make an attempt with a producer id that no producer had before. Durable: on return.

        ``name_of`` makes the attempt's transactional id of the producer id.

        Raises:
            Problem: overloaded.
            StorageError: the attempt could not be written down.
        """

    async def decide(
        self, names: Collection[str], winners: Collection[str], decision: Callable[[], Awaitable[None]]
    ) -> None:
        """Hold all these attempts while ``decision`` writes down how they end.

        No attempt takes a record meanwhile. Before ``decision`` is called, appends under way have reached their
        partitions, and the records of the winners are durable. ``finish`` follows.

        Raises:
            Problem: overloaded.
            StorageError: a partition of a winner is offline.
            The errors of ``decision``.
        """

    async def finish(self, names: Collection[str], winners: Collection[str]) -> None:
        """Commit the winners and abort the other attempts. On return every reader sees it.

        The call may be repeated, also after a restart: an attempt that has ended stays as it is.

        Raises:
            Problem: overloaded; some attempts may have ended.
            StorageError: an end could not be written down, or the service stops; some attempts may have ended.
        """

    async def forget(self, names: Sequence[str]) -> None:
        """Forget attempts that have ended or never wrote. The next start may still find them.

        Raises:
            Problem: overloaded.
            StorageError: the change could not be written down.
        """


class Transactions(Protocol):
    """All producers and transactional ids. Thread: the event loop.

    Attributes:
        pool: producers for requests that are a transaction each.
        attempts: transactions that an owner decides together.
    """

    @property
    def pool(self) -> PooledProducers: ...

    @property
    def attempts(self) -> Attempts: ...

    async def start(self) -> None:
        """Read the transactions of earlier runs, and go on ending the decided ones. Further calls are allowed.

        A failure does not raise: ``failure`` says why transactions are refused then.
        """

    async def close(self) -> None:
        """Take nothing more, and finish what is under way. The next start goes on with the rest."""

    @property
    def failure(self) -> str | None:
        """Why the transactions are unknown; ``None`` if they are known."""

    def name_of(self, producer_id: int) -> str | None:
        """Return the transactional id that has this producer id now, without asking a disk or another machine.

        Raises:
            PartitionOfflineError: the transactions of earlier runs could not be read.
        """

    async def describe(self, transactional_id: str) -> DescribedTransaction | None:
        """Return the transaction of this id; ``None`` if the id is not known."""

    async def page(
        self,
        states: frozenset[TransactionState],
        start_after: str,
        limit: int,
        is_shown: Callable[[str], bool] = lambda _: True,
    ) -> list[Transaction]:
        """Return the first ``limit`` transactions in one of these states, sorted by id, behind the id ``start_after``.

        An id for which ``is_shown`` is false is left out.
        """

    async def last_sequences(self, partition: PartitionName, producer_ids: Collection[int]) -> Mapping[int, int]:
        """Return the sequence of the last record of each of these producers in a partition, by producer id.

        -1 is the sequence of a producer whose records are all of an earlier epoch. Producers without a record in the
        partition are left out. The result is empty if there is no such partition.
        """

    async def allocate(self, principal: str | None = None) -> ProducerIdentity:
        """Return a producer id that no producer had before, without transactions. Durable: it is given once.

        With ``principal`` no other principal may write under the id.

        Raises:
            CorruptionError, DiskFullError: no id is available.
        """

    async def initialise(self, transactional_id: str, timeout_ms: int, wait_ms: int) -> ProducerIdentity:
        """Give a transactional id to the new instance of its producer, and fence the older instances.

        An open transaction of an older instance is aborted first. The call waits for that up to ``wait_ms``.

        Raises:
            InvalidTransactionTimeoutError: ``timeout_ms`` is above the limit of the service.
            ConcurrentTransactionsError: the open transaction was not ended in time; the abort goes on.
            Problem: overloaded.
            StorageError: the change could not be written down.
        """

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

    async def abort(self, transactional_id: str, producer: ProducerIdentity) -> None:
        """Abort for a caller that does not go on with the producer. Durable: the decision, on return.

        The markers follow later.

        Raises:
            The errors of ``end`` except request_timed_out.
        """

    async def open_in(self, partition: Partition) -> list[PartitionTransaction]:
        """Return the transactions that are open in this partition, the longest open first.

        Raises:
            PartitionOfflineError: their owners are not known, because the log of transactions could not be read.
        """

    async def abort_hanging(
        self, partition: Partition, producer_id: int, first_offset: int, producer_epoch: int | None = None
    ) -> Offset:
        """End a transaction that the coordinator does not know, and return the offset of the abort marker.

        Durable: on return. Only this partition gets a marker.

        Raises:
            InvalidTopicError: the topic is internal.
            InvalidTxnStateError: no such transaction is open here; an earlier request may have aborted it.
            Problem: transaction_not_hanging; or overloaded.
            StorageError: the marker could not be written, or the log of transactions could not be read.
        """
