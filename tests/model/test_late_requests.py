"""A late copy of any earlier request, at any time, changes the outcome of no later transaction.

Producers of a real coordinator on a simulated disk against a few lines that say what an identity is good for: one
transaction. Clients give requests up, which arrive later or never; copies of all of them stay on their way for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from app.engine.transactions import ProducerIdentity, Transaction
from app.engine_local.transactions.log.state import PRODUCER_EPOCH_MAX
from app.service.parts import Parts
from log_model.clock import ManualClock
from log_model.errors import (
    InvalidPidMappingError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    StorageError,
)
from storage.log.partition_log import AppendResult
from tests.crash.transaction_workload import CONFIG, TIMEOUT_MS, open_parts
from tests.crash.workload import new_disk
from tests.support.earlier_transactions import end_as_before
from tests.support.transactions import NOBODY, TestProducer, committed_values, settled

NAMES = ("one", "two")
PARTITIONS = 2
SHUT_OUT = (ProducerFencedError, InvalidPidMappingError)


class Send(NamedTuple):
    """A request to append one record."""

    name: str
    identity: ProducerIdentity
    partition: int
    sequence: int
    value: bytes


class End(NamedTuple):
    """A request to commit or to abort."""

    name: str
    identity: ProducerIdentity
    commit: bool


Request = Send | End


@dataclass
class Producer:
    """What is expected of a transactional id."""

    identity: ProducerIdentity = NOBODY
    """The one that may write now; nobody, once the producer was shut out."""
    sequences: dict[int, int] = field(default_factory=dict)
    is_open: bool = False
    last_end: End | None = None
    """The end that came last, until the next transaction begins: asked for again it is answered again."""
    answer: ProducerIdentity = NOBODY


class LateRequests(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.disk = new_disk(self.clock)
        self.requests: list[Request] = []
        self.producers = {name: Producer() for name in NAMES}
        self.appended: list[tuple[Send, int]] = []
        """What is in the logs, by rising offset in each partition."""
        self.outcomes: dict[ProducerIdentity, bool] = {}
        self.number = 0
        self.run(self._open())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def _open(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        self.parts: Parts = open_parts(self.disk, self.clock)
        self.logs = (await self.parts.engine.topics.ensure("t", PARTITIONS, CONFIG))[0].partitions
        await self.parts.engine.transactions.start()
        await settled(self.parts)

    # What clients do

    @initialize()
    def begin(self) -> None:
        for name in NAMES:
            self.initialise(name)

    @rule(name=st.sampled_from(NAMES))
    def initialise(self, name: str) -> None:
        given = self.run(self.parts.engine.transactions.initialise(name, TIMEOUT_MS, 30_000))
        assert given not in self.outcomes
        if self.producers[name].is_open:
            self.outcomes[self.producers[name].identity] = False
        self.producers[name] = Producer(given)

    def new_send(self, name: str, partition: int) -> Send:
        producer = self.producers[name]
        self.number += 1
        sequence = producer.sequences.get(partition, 0)
        request = Send(name, producer.identity, partition, sequence, b"%d" % self.number)
        self.requests.append(request)
        return request

    @rule(name=st.sampled_from(NAMES), partition=st.integers(0, PARTITIONS - 1), is_given_up=st.booleans())
    def send(self, name: str, partition: int, is_given_up: bool) -> None:
        if self.producers[name].identity != NOBODY:
            request = self.new_send(name, partition)
            if not is_given_up:
                self.deliver(request)

    @rule(name=st.sampled_from(NAMES), commit=st.booleans(), is_given_up=st.booleans())
    def end(self, name: str, commit: bool, is_given_up: bool) -> None:
        if self.producers[name].identity != NOBODY:
            request = End(name, self.producers[name].identity, commit)
            self.requests.append(request)
            if not is_given_up:
                self.deliver(request)

    # What the network does

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        self.deliver(data.draw(st.sampled_from(self.requests)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), name=st.sampled_from(NAMES), partition=st.integers(0, PARTITIONS - 1))
    def arrive_late_together(self, data: st.DataObject, name: str, partition: int) -> None:
        """Copies of requests of earlier transactions, in the same moment as one of this transaction."""
        producer = self.producers[name]
        earlier = [each for each in self.requests if each.identity != self.producers[each.name].identity]
        if producer.identity == NOBODY or not earlier:
            return
        copies = data.draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=3))
        request = self.new_send(name, partition)
        repeatable = {each.last_end for each in self.producers.values()}

        async def together() -> list[Any]:
            asked = [self._ask(each) for each in (*copies[:1], request, *copies[1:])]
            return await asyncio.gather(*asked, return_exceptions=True)

        first, own, *others = self.run(together())
        for copy, answer in zip(copies, (first, *others), strict=True):
            assert isinstance(answer, (*SHUT_OUT, InvalidTxnStateError)) or copy in repeatable, answer
        self._note_send(request, own)

    # What the service does

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.run(self.parts.close())
        self.disk = self.disk.killed()
        self.run(self._open())

    @rule()
    def time_out(self) -> None:
        self.clock.advance(TIMEOUT_MS + 1)
        self.run(self.parts.engine.transactions.run_jobs())
        self.run(settled(self.parts))
        for name, producer in self.producers.items():
            if producer.is_open:
                self.outcomes[producer.identity] = False
                self.producers[name] = Producer()

    @rule(name=st.sampled_from(NAMES), left=st.integers(0, 2))
    def use_up_the_epochs(self, name: str, left: int) -> None:
        """As if there had been as many transactions."""
        known, epoch = self.parts.engine.transactions.find(name), PRODUCER_EPOCH_MAX - left
        assert known is not None
        if known.is_open or known.producer_epoch >= epoch:
            return
        worn = replace(Transaction(name, known.producer_id, epoch, TIMEOUT_MS), updated_ms=self.clock.now_ms())
        self.run(self.parts.engine.transactions._state_log.write(worn))
        self.parts.engine.transactions._table.put(worn)
        self.producers[name] = Producer(worn.producer)

    # What is expected of that

    def deliver(self, request: Request) -> None:
        try:
            answer = self.run(self._ask(request))
        except StorageError as error:
            answer = error
        if isinstance(request, Send):
            self._note_send(request, answer)
        else:
            self._note_end(request, answer)

    async def _ask(self, request: Request) -> AppendResult | Transaction:
        if isinstance(request, End):
            name, identity, commit = request
            return await self.parts.engine.transactions.end(name, identity, commit=commit, wait_ms=30_000)
        client = TestProducer(self.parts, request.name)
        log = self.logs[request.partition]
        return await client.send_at(log, request.sequence, request.value, identity=request.identity)

    def _note_send(self, request: Send, answer: AppendResult | StorageError) -> None:
        producer = self.producers[request.name]
        expected = producer.sequences.get(request.partition, 0)
        if request.identity != producer.identity:
            assert isinstance(answer, SHUT_OUT), answer
        elif request.sequence != expected:
            # Maybe too long ago to be remembered; appended it is not.
            assert isinstance(answer, OutOfOrderSequenceError) or (
                isinstance(answer, AppendResult) and answer.duplicate
            )
        else:
            assert isinstance(answer, AppendResult), answer
            assert not answer.duplicate
            self.appended.append((request, answer.base_offset))
            producer.sequences[request.partition] = expected + 1
            producer.is_open, producer.last_end = True, None

    def _note_end(self, request: End, answer: Transaction | StorageError) -> None:
        producer = self.producers[request.name]
        last = producer.last_end
        if request.identity == producer.identity:
            if request.commit and not producer.is_open:
                assert isinstance(answer, InvalidTxnStateError), answer
                return
            assert isinstance(answer, Transaction), answer
            assert answer.producer not in self.outcomes
            assert answer.commits == request.commit
            self.outcomes[request.identity] = request.commit
            self.producers[request.name] = Producer(answer.producer, last_end=request, answer=answer.producer)
        elif last is None or request.identity != last.identity:
            assert isinstance(answer, SHUT_OUT), answer
        elif request.commit != last.commit:
            assert isinstance(answer, InvalidTxnStateError), answer
        else:
            assert isinstance(answer, Transaction), answer
            assert (answer.producer, answer.commits) == (producer.answer, request.commit)

    def teardown(self) -> None:
        """Read what is committed, when nothing is open any more."""
        try:
            for name in NAMES:
                if self.producers[name].identity != NOBODY:
                    self.initialise(name)
            for number, log in enumerate(self.logs):
                there = sorted(
                    (offset, request.value)
                    for request, offset in self.appended
                    if request.partition == number and self.outcomes[request.identity]
                )
                assert committed_values(log.snapshot) == [value for _, value in there]
                assert log.snapshot.last_stable_offset == log.snapshot.log_end_offset
            self.run(self.parts.close())
        finally:
            self.runner.close()


SETTINGS = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLateRequests = LateRequests.TestCase
TestLateRequests.settings = SETTINGS


def test_the_behaviour_of_earlier_revisions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """They gave the next transaction the epoch of the one before."""
    end_as_before(monkeypatch.setattr)
    with pytest.raises((AssertionError, ExceptionGroup)), contextlib.redirect_stdout(None):
        run_state_machine_as_test(LateRequests, settings=settings(SETTINGS, database=None, phases=[Phase.generate]))
