"""The states of a transaction against a model of a few lines, and Kafka's answers one by one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.transactions import state
from app.transactions.records import decode_value, encode_value
from app.transactions.state import (
    PRODUCER_EPOCH_MAX,
    ProducerIdentity,
    Transaction,
    TransactionState,
    TransactionTable,
)
from storage.clock import SETTLING_MS, ManualClock, ProtectedClock
from storage.errors import (
    ConcurrentTransactionsError,
    InvalidPidMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from storage.file_names import PartitionName

A, B = PartitionName("a", 0), PartitionName("b", 1)
NOW = 1_700_000_000_000


def given_id(existing: Transaction | None = None, next_id: int = 7, timeout_ms: int = 60_000) -> Transaction:
    return state.initialise(existing, "t", timeout_ms, NOW, lambda: next_id)


def producer_of(transaction: Transaction) -> ProducerIdentity:
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def ongoing(*partitions: PartitionName) -> Transaction:
    transaction = given_id()
    return state.enlist(transaction, producer_of(transaction), partitions or (A,), NOW)


def ended(*, commit: bool) -> Transaction:
    transaction = ongoing()
    return state.complete(state.end(transaction, producer_of(transaction), commit=commit, now_ms=NOW), NOW)


def test_a_new_id_has_epoch_0_and_every_later_instance_one_more():
    first = given_id()
    assert producer_of(first) == (7, 0)
    assert producer_of(given_id(first, 8)) == (7, 1)


def test_the_last_epoch_is_followed_by_another_producer_id():
    worn = Transaction("t", 7, PRODUCER_EPOCH_MAX - 1, 1)
    last = given_id(worn, 8)
    assert producer_of(last) == (7, PRODUCER_EPOCH_MAX)
    assert producer_of(given_id(last, 8)) == (8, 0)
    open_one = state.enlist(last, producer_of(last), (A,), NOW)
    fenced = state.fence(open_one, NOW)
    assert fenced.producer_epoch == 2**15 - 1
    complete = state.complete(fenced, NOW)
    assert producer_of(given_id(complete, 8)) == (8, 0)
    # Whoever counts on from its own epoch is shut out like the rest: no epoch is left to fence it with.
    with pytest.raises(ProducerFencedError):
        state.enlist(complete, producer_of(complete), (A,), NOW)


def test_an_open_transaction_keeps_its_id_from_a_new_instance():
    for transaction in (ongoing(), state.fence(ongoing(), NOW)):
        with pytest.raises(ConcurrentTransactionsError):
            given_id(transaction)


def test_a_partition_that_is_enlisted_costs_nothing():
    transaction = ongoing(A)
    assert state.enlist(transaction, producer_of(transaction), (A,), NOW + 5) is transaction
    larger = state.enlist(transaction, producer_of(transaction), (A, B), NOW + 5)
    assert larger.partitions == {A, B}
    assert (larger.start_ms, larger.updated_ms) == (NOW, NOW + 5)


@pytest.mark.parametrize("commit", [True, False])
def test_ending_twice_is_a_success_and_the_other_way_is_not(commit):
    """Kafka's table of EndTxn."""
    transaction = ongoing()
    producer = producer_of(transaction)
    prepared = state.end(transaction, producer, commit=commit, now_ms=NOW)
    complete = state.complete(prepared, NOW)
    assert complete.partitions == frozenset()
    for decided in (prepared, complete):
        assert state.end(decided, producer, commit=commit, now_ms=NOW) is decided
        with pytest.raises(InvalidTxnStateError):
            state.end(decided, producer, commit=not commit, now_ms=NOW)


@pytest.mark.parametrize("commit", [True, False])
def test_nothing_can_be_ended_before_anything_was_enlisted(commit):
    with pytest.raises(InvalidTxnStateError, match="nothing was produced"):
        state.end(given_id(), ProducerIdentity(7, 0), commit=commit, now_ms=NOW)


