"""The states of a transaction against a model of a few lines, and Kafka's answers one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.engine.transactions import (
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_ID,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from app.engine_local.transactions.log import state
from app.engine_local.transactions.log.records import decode_value, encode_value
from app.engine_local.transactions.log.state import PRODUCER_EPOCH_MAX, TransactionTable
from log_model.clock import SETTLING_MS, ManualClock, ProtectedClock
from log_model.errors import (
    ConcurrentTransactionsError,
    InvalidPidMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from log_model.names import PartitionName

A, B = PartitionName("a", 0), PartitionName("b", 1)
NOW = 1_700_000_000_000
NOBODY = ProducerIdentity(-1, -1)


def given_id(existing: Transaction | None = None, next_id: int = 7, timeout_ms: int = 60_000) -> Transaction:
    return state.initialise(existing, "t", timeout_ms, NOW, lambda: next_id)


def producer_of(transaction: Transaction) -> ProducerIdentity:
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def ongoing(*partitions: PartitionName) -> Transaction:
    transaction = given_id()
    return state.enlist(transaction, producer_of(transaction), partitions or (A,), NOW)


def no_other_id() -> int:
    raise AssertionError("there are epochs left")


def end(
    transaction: Transaction,
    producer: ProducerIdentity | None = None,
    *,
    commit: bool,
    now_ms: int = NOW,
    allocate: Callable[[], int] = no_other_id,
) -> Transaction:
    who = producer_of(transaction) if producer is None else producer
    return state.end(transaction, who, commit=commit, now_ms=now_ms, allocate=allocate)


def ended(*, commit: bool) -> Transaction:
    return state.complete(end(ongoing(), commit=commit), NOW)


def of_an_earlier_revision(transaction: Transaction, epoch: int = 0) -> Transaction:
    """As a revision wrote it that raised no epoch at the end."""
    return replace(transaction, producer_epoch=epoch, version=0)


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
    """Kafka's table of EndTxn, transaction version 2."""
    transaction = ongoing()
    producer = producer_of(transaction)
    prepared = end(transaction, commit=commit)
    complete = state.complete(prepared, NOW)
    assert complete.partitions == frozenset()
    for decided in (prepared, complete):
        assert producer_of(decided) == (producer.producer_id, producer.producer_epoch + 1)
        assert end(decided, producer, commit=commit) is decided
        with pytest.raises(InvalidTxnStateError):
            end(decided, producer, commit=not commit)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("copy_commits", [True, False])
def test_a_late_copy_of_an_end_is_refused_once_the_next_transaction_has_begun(commit, copy_commits):
    first = ongoing()
    complete = state.complete(end(first, commit=commit), NOW)
    second = state.enlist(complete, producer_of(complete), (A,), NOW)
    aborted = state.complete(end(second, commit=False), NOW)
    for later in (second, end(second, commit=True), aborted, given_id(aborted)):
        with pytest.raises(ProducerFencedError):
            end(later, producer_of(first), commit=copy_commits)
        with pytest.raises(ProducerFencedError):
            state.enlist(later, producer_of(first), (B,), NOW)


@pytest.mark.parametrize("transaction", [given_id(), ended(commit=True), ended(commit=False)])
def test_without_records_there_is_an_abort_and_no_commit(transaction):
    """The abort shuts out what was sent and is still on its way."""
    with pytest.raises(InvalidTxnStateError, match="nothing was produced"):
        end(transaction, commit=True)
    prepared = end(transaction, commit=False, now_ms=NOW + 7)
    assert (prepared.state, prepared.partitions, prepared.start_ms) == (
        TransactionState.PREPARE_ABORT,
        frozenset(),
        NOW + 7,
    )
    complete = state.complete(prepared, NOW + 7)
    assert complete.producer_epoch == transaction.producer_epoch + 1
    assert end(complete, producer_of(transaction), commit=False) is complete
    with pytest.raises(ProducerFencedError):
        state.enlist(complete, producer_of(transaction), (A,), NOW)


