"""The memory that all requests share."""

from __future__ import annotations

from app.http.bodies.byte_budget import ByteBudget


def test_a_share_shrinks_with_what_is_held_and_grows_back() -> None:
    budget = ByteBudget(1000, "tests")
    assert budget.fair_share() == 250
    hold = budget.hold(600)
    assert budget.fair_share() == 100
    hold.resize(2000)
    assert budget.fair_share() == 0
    hold.release()
    hold.release()
    assert (budget.held_bytes, budget.fair_share()) == (0, 250)


def test_a_refusal_says_what_is_full_and_that_a_retry_may_help() -> None:
    problem = ByteBudget(1000, "tests").refusal({"Connection": "close"})
    assert (problem.status, problem.code, problem.retryable) == (503, "overloaded", True)
    assert problem.detail == "tests hold all the memory they may have, 1000 bytes"
    assert problem.all_headers()["Retry-After"] == "1"
    assert problem.all_headers()["Connection"] == "close"
