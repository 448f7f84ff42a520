"""Crowds against a simple model: who is answered, exactly once, how many in a turn of the loop, and what is left."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from app.engine_local.partitions.crowds import ANSWERED_BETWEEN_LOOKS, TURN_SECONDS, Crowd, Crowds, Member
from app.engine_local.partitions.fetch_waiters import FetchWaiter, FetchWaiters, Wake, is_served, known_place
from app.event_loop.deadlines import GRAIN_MS
from app.problems.problem import Problem
from log_model.names import PartitionName
from log_model.offsets import LogOffsetMetadata, Offset, Position
from log_model.reads import Isolation
from storage.log.log_snapshot import LogSnapshot

COUNT_MAX = 60
ANSWER_SECONDS = TURN_SECONDS / 8
ISOLATIONS = (Isolation.HIGH_WATERMARK, Isolation.LAST_STABLE)
PARTITIONS = (0, 1)


def place(offset: int) -> LogOffsetMetadata:
    return LogOffsetMetadata(Offset(offset), Offset(0), Position(offset * 10))


class Log:
    """A log without records: its limits, and who has to hear of them."""

    def __init__(self, partition: int) -> None:
        self.name = PartitionName("t", partition)
        self.snapshot = LogSnapshot((), (), Offset(0), place(0), place(0), place(0))

    def grow(self, end: int, stable: int) -> None:
        self.snapshot = LogSnapshot((), (), Offset(0), place(stable), place(end), place(end))


class ManualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose time moves when the test says so."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Fetch:
    """A member of a crowd, and what became of it."""

    def __init__(self, log: Log, place: LogOffsetMetadata, min_bytes: int, isolation: Isolation) -> None:
        self.crowd: Any = None
        self.deadline: Any = None
        self.log, self.place, self.min_bytes, self.isolation = log, place, min_bytes, isolation
        self.answers: list[Wake] = []
        self.has_left = False
        self.is_expired = False
        self.ends_at = math.inf

    @property
    def is_served(self) -> bool:
        return is_served(self.log.snapshot, self.place, self.min_bytes, self.isolation)

    @property
    def waits(self) -> bool:
        return not self.answers and not self.has_left


class Answers(Crowd):
    """A crowd whose answers take time, which the loop's clock shows."""

    __slots__ = ("machine",)

    def answer(self, members: list[Any], wake: Wake) -> bool:
        for member in members:
            assert not member.has_left
            member.answers.append(wake)
            self.machine.answered_in_turn += 1
            self.machine.loop.now += ANSWER_SECONDS
        return self.machine.is_dear


