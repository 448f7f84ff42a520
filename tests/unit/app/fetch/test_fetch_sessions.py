"""The table of fetch sessions: epochs, room, eviction, owners."""

from __future__ import annotations

import pytest

from app.fetch.fetch_sessions import FetchSessions, next_epoch
from app.fetch.multi_fetch_body import FetchPartition, ForgottenPartition, MultiFetchRequest
from app.problems.problem import Problem
from log_model.clock import ManualClock
from schemas.multi_fetch import INT_MAX


def asked(count: int, topic: str = "t") -> tuple[FetchPartition, ...]:
    return tuple(FetchPartition(partition, 0, topic) for partition in range(count))


class Table(FetchSessions):
    """Sessions on a clock of the test's."""

    def __init__(self, count_max: int = 3, partition_count_max: int = 1_000) -> None:
        self.clock = ManualClock()
        super().__init__(
            count_max=count_max,
            partition_count_max=partition_count_max,
            idle_ms=120_000,
            elapsed_ms=self.clock.elapsed_ms,
        )

    def begin(self, size: int = 1, principal: str | None = None) -> int:
        return self.context(MultiFetchRequest(session_epoch=0, partitions=asked(size)), principal).sent(())

    def go_on(self, session_id: int, epoch: int = 1, principal: str | None = None) -> int:
        request = MultiFetchRequest(session_id=session_id, session_epoch=epoch)
        return self.context(request, principal).sent(())

    def refused(self, session_id: int, epoch: int = 1, principal: str | None = None) -> int:
        with pytest.raises(Problem) as refused:
            self.go_on(session_id, epoch, principal)
        return refused.value.kafka_code


def test_epochs_go_round() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2, INT_MAX - 1, INT_MAX)] == [1, 2, 3, INT_MAX, 1]
    table = Table()
    session_id = table.begin()
    table._sessions[session_id].epoch = INT_MAX
    assert table.go_on(session_id, INT_MAX) == session_id
    assert table.refused(session_id, INT_MAX) == 71
    assert table.go_on(session_id, 1) == session_id


def test_a_full_table_gives_no_session() -> None:
    table = Table()
    sessions = [table.begin() for _ in range(3)]
    assert (len(set(sessions)), len(table), table.begin(), table.begin(100)) == (3, 3, 0, 0)
    table.clock.advance(120_000)
    assert table.begin(100) == 0
    assert all(table.go_on(session_id) == session_id for session_id in sessions)


def test_the_one_idle_for_longest_goes_first() -> None:
    table = Table()
    first, second, third = (table.begin() for _ in range(3))
    table.clock.advance(1)
    table.go_on(first)
    table.clock.advance(120_000)
    table.go_on(third)
    assert table.begin() != 0
    assert table.refused(second) == 70
    assert (table.eviction_count, len(table)) == (1, 3)
    # Idle for exactly the time is not too long.
    assert table.begin() == 0
    assert table.go_on(first, 2) == first


def test_a_larger_one_takes_the_place_of_a_smaller_one_that_is_old() -> None:
    table = Table()
    large, small, middle = table.begin(10), table.begin(2), table.begin(5)
    for _ in range(3):
        table.clock.advance(60_000)
        epoch = table.clock.elapsed_ms() // 60_000
        assert all(table.go_on(session_id, epoch) for session_id in (large, small, middle))
    assert table.begin(2) == 0
    taken = table.begin(3)
    assert taken != 0
    assert table.refused(small, 4) == 70
    # The new one is smaller than the middle one, but not old.
    assert table.begin(4) == 0
    assert table.begin(6) != 0
    assert table.refused(middle, 4) == 70
    assert table.go_on(large, 4) == large


def test_partitions_of_all_sessions_have_a_limit() -> None:
    table = Table(count_max=10, partition_count_max=10)
    first = table.begin(6)
    assert (table.begin(5), table.partition_count) == (0, 6)
    second = table.begin(4)
    assert table.partition_count == 10
    with pytest.raises(Problem, match="partitions"):
        table.context(MultiFetchRequest(session_id=second, session_epoch=1, partitions=asked(1, "u")), None)
    forgotten = tuple(ForgottenPartition(partition, "t") for partition in range(5))
    table.context(MultiFetchRequest(session_id=first, session_epoch=1, forgotten=forgotten), None)
    assert table.partition_count == 5
    table.context(MultiFetchRequest(session_id=second, session_epoch=1, partitions=asked(5)), None)
    assert table.partition_count == 6
    assert table.begin(11) == 0
    assert table.refused(0) == 70


def test_a_session_belongs_to_its_principal() -> None:
    table = Table()
    session_id = table.begin(principal="alice")
    assert table.refused(session_id, principal="bob") == 70
    assert table.refused(session_id) == 70
    # Nor can another one end it.
    table.context(MultiFetchRequest(session_id=session_id, session_epoch=-1), "bob")
    assert table.go_on(session_id, principal="alice") == session_id
    table.context(MultiFetchRequest(session_id=session_id, session_epoch=-1), "alice")
    assert (table.refused(session_id, 2, "alice"), len(table), table.partition_count) == (70, 0, 0)


def test_two_requests_at_once_cannot_both_be_the_next() -> None:
    table = Table()
    session_id = table.begin()
    slow = table.context(MultiFetchRequest(session_id=session_id, session_epoch=1), None)
    table.go_on(session_id, 2)
    for answer in (slow.news, slow.sent):
        with pytest.raises(Problem) as late:
            answer(())
        assert late.value.kafka_code == 71


def test_no_session_without_partitions_or_without_a_table() -> None:
    assert Table().begin(0) == 0
    assert Table(count_max=0).begin() == 0