def test_the_next_transaction_waits_until_the_one_before_has_ended():
    prepared = end(ongoing(), commit=True)
    for commit in (True, False):
        with pytest.raises(ConcurrentTransactionsError):
            end(prepared, producer_of(prepared), commit=commit)
    with pytest.raises(ConcurrentTransactionsError):
        state.enlist(prepared, producer_of(prepared), (A,), NOW)


@pytest.mark.parametrize("epoch", [0, PRODUCER_EPOCH_MAX - 2, PRODUCER_EPOCH_MAX - 1, PRODUCER_EPOCH_MAX])
def test_who_is_shut_out_cannot_end_and_is_never_told_the_next_epoch(epoch):
    """Neither end is taken for one that the producer asked for itself."""
    transaction = state.enlist(Transaction("t", 7, epoch, 1), ProducerIdentity(7, epoch), (A,), NOW)
    fenced = state.fence(transaction, NOW)
    complete = state.complete(fenced, NOW)
    for later in (fenced, complete, given_id(complete, 8)):
        for commit in (True, False):
            with pytest.raises((ProducerFencedError, InvalidPidMappingError)):
                end(later, producer_of(transaction), commit=commit, allocate=lambda: 9)


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_the_last_epoch_is_answered_with_another_producer_id(commit):
    last = ProducerIdentity(7, PRODUCER_EPOCH_MAX)
    transaction = state.enlist(Transaction("t", *last, 1), last, (A,), NOW)
    prepared = end(transaction, commit=commit, allocate=lambda: 8)
    # The markers go under the old id.
    assert producer_of(prepared) == (7, PRODUCER_EPOCH_MAX + 1)
    complete = state.complete(prepared, NOW)
    assert producer_of(complete) == (8, 0)
    for decided in (prepared, complete):
        assert end(decided, last, commit=commit) is decided
        with pytest.raises(InvalidTxnStateError):
            end(decided, last, commit=not commit)
    second = state.enlist(complete, producer_of(complete), (A,), NOW)
    for later in (second, end(second, commit=True), state.complete(end(second, commit=True), NOW)):
        with pytest.raises(InvalidPidMappingError):
            end(later, last, commit=commit)


@pytest.mark.parametrize("commit", [True, False])
def test_what_an_earlier_revision_has_ended_is_answered_and_its_epoch_raised_then(commit):
    prepared = of_an_earlier_revision(end(ongoing(), commit=commit))
    producer = producer_of(prepared)
    assert end(prepared, producer, commit=commit) is prepared
    by_us = state.complete(prepared, NOW)
    by_it = of_an_earlier_revision(ended(commit=commit))
    for complete in (by_us, end(by_it, producer, commit=commit)):
        assert (producer_of(complete), complete.version) == ((7, 1), EPOCH_PER_TRANSACTION)
        assert end(complete, producer, commit=commit) is complete
    for decided in (prepared, by_us, by_it):
        with pytest.raises(InvalidTxnStateError):
            end(decided, producer, commit=not commit)
    # Its producer goes on as it did before, and from then on as it does now.
    second = state.enlist(by_it, producer, (A,), NOW)
    assert producer_of(state.complete(end(second, commit=True), NOW)) == (7, 1)


def test_what_an_earlier_revision_has_ended_in_the_last_epoch_goes_on_with_another_producer_id():
    prepared = of_an_earlier_revision(end(ongoing(), commit=True), PRODUCER_EPOCH_MAX)
    complete = state.complete(prepared, NOW)
    last = producer_of(complete)
    assert last == (7, PRODUCER_EPOCH_MAX)
    raised = end(complete, last, commit=True, allocate=lambda: 8)
    assert producer_of(raised) == (8, 0)
    assert end(raised, last, commit=True) is raised