class CrowdMachine(RuleBasedStateMachine):
    """Fetches that come and go, appends, transactions, time, deletions, failures, the end: alone and in one turn."""

    crowds_class = Crowds
    count_max = COUNT_MAX

    def __init__(self) -> None:
        super().__init__()
        self.loop = ManualTimeLoop()
        self.logs = [Log(partition) for partition in PARTITIONS]
        self.waiters = FetchWaiters(count_max=self.count_max)
        self.crowds = self.crowds_class(self.waiters, clock=self.loop.time)
        self.fetches: list[Fetch] = []
        self.alone: list[FetchWaiter] = []
        self.gone: set[int] = set()
        self.failed: set[int] = set()
        self.unnoticed: set[int] = set()
        self.is_closed = False
        self.answered_in_turn = 0
        self.is_dear = False

    # What happens

    def join(self, partition: int, isolation: Isolation, wait_ms: int, min_bytes: int) -> None:
        log = self.logs[partition]
        at = known_place(log.snapshot, log.snapshot.bound(isolation).offset)
        assert at is not None
        fetch = Fetch(log, at, min_bytes, isolation)
        key = (log, at, min_bytes, isolation)

        def begin() -> Answers:
            crowd = Answers(key, log, at, min_bytes, isolation)  # type: ignore[arg-type]
            crowd.machine = self
            return crowd

        if len(self.waiters) >= self.count_max:
            with pytest.raises(Problem, match="wait already"):
                self.crowds.join(key, fetch, wait_ms, begin)
            return
        self.crowds.join(key, fetch, wait_ms, begin)
        fetch.ends_at = self.loop.now + wait_ms / 1000
        self.fetches.append(fetch)

    def wait_alone(self, partition: int) -> None:
        log: Any = self.logs[partition]
        try:
            self.alone.append(self.waiters.register(log, log.snapshot.high_watermark_metadata, min_bytes=1, wait_ms=50))
        except Problem:
            assert len(self.waiters) == COUNT_MAX

    def append(self, partition: int, count: int, *, opens: bool, notices: bool) -> None:
        log = self.logs[partition]
        was_stable = log.snapshot.last_stable_offset == log.snapshot.high_watermark
        end = log.snapshot.high_watermark + count
        log.grow(end, end if was_stable and not opens else log.snapshot.last_stable_offset)
        self.notice(partition) if notices else self.unnoticed.add(partition)

    def end_transaction(self, partition: int) -> None:
        log = self.logs[partition]
        log.grow(log.snapshot.high_watermark, log.snapshot.high_watermark)
        self.notice(partition)

    def notice(self, partition: int) -> None:
        self.unnoticed.discard(partition)
        self.waiters.wake(self.logs[partition].name)

    def leave(self, number: int) -> None:
        if self.fetches:
            fetch = self.fetches[number % len(self.fetches)]
            waited = fetch.waits
            assert self.crowds.leave(fetch) is waited
            fetch.has_left = fetch.has_left or waited

    def expire(self, number: int) -> None:
        if self.fetches:
            fetch = self.fetches[number % len(self.fetches)]
            fetch.is_expired = True
            self.crowds.expire(fetch)

    def delete(self, partition: int) -> None:
        # Those that come later find no log, or wait for another one.
        self.gone.add(partition)
        self.waiters.wake_gone([self.logs[partition].name])
        self.logs[partition] = Log(partition)

    def fail(self, partition: int) -> None:
        self.failed.add(partition)
        self.waiters.wake_failed(self.logs[partition].name)

    def close(self) -> None:
        self.is_closed = True
        self.waiters.close()

    # When it happens

    def take_turns(self, count: int) -> None:
        async def run() -> None:
            for _ in range(count):
                self.answered_in_turn = 0
                await asyncio.sleep(0)
                # At least one look at the clock in each handful, and others have their turn behind it.
                spare = 0 if self.is_dear else TURN_SECONDS / ANSWER_SECONDS
                assert self.answered_in_turn <= spare + ANSWERED_BETWEEN_LOOKS

        self.loop.run_until_complete(run())

    events = st.one_of(
        st.tuples(
            st.just("join"),
            st.tuples(
                st.sampled_from(PARTITIONS),
                st.sampled_from(ISOLATIONS),
                st.integers(1, 60),
                st.sampled_from([1, 1, 25]),
            ),
        ),
        st.tuples(st.just("wait_alone"), st.tuples(st.sampled_from(PARTITIONS))),
        st.tuples(st.just("append"), st.tuples(st.sampled_from(PARTITIONS), st.integers(1, 3))),
        st.tuples(st.just("append_unnoticed"), st.tuples(st.sampled_from(PARTITIONS), st.integers(1, 3))),
        st.tuples(st.just("append_open"), st.tuples(st.sampled_from(PARTITIONS), st.integers(1, 3))),
        st.tuples(st.just("end_transaction"), st.tuples(st.sampled_from(PARTITIONS))),
        st.tuples(st.just("notice"), st.tuples(st.sampled_from(PARTITIONS))),
        st.tuples(st.just("leave"), st.tuples(st.integers(0, 100))),
        st.tuples(st.just("expire"), st.tuples(st.integers(0, 100))),
        st.tuples(st.just("delete"), st.tuples(st.sampled_from(PARTITIONS))),
        st.tuples(st.just("fail"), st.tuples(st.sampled_from(PARTITIONS))),
    )

    @rule(events=st.lists(events, min_size=1, max_size=6), turns=st.integers(1, 4))
    def in_one_turn(self, events: list[tuple[str, tuple[Any, ...]]], turns: int) -> None:
        async def run() -> None:
            for name, arguments in events:
                if name.startswith("append"):
                    self.append(*arguments, opens=name == "append_open", notices=name != "append_unnoticed")
                else:
                    getattr(self, name)(*arguments)

        self.loop.run_until_complete(run())
        self.take_turns(turns)

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, COUNT_MAX), wait_ms=st.integers(1, 60))
    def many_come(self, partition: int, count: int, wait_ms: int) -> None:
        async def run() -> None:
            for _ in range(count):
                self.join(partition, Isolation.HIGH_WATERMARK, wait_ms, 1)

        self.loop.run_until_complete(run())

    @rule(ms=st.integers(1, 40), turns=st.integers(0, 3))
    def time_passes(self, ms: int, turns: int) -> None:
        self.loop.now += ms / 1000
        self.take_turns(turns)

    @rule(is_dear=st.booleans())
    def answers_cost(self, is_dear: bool) -> None:
        """Whether the application answers them."""
        self.is_dear = is_dear

    @rule()
    def stop(self) -> None:
        async def run() -> None:
            self.close()

        self.loop.run_until_complete(run())

    @rule()
    def settle(self) -> None:
        """Once nothing more happens, everybody is answered who has to be, and the others wait."""
        self.take_turns(6 * COUNT_MAX)
        waiting = [fetch for fetch in self.fetches if fetch.waits]
        for fetch in waiting:
            assert not self.is_closed
            assert not fetch.is_expired
            assert fetch.log in self.logs
            partition = fetch.log.name.partition
            assert not fetch.is_served or partition in self.unnoticed
            assert self.loop.now <= fetch.ends_at + GRAIN_MS / 1000
        assert len(self.waiters) == len(waiting) + sum(not waiter.done.done() for waiter in self.alone)
        assert len(self.crowds) == len({fetch.crowd for fetch in waiting})

    @invariant()
    def each_has_ended_at_most_once_and_for_a_reason(self) -> None:
        assert len(self.waiters) <= self.count_max
        for fetch in self.fetches:
            assert len(fetch.answers) + fetch.has_left <= 1
            assert (fetch.crowd is None) is not fetch.waits
            assert fetch.deadline is None or fetch.waits
            partition = fetch.log.name.partition
            if fetch.answers == [Wake.AVAILABLE]:
                assert fetch.is_served
            elif fetch.answers == [Wake.TIMEOUT]:
                assert fetch.is_expired or self.loop.now >= fetch.ends_at - 1e-6
            elif fetch.answers == [Wake.GONE]:
                assert partition in self.gone
            elif fetch.answers == [Wake.FAILED]:
                assert partition in self.failed
            elif fetch.answers == [Wake.SHUTDOWN]:
                assert self.is_closed

    def teardown(self) -> None:
        async def run() -> None:
            self.close()
            self.crowds.close()

        try:
            self.settle()
            self.loop.run_until_complete(run())
            self.settle()
            assert not [fetch for fetch in self.fetches if fetch.waits]
        finally:
            self.loop.close()


CrowdMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestCrowds = CrowdMachine.TestCase


def test_a_small_crowd_does_not_wait_for_a_large_one() -> None:
    class Large(CrowdMachine):
        count_max = 1_000

    machine = Large()

    async def run() -> None:
        for _ in range(900):
            machine.join(0, Isolation.HIGH_WATERMARK, 60_000, 1)
        machine.join(1, Isolation.HIGH_WATERMARK, 60_000, 1)
        machine.append(0, 1, opens=False, notices=True)
        machine.append(1, 1, opens=False, notices=True)

    machine.loop.run_until_complete(run())
    large, small = machine.fetches[:-1], machine.fetches[-1]
    while not small.answers:
        machine.take_turns(1)
    assert sum(bool(fetch.answers) for fetch in large) <= 3 * (ANSWERED_BETWEEN_LOOKS + TURN_SECONDS / ANSWER_SECONDS)
    machine.take_turns(900)
    assert all(fetch.answers == [Wake.AVAILABLE] for fetch in machine.fetches)
    machine.teardown()


# Defects, to see that the machine would notice


class AnswersTwice(Crowds):
    """It forgets that who is due twice is answered once."""

    def _take(self, member: Member) -> Crowd | None:
        crowd = super()._take(member)
        if crowd is not None and crowd.done.done():
            member.crowd = crowd
        return crowd


class ForgetsAtTimeout(Crowds):
    """A member whose time is up leaves, and the crowd does not answer it."""

    def __init__(self, waiters: FetchWaiters, *, clock: Callable[[], float]) -> None:
        super().__init__(waiters, clock=clock)
        self._deadlines._arrived = lambda members: [self.leave(member) for member in members]


class CountsOnlyCrowds(Crowds):
    """Only the first of a crowd counts among the fetches that wait."""

    def __init__(self, waiters: FetchWaiters, *, clock: Callable[[], float]) -> None:
        super().__init__(waiters, clock=clock)
        waiters.purgatory.join = lambda _: None  # type: ignore[method-assign]


class AnswersAllAtOnce(Crowds):
    """It looks at no clock."""

    def _take_turn(self) -> None:
        while self._due:
            super()._take_turn()


class JoinsTheWoken(Crowds):
    """Who comes after a wake joins those that were woken."""

    def _completed(self, crowd: Crowd, done: object) -> None:
        super()._completed(crowd, done)
        self._crowds[crowd.key] = crowd


@pytest.mark.parametrize("defect", [AnswersTwice, ForgetsAtTimeout, CountsOnlyCrowds, AnswersAllAtOnce, JoinsTheWoken])
def test_the_model_finds_a_defect(defect: type[Crowds]) -> None:
    class Defective(CrowdMachine):
        crowds_class = defect

    with pytest.raises(Exception):  # noqa: B017, PT011 - what it meets first depends on the history
        run_state_machine_as_test(
            Defective,
            settings=settings(
                max_examples=400,
                stateful_step_count=25,
                deadline=None,
                database=None,
                report_multiple_bugs=False,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
