"""Quotas: Kafka's numbers, precedence, and what a throttled client is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.problems.problem import Problem
from app.quotas.limits import DEFAULT, Limit, QuotaEntity, QuotaKind, QuotaTable
from app.quotas.sampled_rate import SAMPLE_COUNT, WINDOW_MS, SampledRate
from app.quotas.throttling import Client, Quotas
from log_model.clock import ManualClock

ALICE = Client("alice", "loader")


def quotas_of(**limits: float) -> tuple[Quotas, ManualClock]:
    clock = ManualClock()
    kinds = {QuotaKind[name.upper()]: per_second for name, per_second in limits.items()}
    return Quotas(clock, QuotaTable({QuotaEntity("alice", None): kinds})), clock


def test_q_1_ten_responses_of_400_bytes_then_2300_are_throttled_for_2100_ms() -> None:
    quotas, clock = quotas_of(produce=500)
    for _ in range(10):
        assert quotas.charge(QuotaKind.PRODUCE, ALICE, 400) == 0
        clock.advance(1000)
    clock.advance(500)
    assert quotas.charge(QuotaKind.PRODUCE, ALICE, 2300) == 2100
    clock.advance(2100)
    # The burst still counts for a while, and is forgotten when its window is.
    for _ in range(10):
        quotas.charge(QuotaKind.PRODUCE, ALICE, 400)
        clock.advance(1000)
    assert quotas.charge(QuotaKind.PRODUCE, ALICE, 0) == 0


def test_q_1_a_throttled_fetch_is_not_charged() -> None:
    quotas, clock = quotas_of(fetch=500)
    for _ in range(10):
        assert quotas.charge_fetch(ALICE, 400) == 0
        clock.advance(1000)
    clock.advance(500)
    assert quotas.charge_fetch(ALICE, 2300) == 2100
    # Not charged: a small answer fits at once, where after 2300 bytes it would not.
    assert quotas.charge_fetch(ALICE, 100) == 0


def test_a_client_that_does_not_wait_is_refused_until_its_time_has_passed() -> None:
    quotas, clock = quotas_of(produce=100)
    quotas.admit(QuotaKind.PRODUCE, ALICE)
    throttle_ms = quotas.charge(QuotaKind.PRODUCE, ALICE, 2000)
    assert throttle_ms == 10_000
    clock.advance(9_999)
    with pytest.raises(Problem) as refused:
        quotas.admit(QuotaKind.PRODUCE, ALICE)
    assert (refused.value.status, refused.value.code, refused.value.retry_after_ms) == (429, "throttled", 1)
    assert refused.value.retryable
    assert refused.value.applied == "no"
    quotas.admit(QuotaKind.FETCH, ALICE)
    quotas.admit(QuotaKind.PRODUCE, Client("bob", "loader"))
    clock.advance(1)
    quotas.admit(QuotaKind.PRODUCE, ALICE)


def test_a_batch_larger_than_the_quota_is_still_read() -> None:
    quotas, clock = quotas_of(fetch=10)
    assert quotas.charge_fetch(ALICE, 1000) == 0
    with pytest.raises(Problem):
        quotas.admit(QuotaKind.FETCH, ALICE)
    clock.advance(SAMPLE_COUNT * WINDOW_MS)
    assert quotas.charge_fetch(ALICE, 1000) == 0


def test_a_fetch_asks_for_no_more_than_the_quota_lets_through() -> None:
    quotas, _ = quotas_of(fetch=500)
    assert quotas.fetch_bytes_max(ALICE, 1 << 20) == 5000
    assert quotas.fetch_bytes_max(ALICE, 100) == 100
    assert quotas.fetch_bytes_max(Client("bob"), 1 << 20) == 1 << 20


def test_who_has_no_quota_leaves_no_trace() -> None:
    quotas, _ = quotas_of(produce=1)
    for number in range(100):
        assert quotas.charge(QuotaKind.PRODUCE, Client(f"user {number}"), 1e9) == 0
    assert not quotas._accounts


ORDER = [
    QuotaEntity("alice", "loader"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice", None),
    QuotaEntity(DEFAULT, "loader"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT, None),
    QuotaEntity(None, "loader"),
    QuotaEntity(None, DEFAULT),
]
SHARED_BY = [QuotaEntity(*ALICE)] * 2 + [QuotaEntity("alice", None)] + [QuotaEntity(*ALICE)] * 2
SHARED_BY += [QuotaEntity("alice", None), QuotaEntity(None, "loader"), QuotaEntity(None, "loader")]


@given(st.sets(st.integers(0, len(ORDER) - 1)))
def test_the_most_special_quota_holds(present: set[int]) -> None:
    table = QuotaTable({ORDER[place]: {QuotaKind.FETCH: place + 1} for place in present})
    expected = None if not present else Limit(min(present) + 1, SHARED_BY[min(present)])
    assert table.find(QuotaKind.FETCH, *ALICE) == expected
    assert table.find(QuotaKind.PRODUCE, *ALICE) is None


def test_a_quota_without_limits_is_gone() -> None:
    table = QuotaTable({ORDER[0]: {QuotaKind.FETCH: 1}}).with_limits(ORDER[0], {})
    assert len(table) == 0
    assert table.find(QuotaKind.FETCH, *ALICE) is None


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), max_size=60))
def test_the_rate_is_what_the_last_windows_hold(events: list[tuple[int, int]]) -> None:
    rate, now_ms = SampledRate(), 0
    windows: list[tuple[int, int]] = []
    for pause_ms, value in events:
        now_ms += pause_ms
        rate.record(value, now_ms)
        if windows and now_ms - windows[-1][0] < WINDOW_MS:
            windows[-1] = (windows[-1][0], windows[-1][1] + value)
        else:
            windows.append((now_ms, value))
    alive = [window for window in windows if now_ms - window[0] < SAMPLE_COUNT * WINDOW_MS]
    measured = rate.measure(now_ms)
    total = sum(value for _, value in alive)
    assert measured <= total / 10
    if alive:
        elapsed_ms = now_ms - alive[0][0]
        assert measured == pytest.approx(total * 1000 / max(elapsed_ms, 10_000 + elapsed_ms % 1000))