def test_whom_an_earlier_revision_has_shut_out_stays_so():
    shut_out = producer_of(ongoing())
    fenced = replace(state.fence(ongoing(), NOW), producer_epoch=1, version=0)
    for later in (fenced, state.complete(fenced, NOW), replace(state.complete(fenced, NOW), version=0)):
        for commit in (True, False):
            with pytest.raises(ProducerFencedError):
                end(later, shut_out, commit=commit)


@pytest.mark.parametrize("transaction", [given_id(), ongoing(), ended(commit=True), state.fence(ongoing(), NOW)])
def test_only_its_producer_may_touch_it(transaction):
    epoch = transaction.producer_epoch
    for call in (
        lambda producer: state.enlist(transaction, producer, (A,), NOW),
        lambda producer: end(transaction, producer, commit=False),
    ):
        with pytest.raises(InvalidPidMappingError):
            call(ProducerIdentity(8, epoch))
        for other in (epoch - 2, epoch + 1):
            with pytest.raises(ProducerFencedError):
                call(ProducerIdentity(7, other))


def test_nothing_is_enlisted_while_it_ends():
    prepared = end(ongoing(), commit=True)
    with pytest.raises(ConcurrentTransactionsError):
        state.enlist(prepared, prepared.producer, (A,), NOW)


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


def test_the_table_finds_by_name_and_by_producer_and_counts_open_ones():
    table = TransactionTable(ProtectedClock(ManualClock()))
    for number, name in enumerate(("c", "a", "b")):
        table.put(Transaction(name, number, 0, 1))
    table.put(Transaction("a", 9, 0, 1, TransactionState.ONGOING))
    assert table.find_name(1) is None
    assert table.find_name(9) == "a"
    assert table.open_count == 1
    table.put(Transaction("a", 9, 1, 1, TransactionState.PREPARE_ABORT))
    assert table.open_count == 1
    table.put(Transaction("b", 2, 0, 1, TransactionState.ONGOING))
    assert table.open_count == 2
    table.put(Transaction("b", 2, 1, 1, TransactionState.COMPLETE_COMMIT))
    assert table.open_count == 1
    table.remove("a")
    assert table.open_count == 0
    table.remove("a")
    assert table.find("a") is None
    assert table.find_name(9) is None
    assert len(table) == len(list(table)) == 2


@dataclass
class Model:
    """What one transactional id promises, said another way: an identity is good for one transaction."""

    given: list[ProducerIdentity] = field(default_factory=list)
    """Every identity that anybody was ever told."""
    current: ProducerIdentity = NOBODY
    """The one that may write now; none after a fence."""
    outcomes: dict[ProducerIdentity, bool] = field(default_factory=dict)
    """How the transactions ended that their producer ended, by its identity then."""
    written: set[PartitionName] = field(default_factory=set)
    is_open: bool = False
    ending: ProducerIdentity | None = None
    """Whose transaction is being ended, ``NOBODY`` after a fence."""
    may_repeat: ProducerIdentity | None = None
    """Who asked for the end that came last, and may ask again."""