@pytest.mark.parametrize("transaction", [given_id(), ongoing(), ended(commit=True), state.fence(ongoing(), NOW)])
def test_only_its_producer_may_touch_it(transaction):
    epoch = transaction.producer_epoch
    for call in (
        lambda producer: state.enlist(transaction, producer, (A,), NOW),
        lambda producer: state.end(transaction, producer, commit=True, now_ms=NOW),
    ):
        with pytest.raises(InvalidPidMappingError):
            call(ProducerIdentity(8, epoch))
        for other in (epoch - 1, epoch + 1):
            with pytest.raises(ProducerFencedError):
                call(ProducerIdentity(7, other))


def test_nothing_is_enlisted_while_it_ends():
    prepared = state.end(ongoing(), ProducerIdentity(7, 0), commit=True, now_ms=NOW)
    with pytest.raises(ConcurrentTransactionsError):
        state.enlist(prepared, ProducerIdentity(7, 0), (A,), NOW)


def test_timeout_and_expiry_by_elapsed_time():
    clock = ManualClock(NOW)
    table = TransactionTable(ProtectedClock(clock))
    table.put(ongoing())
    clock.advance(30_000)
    # Another partition makes it no younger, and neither does a step of the wall clock.
    table.put(ongoing(A, B))
    clock.jump(-(10**10))
    clock.advance(30_000)
    assert not table.is_timed_out(ongoing())
    clock.advance(1)
    assert table.is_timed_out(ongoing())
    assert not table.is_expired(ongoing(), 1)
    idle = ended(commit=False)
    table.put(idle)
    clock.jump(10**12)
    clock.advance(4)
    assert not table.is_timed_out(idle)
    assert not table.is_expired(idle, 5)
    clock.advance(1)
    assert table.is_expired(idle, 5)


def test_after_a_restart_the_timeout_begins_again_and_ids_are_as_old_as_before():
    clock = ManualClock(NOW)
    table = TransactionTable(ProtectedClock(clock))
    idle = replace(ended(commit=True), transactional_id="idle")
    table.restore(idle)
    table.restore(ongoing())
    clock.advance(60_000)
    assert not table.is_timed_out(ongoing())
    clock.advance(1)
    assert table.is_timed_out(ongoing())
    later = TransactionTable(ProtectedClock(clock := ManualClock(NOW + 10**9)))
    later.restore(idle)
    clock.advance(SETTLING_MS - 1)
    assert not later.is_expired(idle, 10**9)
    clock.advance(1)
    assert later.is_expired(idle, 10**9 + SETTLING_MS)
    assert not later.is_expired(idle, 10**9 + SETTLING_MS + 1)


def test_what_cannot_happen_is_refused():
    with pytest.raises(AssertionError):
        state.fence(given_id(), NOW)
    with pytest.raises(AssertionError):
        state.complete(ongoing(), NOW)


def test_the_table_finds_by_name_and_by_producer_and_pages():
    table = TransactionTable(ProtectedClock(ManualClock()))
    for number, name in enumerate(("c", "a", "b")):
        table.put(Transaction(name, number, 0, 1))
    table.put(Transaction("a", 9, 0, 1, TransactionState.ONGOING))
    assert table.find_name(1) is None
    assert table.find_name(9) == "a"
    everything = frozenset(TransactionState)
    assert [found.transactional_id for found in table.page(everything, "", 2)] == ["a", "b"]
    assert [found.transactional_id for found in table.page(everything, "b", 2)] == ["c"]
    assert [found.transactional_id for found in table.page(frozenset({TransactionState.ONGOING}), "", 9)] == ["a"]
    table.remove("a")
    table.remove("a")
    assert table.find("a") is None
    assert table.find_name(9) is None
    assert len(table) == len(list(table)) == 2


@dataclass
class Model:
    """What one transactional id promises, said another way."""

    producers: list[ProducerIdentity] = field(default_factory=list)
    written: set[PartitionName] = field(default_factory=set)
    is_open: bool = False
    decision: bool | None = None
    history: list[bool] = field(default_factory=list)


