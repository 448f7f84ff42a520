"""Measuring in turns: every round measures each contestant once, so that a busy machine disturbs all alike.

Each round begins with another contestant: what one leaves behind (dirty pages, a warm cache) meets all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.processes import BenchError
from bench.rows import Plan, Sample

WARM_UP_SECONDS = 0.3


def in_turns(plan: Plan, what: str, contestants: Mapping[str, Callable[[float], Sample]]) -> dict[str, list[Sample]]:
    """Measure each contestant for ``plan.seconds`` in each of ``plan.rounds`` rounds; the first has a warm-up before.

    Raises:
        BenchError: one of them failed; the message says which.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in contestants}
    turns = list(contestants.items())
    for number in range(plan.rounds):
        plan.say(f"{what}: round {number + 1} of {plan.rounds}")
        first = number % len(turns)
        for name, measure in turns[first:] + turns[:first]:
            try:
                if number == 0:
                    measure(min(WARM_UP_SECONDS, plan.seconds))
                samples[name].append(measure(plan.seconds))
            except BenchError as error:
                raise BenchError(f"{what}, {name}: {error}") from None
    return samples
