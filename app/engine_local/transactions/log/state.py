"""Kafka's states and transitions of a transaction, without a clock, a loop or a disk.

::

    Empty ──enlist──> Ongoing ──end──> PrepareCommit ──markers written──> CompleteCommit ──enlist──> Ongoing ...
                         └──────────> PrepareAbort  ──markers written──> CompleteAbort  ──enlist──> Ongoing ...

A transaction begins with the first partition that is enlisted. The record of a Prepare state is the decision. Once it
is durable, the transaction ends that way, whatever happens to the process.

Epochs tell requests apart, as in Kafka since KIP-890. Every end raises the epoch by one: the markers carry the raised
epoch, and the producer goes on with it. A request of an earlier transaction that arrives late has an older epoch and is
refused. Only the last end is recognised, until the next transaction begins: a producer repeats it after a lost
response. When the coordinator fences a producer, the epoch rises by two, so that no request of that producer looks like
the last end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from app.engine.transactions import (
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_ID,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from log_model.clock import Ages, ProtectedClock
from log_model.errors import (
    ConcurrentTransactionsError,
    InvalidPidMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from log_model.names import PartitionName

PRODUCER_EPOCH_MAX = 2**15 - 2
"""The last epoch that a producer receives. The next epoch belongs to markers, and to producers that are fenced."""


def needs_producer_id(transaction: Transaction) -> bool:
    """Return whether the epochs of the producer id are used up, so that the producer goes on with another id."""
    return transaction.producer_epoch >= PRODUCER_EPOCH_MAX


def initialise(
    existing: Transaction | None,
    transactional_id: str,
    timeout_ms: int,
    now_ms: int,
    allocate: Callable[[], int],
) -> Transaction:
    """Give the id to a new instance of its producer: another epoch, or another producer id if the epochs are used up.

    An ongoing transaction must be fenced and completed first; see ``fence``.

    Raises:
        ConcurrentTransactionsError: the last transaction is not ended.
    """
    if existing is None:
        producer = ProducerIdentity(allocate(), 0)
    elif existing.is_open:
        raise ConcurrentTransactionsError(f"the last transaction of {transactional_id!r} is being ended")
    elif needs_producer_id(existing):
        producer = ProducerIdentity(allocate(), 0)
    else:
        producer = ProducerIdentity(existing.producer_id, existing.producer_epoch + 1)
    return Transaction(transactional_id, *producer, timeout_ms, updated_ms=now_ms)


def enlist(
    transaction: Transaction, producer: ProducerIdentity, partitions: Iterable[PartitionName], now_ms: int
) -> Transaction:
    """Add these partitions to the transaction, which begins if it has not begun. Return the same object if none is new.

    Raises:
        InvalidPidMappingError, ProducerFencedError: the transaction is not this producer's.
        ConcurrentTransactionsError: the transaction is being ended.
    """
    _check_producer(transaction, producer)
    if transaction.is_ending:
        raise ConcurrentTransactionsError(
            f"the last transaction of {transaction.transactional_id!r} is being ended; send it again"
        )
    enlisted = transaction.partitions.union(partitions)
    if transaction.is_ongoing:
        if len(enlisted) == len(transaction.partitions):
            return transaction
        return replace(transaction, partitions=enlisted, updated_ms=now_ms)
    return replace(transaction, state=TransactionState.ONGOING, partitions=enlisted, start_ms=now_ms, updated_ms=now_ms)


def end(
    transaction: Transaction, producer: ProducerIdentity, *, commit: bool, now_ms: int, allocate: Callable[[], int]
) -> Transaction:
    """Decide, and raise the epoch. Return the same object if the request is a repetition: the epoch is already raised.

    An abort is allowed without records: it fences records that are on their way. ``allocate`` gives a producer id that
    no producer had before. It is called if the epochs of the current id are used up.

    Raises:
        InvalidPidMappingError, ProducerFencedError: the request is not this producer's, or an earlier transaction's.
        InvalidTxnStateError: there is nothing to commit, or the request was decided the other way before.
        ConcurrentTransactionsError: the transaction before is being ended.
    """
    name = transaction.transactional_id
    if _is_repeated(transaction, producer):
        if transaction.commits != commit:
            known = "committed" if transaction.commits else "aborted"
            raise InvalidTxnStateError(f"the last transaction of {name!r} is {known}")
        return transaction if transaction.is_ending else _raised(transaction, allocate)
    _check_producer(transaction, producer)
    if transaction.is_ending:
        raise ConcurrentTransactionsError(f"the last transaction of {name!r} is being ended; send it again")
    if transaction.is_ongoing:
        return _prepared(transaction, commit=commit, now_ms=now_ms, allocate=allocate)
    if commit:
        raise InvalidTxnStateError(f"{name!r} has no transaction: nothing was produced in it")
    return _prepared(replace(transaction, start_ms=now_ms), commit=False, now_ms=now_ms, allocate=allocate)


def fence(transaction: Transaction, now_ms: int) -> Transaction:
    """Decide to abort an ongoing transaction without its producer, and fence that producer."""
    if not transaction.is_ongoing:
        raise AssertionError(f"{transaction.transactional_id!r} is {transaction.state.name}, there is nothing to fence")
    return replace(
        transaction,
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=min(transaction.producer_epoch + 2, PRODUCER_EPOCH_MAX + 1),
        updated_ms=now_ms,
        version=EPOCH_PER_TRANSACTION,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
    )


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """Return the transaction as it is once the markers are in every partition; its producer goes on with the next."""
    if not transaction.is_ending:
        raise AssertionError(f"{transaction.transactional_id!r} is {transaction.state.name}, not being ended")
    state = TransactionState.COMPLETE_COMMIT if transaction.commits else TransactionState.COMPLETE_ABORT
    done = replace(transaction, state=state, partitions=frozenset(), updated_ms=now_ms)
    if done.next_producer_id != NO_PRODUCER_ID:
        return _rotated(done, done.next_producer_id)
    return done if needs_producer_id(done) else _raised(done, _no_other_id)


def _prepared(transaction: Transaction, *, commit: bool, now_ms: int, allocate: Callable[[], int]) -> Transaction:
    return replace(
        transaction,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        producer_epoch=transaction.producer_epoch + 1,
        updated_ms=now_ms,
        version=EPOCH_PER_TRANSACTION,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=allocate() if needs_producer_id(transaction) else NO_PRODUCER_ID,
    )


def _raised(transaction: Transaction, allocate: Callable[[], int]) -> Transaction:
    """Return the transaction with the epoch that its end leaves, which changes decisions of earlier revisions alone."""
    if transaction.version >= EPOCH_PER_TRANSACTION:
        return transaction
    if needs_producer_id(transaction):
        return _rotated(replace(transaction, version=EPOCH_PER_TRANSACTION), allocate())
    return replace(transaction, version=EPOCH_PER_TRANSACTION, producer_epoch=transaction.producer_epoch + 1)


def _no_other_id() -> int:
    raise AssertionError("there are epochs left")


def _rotated(transaction: Transaction, producer_id: int) -> Transaction:
    return replace(
        transaction,
        producer_id=producer_id,
        producer_epoch=0,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def _is_repeated(transaction: Transaction, producer: ProducerIdentity) -> bool:
    """Return whether this producer asked for the last end, and has not begun another transaction since."""
    if transaction.is_ongoing or transaction.state is TransactionState.EMPTY:
        return False
    if transaction.version < EPOCH_PER_TRANSACTION:
        return producer == transaction.producer
    if producer.producer_id != transaction.producer_id:
        last = ProducerIdentity(transaction.previous_producer_id, PRODUCER_EPOCH_MAX)
        return producer == last and transaction.producer_epoch == 0
    if transaction.producer_epoch > PRODUCER_EPOCH_MAX and transaction.next_producer_id == NO_PRODUCER_ID:
        # The producer was fenced in its last epoch, which could not rise by two.
        return False
    return producer.producer_epoch == transaction.producer_epoch - 1


def _check_producer(transaction: Transaction, producer: ProducerIdentity) -> None:
    name = transaction.transactional_id
    if producer.producer_id != transaction.producer_id:
        raise InvalidPidMappingError(f"{name!r} belongs to another producer than {producer.producer_id}")
    if producer.producer_epoch != transaction.producer_epoch or producer.producer_epoch > PRODUCER_EPOCH_MAX:
        raise ProducerFencedError(
            f"producer {producer.producer_id} with epoch {producer.producer_epoch} is fenced: "
            f"the epoch of {name!r} is {transaction.producer_epoch}"
        )


class TransactionTable:
    """Every transactional id that is known, by its name and by its producer id, with its age."""

    def __init__(self, clock: ProtectedClock) -> None:
        self.open_count = 0
        """Number of transactions that readers of committed records wait for."""
        self._by_name: dict[str, Transaction] = {}
        self._names: dict[int, str] = {}
        self._begun: Ages[str] = Ages(clock)
        self._updated: Ages[str] = Ages(clock)

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(tuple(self._by_name.values()))

    def find(self, transactional_id: str) -> Transaction | None:
        """Return the transaction of this id; ``None`` if the id is not known."""
        return self._by_name.get(transactional_id)

    def find_name(self, producer_id: int) -> str | None:
        """Return the transactional id that has this producer id now."""
        return self._names.get(producer_id)

    def is_current(self, transactional_id: str, producer: ProducerIdentity) -> bool:
        """Return whether the id is known and belongs to this instance of its producer."""
        transaction = self._by_name.get(transactional_id)
        return transaction is not None and transaction.producer == producer

    def put(self, transaction: Transaction) -> None:
        """Record a transition, or a new id."""
        before = self._keep(transaction)
        self._updated.note(transaction.transactional_id)
        if transaction.is_ongoing and not (before is not None and before.is_ongoing):
            self._begun.note(transaction.transactional_id)

    def restore(self, transaction: Transaction) -> None:
        """Record a transaction that an earlier run wrote down."""
        self._keep(transaction)
        self._updated.restore(transaction.transactional_id, transaction.updated_ms)
        self._begun.restore(transaction.transactional_id, transaction.start_ms)

    def _keep(self, transaction: Transaction) -> Transaction | None:
        before = self._by_name.get(transaction.transactional_id)
        if before is not None and before.producer_id != transaction.producer_id:
            self._names.pop(before.producer_id, None)
        self.open_count += transaction.is_open - (before is not None and before.is_open)
        self._by_name[transaction.transactional_id] = transaction
        self._names[transaction.producer_id] = transaction.transactional_id
        return before

    def is_timed_out(self, transaction: Transaction) -> bool:
        """Return whether the transaction has been ongoing for longer than its timeout, by elapsed time."""
        return transaction.is_ongoing and self._begun.age_ms(transaction.transactional_id) > transaction.timeout_ms

    def is_expired(self, transaction: Transaction, expiration_ms: int) -> bool:
        """Return whether the transactional id has been idle for at least ``expiration_ms``, by elapsed time."""
        return transaction.is_at_rest and self._updated.age_ms(transaction.transactional_id) >= expiration_ms

    def remove(self, transactional_id: str) -> None:
        """Forget an id."""
        self._begun.forget(transactional_id)
        self._updated.forget(transactional_id)
        gone = self._by_name.pop(transactional_id, None)
        if gone is not None:
            self.open_count -= gone.is_open
            self._names.pop(gone.producer_id, None)
