"""What a benchmark says: rows of a table, each with the limit beside it, its goal, and whose CPU was used."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple


class Plan(NamedTuple):
    """How much a benchmark measures."""

    rounds: int
    seconds: float
    """Wall time of one measurement; a row takes ``rounds * contestants * seconds``."""
    smoke: bool
    """Seconds in all, with little data: whether it runs, not how fast."""
    data_dir: Path
    """A directory of this run alone, on the disk that is measured."""
    say: Callable[[str], None]
    """Shows a line of progress."""


class Goal(NamedTuple):
    """A bound on a row's value, or on its ratio to the limit beside it."""

    of: Literal["value", "ratio"]
    at: Literal[">=", "<="]
    bound: float

    def is_met(self, interval: tuple[float, float]) -> bool:
        """False when all of ``interval`` is on the wrong side of the bound. A single figure is its own two ends."""
        lowest, highest = interval
        return highest >= self.bound if self.at == ">=" else lowest <= self.bound


def interval_of(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median, whatever the distribution: two of the values. ``None`` for fewer than six.

    The median lies outside of it only if nearly all values fell on one side of the median, which coin tosses do in
    fewer than 5 % of cases (the sign test; W. R. Thompson, "On Confidence Ranges for the Median", 1936).
    """
    ordered = sorted(values)
    tail, rank = 0.0, 0
    while (tail := tail + math.comb(len(ordered), rank) / 2 ** len(ordered)) <= 0.025:
        rank += 1
    return None if rank == 0 else (ordered[rank - 1], ordered[-rank])


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``None`` is "not measured" everywhere; CPU is in shares of one core."""

    bench: str
    name: str
    value: float | None
    unit: str
    limit: str = ""
    limit_value: float | None = None
    ratio: float | None = None
    """Ours to the limit's: the median of the rounds' ratios, which a slow minute of the machine disturbs least."""
    goal: Goal | None = None
    server_cpu: float | None = None
    generator_cpu: float | None = None
    limit_server_cpu: float | None = None
    limit_generator_cpu: float | None = None
    rounds: tuple[float, ...] = ()
    limit_rounds: tuple[float, ...] = ()
    note: str = ""
    extra: dict[str, float] = field(default_factory=dict)
    """Figures for plots and for the curious, by name."""
    limit_extra: dict[str, float] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        """Ours to the limit's, round by round."""
        return _ratios(self.rounds, self.limit_rounds)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio; ``None`` for fewer than six rounds."""
        return interval_of(self.ratios)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; ``None`` without a goal or a figure. The 95 % interval counts where there is one."""
        if self.goal is None:
            return None
        measured, rounds = (self.ratio, self.ratios) if self.goal.of == "ratio" else (self.value, self.rounds)
        return None if measured is None else self.goal.is_met(interval_of(rounds) or (measured, measured))

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "interval": self.interval, "met": self.met}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Row:
        values = {name: value for name, value in document.items() if name not in {"interval", "met"}}
        goal = values.get("goal")
        values["goal"] = None if goal is None else Goal(**goal) if isinstance(goal, dict) else Goal(*goal)
        values["rounds"] = tuple(values.get("rounds", ()))
        values["limit_rounds"] = tuple(values.get("limit_rounds", ()))
        return cls(**values)


class Sample(NamedTuple):
    """One measurement of one contestant."""

    value: float
    server_cpu: float | None = None
    generator_cpu: float | None = None
    extra: dict[str, float] = {}  # noqa: RUF012 - never changed


def median_of(samples: Sequence[Sample], attribute: Literal["value", "server_cpu", "generator_cpu"]) -> float | None:
    """The median of what was measured; ``None`` if nothing was."""
    values = [value for sample in samples if (value := getattr(sample, attribute)) is not None]
    return statistics.median(values) if values else None


def row_of(
    bench: str,
    name: str,
    unit: str,
    ours: Sequence[Sample],
    *,
    limit: str = "",
    limits: Sequence[Sample] = (),
    goal: Goal | None = None,
    note: str = "",
) -> Row:
    """The row of samples that were taken in turns: the n-th of both belong to one round."""
    rounds, limit_rounds = tuple(sample.value for sample in ours), tuple(sample.value for sample in limits)
    ratios = _ratios(rounds, limit_rounds)
    return Row(
        bench=bench,
        name=name,
        value=median_of(ours, "value"),
        unit=unit,
        limit=limit,
        limit_value=median_of(limits, "value"),
        ratio=statistics.median(ratios) if ratios else None,
        goal=goal,
        server_cpu=median_of(ours, "server_cpu"),
        generator_cpu=median_of(ours, "generator_cpu"),
        limit_server_cpu=median_of(limits, "server_cpu"),
        limit_generator_cpu=median_of(limits, "generator_cpu"),
        rounds=rounds,
        limit_rounds=limit_rounds,
        note=note,
        extra=_medians(ours),
        limit_extra=_medians(limits),
    )


def _ratios(ours: Sequence[float], limits: Sequence[float]) -> list[float]:
    return [mine / theirs for mine, theirs in zip(ours, limits, strict=False) if theirs]


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    names = sorted({key for sample in samples for key in sample.extra})
    return {key: statistics.median(sample.extra[key] for sample in samples if key in sample.extra) for key in names}