class TransactionMachine(RuleBasedStateMachine):
    """Instances of a producer come and go, also old ones that know nothing of it; the record is read back each time."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = count()
        self.model = Model()
        self.transaction: Transaction | None = None
        self.now_ms = NOW

    def become(self, transaction: Transaction) -> None:
        self.transaction = decode_value("t", encode_value(transaction))
        assert self.transaction == transaction

    @rule(timeout_ms=st.integers(1, 1000))
    def initialise(self, timeout_ms: int) -> None:
        before = self.transaction
        if before is not None and (self.model.is_open or self.model.decision is not None):
            with pytest.raises(ConcurrentTransactionsError):
                state.initialise(before, "t", timeout_ms, self.now_ms, lambda: next(self.ids))
            if before.is_ongoing:
                self.fence()
            self.finish()
        self.become(state.initialise(self.transaction, "t", timeout_ms, self.now_ms, lambda: next(self.ids)))
        self.model.producers.append(producer_of(self.transaction))
        self.model.history = []

    @rule()
    def use_up_the_epochs(self) -> None:
        if self.transaction is not None and not self.transaction.is_open:
            self.become(Transaction("t", self.transaction.producer_id, PRODUCER_EPOCH_MAX, 1, updated_ms=self.now_ms))
            self.model.producers.append(producer_of(self.transaction))
            self.model.history = []

    @precondition(lambda self: self.model.producers)
    @rule(data=st.data(), partition=st.sampled_from([A, B]))
    def enlist(self, data: st.DataObject, partition: PartitionName) -> None:
        producer = data.draw(st.sampled_from(self.model.producers))
        try:
            self.become(state.enlist(self.transaction, producer, (partition,), self.now_ms))
        except (ProducerFencedError, InvalidPidMappingError):
            assert producer != producer_of(self.transaction)
        except ConcurrentTransactionsError:
            assert self.model.decision is not None
        else:
            assert producer == producer_of(self.transaction)
            assert self.model.decision is None
            self.model.is_open = True
            self.model.written.add(partition)

    @precondition(lambda self: self.model.producers)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        producer = data.draw(st.sampled_from(self.model.producers))
        before = self.transaction
        try:
            after = state.end(before, producer, commit=commit, now_ms=self.now_ms)
        except (ProducerFencedError, InvalidPidMappingError):
            assert producer != producer_of(before)
        except InvalidTxnStateError:
            known = self.model.decision if self.model.decision is not None else (self.model.history or [None])[-1]
            assert not self.model.is_open
            assert known != commit
        else:
            assert producer == producer_of(before)
            if self.model.is_open:
                self.model.is_open, self.model.decision = False, commit
            else:
                assert after is before
                assert commit == (self.model.history[-1] if self.model.decision is None else self.model.decision)
            self.become(after)

    @precondition(lambda self: self.model.is_open)
    @rule()
    def fence(self) -> None:
        self.become(state.fence(self.transaction, self.now_ms))
        self.model.is_open, self.model.decision = False, False

    @precondition(lambda self: self.model.decision is not None)
    @rule()
    def finish(self) -> None:
        assert self.transaction.partitions == self.model.written
        self.become(state.complete(self.transaction, self.now_ms))
        self.model.history.append(self.model.decision)
        self.model.decision = None
        self.model.written = set()

    @rule(ms=st.integers(0, 2000))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @invariant()
    def nobody_but_the_last_instance_can_write(self) -> None:
        if self.transaction is None:
            return
        assert self.transaction.is_ongoing == self.model.is_open
        assert self.transaction.is_ending == (self.model.decision is not None)
        assert self.transaction.is_open or not self.transaction.partitions
        for producer in self.model.producers[:-1]:
            if producer == self.model.producers[-1]:
                continue
            with pytest.raises((ProducerFencedError, InvalidPidMappingError)):
                state.enlist(self.transaction, producer, (A,), self.now_ms)


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
