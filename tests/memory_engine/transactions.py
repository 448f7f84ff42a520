"""The transactions of the engine, in the states and transitions of Kafka's coordinator.

Each transition is made between two awaits, and its markers with it: no reader and no request sees half of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from app.engine.attempt_names import is_attempt
from app.engine.partitions import Partition
from app.engine.transactions import (
    DescribedTransaction,
    PartitionTransaction,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from app.engine_local.transactions.log import state
from app.engine_local.transactions.log.state import TransactionTable
from app.problems import kinds
from app.problems.problem import Problem
from app.settings import Settings
from log_model.batches.append_request import AppendResult
from log_model.clock import Clock, ProtectedClock
from log_model.errors import (
    CoordinatorFencedError,
    InvalidPidMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    PartitionOfflineError,
    ProducerFencedError,
    RefusedError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from log_model.names import PartitionName, refuse_internal
from log_model.offsets import NO_TIMESTAMP, Offset
from log_model.transactions import TransactionMarker
from rollway.records import BatchHeader
from tests.memory_engine.attempts import MemoryAttempts
from tests.memory_engine.checks import log_of
from tests.memory_engine.cluster import Cluster
from tests.memory_engine.log import MemoryLog
from tests.memory_engine.pool import MemoryPool, is_pooled
from tests.memory_engine.sessions import MemoryEnlistment, Session
from tests.memory_engine.topics import MemoryTopics
from tests.memory_engine.waits import Waits

_RETRY_AFTER_MS = 1_000


class MemoryTransactions:
    """All producers and transactional ids. Thread: the event loop."""

    failure: str | None = None

    def __init__(
        self,
        cluster: Cluster,
        topics: MemoryTopics,
        settings: Settings,
        clock: Clock,
        protected: ProtectedClock,
        waits: Waits,
    ) -> None:
        self.table = TransactionTable(protected)
        self.sessions: defaultdict[str, Session] = defaultdict(Session)
        self.pool = MemoryPool(self)
        self.attempts = MemoryAttempts(self)
        self.settings = settings
        self._cluster = cluster
        self._topics = topics
        self._clock = clock
        self._waits = waits

    async def start(self) -> None:
        """Take up what earlier services left in the cluster, and abort what their pooled producers left open."""
        if not len(self.table):
            for transaction in tuple(self._cluster.transactions.values()):
                self.table.restore(transaction)
                if transaction.is_ongoing and is_pooled(transaction.transactional_id):
                    self.finish(state.fence(transaction, self._clock.now_ms()))

    async def close(self) -> None:
        """Return at once: nothing is under way."""

    # Transitions

    def put(self, transaction: Transaction) -> None:
        """Take note of a transition. The topic that would hold it is there; nothing reads it."""
        self._topics.ensure_internal("__transaction_state")
        self.table.put(transaction)
        self._cluster.transactions[transaction.transactional_id] = transaction

    def remove(self, name: str) -> None:
        """Forget an id."""
        self.table.remove(name)
        self._cluster.transactions.pop(name, None)
        self.sessions.pop(name, None)

    def now_ms(self) -> int:
        """Return the wall time."""
        return self._clock.now_ms()

    def fresh_id(self) -> int:
        """Return a producer id that no producer had before."""
        return self._cluster.allocate_producer_id()

    def finish(self, decided: Transaction) -> Transaction:
        """Carry out a decision: markers for all partitions, which readers see at once. Return the complete one."""
        self.put(decided)
        marker = TransactionMarker(decided.producer_id, decided.producer_epoch, 0, decided.commits)
        for name in decided.partitions:
            try:
                log = self._topics.partition(*name)
                if decided.producer_id in log.producers:
                    log.append_marker(marker)
                    self._waits.changed(name)
            except (UnknownTopicOrPartitionError, ProducerFencedError, CoordinatorFencedError):
                # Deleted, or ended by a later epoch.
                continue
        complete = state.complete(decided, self._clock.now_ms())
        self.put(complete)
        return complete

    def check_room(self, advice: str) -> None:
        """Return if there may be another transactional id.

        Raises:
            Problem: overloaded.
        """
        if len(self.table) >= self.settings.transactional_id_count_max:
            detail = f"there are {len(self.table)} transactional ids; {advice}"
            raise Problem(kinds.OVERLOADED, detail, retry_after_ms=_RETRY_AFTER_MS)

    # Looking

    def name_of(self, producer_id: int) -> str | None:
        """Return the transactional id that has this producer id now."""
        return self.table.find_name(producer_id)

    async def describe(self, transactional_id: str) -> DescribedTransaction | None:
        """Return the transaction of this id."""
        found = self.table.find(transactional_id)
        return None if found is None else DescribedTransaction(found, {})

    async def page(
        self,
        states: frozenset[TransactionState],
        start_after: str,
        limit: int,
        is_shown: Callable[[str], bool] = lambda _: True,
    ) -> list[Transaction]:
        """Return the first transactions that are asked for; see ``Transactions.page``."""
        found = {each.transactional_id: each for each in self.table if each.state in states}
        return [found[name] for name in sorted(found) if name > start_after and is_shown(name)][:limit]

    async def last_sequences(self, partition: PartitionName, producer_ids: Collection[int]) -> Mapping[int, int]:
        """Return the last sequences of producers; see ``Transactions.last_sequences``."""
        try:
            producers = self._topics.partition(*partition).producers
        except UnknownTopicOrPartitionError:
            return {}
        return {each: producers[each].last_sequence for each in producer_ids if each in producers}

    # Producers

    async def allocate(self, principal: str | None = None) -> ProducerIdentity:
        """Return a fresh producer without transactions, of ``principal`` if given."""
        producer_id = self.fresh_id()
        if principal is not None:
            self._cluster.owners[producer_id] = principal
        return ProducerIdentity(producer_id, 0)

    async def initialise(self, transactional_id: str, timeout_ms: int, wait_ms: int) -> ProducerIdentity:
        """Give the id to a new instance, and fence the older ones; see ``Transactions.initialise``."""
        if not 0 < timeout_ms <= self.settings.transaction_max_timeout_ms:
            raise InvalidTransactionTimeoutError(
                f"transaction_timeout_ms {timeout_ms} is not between 1 and {self.settings.transaction_max_timeout_ms}"
            )
        async with self.sessions[transactional_id].turn():
            existing = self.table.find(transactional_id)
            if existing is None:
                self.check_room("idle ones are forgotten in time")
            elif existing.is_ongoing:
                existing = self.finish(state.fence(existing, self.now_ms()))
            given = state.initialise(existing, transactional_id, timeout_ms, self.now_ms(), self.fresh_id)
            self.put(given)
            return given.producer

    async def enlist(
        self,
        producer: ProducerIdentity,
        appends: Mapping[PartitionName, Sequence[BatchHeader]],
        transactional_id: str | None = None,
    ) -> MemoryEnlistment:
        """Make partitions part of a transaction; see ``Transactions.enlist``."""
        name = self.table.find_name(producer.producer_id) if transactional_id is None else transactional_id
        if name is None or self.table.find(name) is None:
            raise InvalidPidMappingError(f"producer {producer.producer_id} belongs to no transactional id")
        if is_attempt(name):
            self.attempts.guard(name)
        session = self.sessions[name]
        async with session.turn(drained=False):
            transaction = self.table.find(name)
            if transaction is None:
                raise InvalidPidMappingError(f"producer {producer.producer_id} belongs to no transactional id")
            if is_attempt(name):
                self.attempts.guard(name)
            # Before anything else: the producer must be the one, and the transaction must take records.
            state.enlist(transaction, producer, (), self.now_ms())
            fresh, duplicates, refused = self._sort(appends, transaction.partitions)
            if fresh:
                enlisted = state.enlist(transaction, producer, fresh, self.now_ms())
                most = self.settings.transaction_partition_count_max
                if len(enlisted.partitions) > most:
                    raise Problem(kinds.TOO_MANY_PARTITIONS, f"a transaction writes to at most {most} partitions")
                self.put(enlisted)
            return MemoryEnlistment(session, duplicates, refused)

    def _sort(
        self, appends: Mapping[PartitionName, Sequence[BatchHeader]], present: Collection[PartitionName]
    ) -> tuple[list[PartitionName], dict[PartitionName, list[AppendResult]], dict[PartitionName, StorageError]]:
        """Return the partitions to enlist, those that have the batches already, and those that refuse them."""
        fresh: list[PartitionName] = []
        duplicates: dict[PartitionName, list[AppendResult]] = {}
        refused: dict[PartitionName, StorageError] = {}
        for name, headers in appends.items():
            if name in present:
                continue
            try:
                log = self._topics.partition(*name)
                known = _duplicates(log, headers)
            except RefusedError as error:
                refused[name] = error
                continue
            if known is not None:
                duplicates[name] = known
            elif log.offline_reason is not None:
                refused[name] = PartitionOfflineError(f"{name} takes no appends: {log.offline_reason}")
            else:
                fresh.append(name)
        return fresh, duplicates, refused

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commit: bool,
        wait_ms: int,
    ) -> Transaction:
        """Commit or abort; see ``Transactions.end``."""
        async with self.sessions[transactional_id].turn():
            transaction = self.table.find(transactional_id)
            if transaction is None:
                self.sessions.pop(transactional_id)
                raise InvalidPidMappingError(f"there is no transactional id {transactional_id!r}")
            now_ms = self.now_ms()
            decided = state.end(transaction, producer, commit=commit, now_ms=now_ms, allocate=self.fresh_id)
            return self.finish(decided) if decided.is_ending else decided

    async def abort(self, transactional_id: str, producer: ProducerIdentity) -> None:
        """Abort for a caller that does not go on with the producer."""
        await self.end(transactional_id, producer, commit=False, wait_ms=0)

    async def fence(self, name: str, is_due: Callable[[Transaction], bool]) -> None:
        """Abort the ongoing transaction of an id over its producer's head, if it is due."""
        async with self.sessions[name].turn():
            transaction = self.table.find(name)
            if transaction is not None and transaction.is_ongoing and is_due(transaction):
                self.finish(state.fence(transaction, self.now_ms()))

    async def run_jobs(self) -> None:
        """Abort what is older than its timeout, and forget ids that were idle for too long."""
        for transaction in self.table:
            name = transaction.transactional_id
            if is_attempt(name):
                continue
            if self.table.is_timed_out(transaction):
                await self.fence(name, self.table.is_timed_out)
            elif self.table.is_expired(transaction, self.settings.transactional_id_expiration_ms):
                self.remove(name)

    # Hanging transactions

    async def open_in(self, partition: Partition) -> list[PartitionTransaction]:
        """Return the transactions that are open in a partition; see ``Transactions.open_in``."""
        log = log_of(partition)
        found = [
            PartitionTransaction(each.producer_id, each.epoch, each.open_since, self._owner(each.producer_id, log.name))
            for each in log.producers.values()
            if each.open_since is not None
        ]
        return sorted(found, key=lambda each: each.first_offset)

    async def abort_hanging(
        self, partition: Partition, producer_id: int, first_offset: int, producer_epoch: int | None = None
    ) -> Offset:
        """End a transaction that no id has; see ``Transactions.abort_hanging``."""
        log = log_of(partition)
        refuse_internal(log.name.topic)
        found = log.producers.get(producer_id)
        if found is None or found.open_since != first_offset:
            raise InvalidTxnStateError(
                f"producer {producer_id} has no transaction open in {log.name} since offset {first_offset}"
            )
        if producer_epoch is not None and producer_epoch != found.epoch:
            raise InvalidTxnStateError(f"the transaction at offset {first_offset} is of epoch {found.epoch}")
        owner = self._owner(producer_id, log.name)
        if owner is not None:
            detail = f"the transaction belongs to {owner!r}: abort it there, for all its partitions"
            raise Problem(kinds.TRANSACTION_NOT_HANGING, detail, transactional_id=owner)
        marker = TransactionMarker(producer_id, found.epoch, max(found.coordinator_epoch, 0), commit=False)
        offset = log.append_marker(marker)
        self._waits.changed(log.name)
        return offset

    def _owner(self, producer_id: int, partition: PartitionName) -> str | None:
        name = self.table.find_name(producer_id)
        transaction = None if name is None else self.table.find(name)
        return name if transaction is not None and partition in transaction.partitions else None


def _duplicates(log: MemoryLog, headers: Sequence[BatchHeader]) -> list[AppendResult] | None:
    """Return what each batch was answered with when the request came first; ``None`` if it comes for the first time.

    Raises:
        RefusedError: the batches cannot follow what is there.
    """
    known = log.find_repeated(headers) if headers else None
    if known is None:
        return None
    stamped, start = log.config.message_timestamp_type == "LogAppendTime", log.snapshot.log_start_offset
    return [
        AppendResult(
            one.first_offset,
            one.last_offset,
            header.record_count,
            one.timestamp if stamped else NO_TIMESTAMP,
            start,
            duplicate=True,
        )
        for one, header in zip(known, headers, strict=True)
    ]