class TransactionMachine(RuleBasedStateMachine):
    """Instances of a producer come and go, and any request that was ever made may come again at any time, late.

    What is older than the transaction that is open changes nothing: the record stays the very same. The record is
    read back each time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ids = count()
        self.model = Model()
        self.transaction: Transaction | None = None
        self.now_ms = NOW

    def become(self, transaction: Transaction) -> None:
        self.transaction = decode_value("t", encode_value(transaction))
        assert self.transaction == transaction

    def give(self, producer: ProducerIdentity) -> None:
        assert producer not in self.model.given, "an identity is given once"
        self.model.given.append(producer)
        self.model.current = producer

    @rule(timeout_ms=st.integers(1, 1000))
    def initialise(self, timeout_ms: int) -> None:
        before = self.transaction
        if before is not None and (self.model.is_open or self.model.ending is not None):
            with pytest.raises(ConcurrentTransactionsError):
                state.initialise(before, "t", timeout_ms, self.now_ms, lambda: next(self.ids))
            if before.is_ongoing:
                self.fence()
            self.finish()
        self.become(state.initialise(self.transaction, "t", timeout_ms, self.now_ms, lambda: next(self.ids)))
        self.give(producer_of(self.transaction))
        self.model.may_repeat = None

    @precondition(lambda self: self.transaction is not None and self.model.ending is None)
    @rule(left=st.integers(0, 2))
    def use_up_the_epochs(self, left: int) -> None:
        """As if there had been as many transactions."""
        epoch = PRODUCER_EPOCH_MAX - left
        if self.model.is_open or self.transaction.producer_epoch >= epoch:
            return
        producer = ProducerIdentity(self.transaction.producer_id, epoch)
        self.become(replace(Transaction("t", *producer, 1), updated_ms=self.now_ms))
        self.give(producer)
        self.model.may_repeat = None

    @precondition(lambda self: self.model.given)
    @rule(data=st.data(), partition=st.sampled_from([A, B]))
    def enlist(self, data: st.DataObject, partition: PartitionName) -> None:
        producer = data.draw(st.sampled_from(self.model.given))
        before = self.transaction
        try:
            after = state.enlist(before, producer, (partition,), self.now_ms)
        except (ProducerFencedError, InvalidPidMappingError):
            assert producer != self.model.current or self.model.ending is not None
            return
        assert producer == self.model.current
        assert self.model.ending is None
        self.become(after)
        self.model.is_open, self.model.may_repeat = True, None
        self.model.written.add(partition)

    @precondition(lambda self: self.model.given)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        model = self.model
        producer = data.draw(st.sampled_from(model.given))
        before = self.transaction
        try:
            after = end(before, producer, commit=commit, now_ms=self.now_ms, allocate=lambda: next(self.ids))
        except (ProducerFencedError, InvalidPidMappingError):
            assert producer != model.may_repeat
            assert producer != model.current or model.ending is not None
        except InvalidTxnStateError:
            if producer == model.may_repeat:
                assert model.outcomes[producer] != commit
            else:
                assert producer == model.current
                assert commit
                assert not model.is_open
        else:
            if producer == model.may_repeat:
                assert model.outcomes[producer] == commit
                assert after is before
                return
            assert producer == model.current
            assert model.is_open or not commit
            self.become(after)
            model.is_open, model.ending, model.may_repeat = False, producer, producer
            model.outcomes[producer] = commit

    @precondition(lambda self: self.model.is_open)
    @rule()
    def fence(self) -> None:
        self.become(state.fence(self.transaction, self.now_ms))
        self.model.is_open, self.model.ending, self.model.current = False, NOBODY, NOBODY

    @precondition(lambda self: self.model.ending is not None)
    @rule()
    def finish(self) -> None:
        assert self.transaction.partitions == self.model.written
        commits = self.model.outcomes.get(self.model.ending, False)
        self.become(state.complete(self.transaction, self.now_ms))
        assert self.transaction.commits == commits
        if self.model.ending != NOBODY:
            self.give(producer_of(self.transaction))
        self.model.ending = None
        self.model.written = set()

    @rule(ms=st.integers(0, 2000))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @invariant()
    def only_the_last_identity_can_write(self) -> None:
        if self.transaction is None:
            return
        assert self.transaction.is_ongoing == self.model.is_open
        assert self.transaction.is_ending == (self.model.ending is not None)
        assert self.transaction.is_open or not self.transaction.partitions
        assert self.transaction.is_ending or self.transaction.next_producer_id == NO_PRODUCER_ID
        for producer in self.model.given:
            if producer == self.model.current:
                continue
            with pytest.raises((ProducerFencedError, InvalidPidMappingError)):
                state.enlist(self.transaction, producer, (A,), self.now_ms)


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
