"""The limits of ``limits.toml``: numbers that are above their goal today stand in lists there, and may only fall."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "limits.toml"

# Lists whose entries must say why.
_WITH_REASONS = frozenset(("methods", "lines"))


@dataclass(frozen=True)
class Listed:
    """A number above its goal, and why it is."""

    now: int
    reason: str = ""


@dataclass(frozen=True)
class Fault:
    """A number above its limit, or an entry that is not up to date; ``is_fall`` if ``lowered`` mends the entry."""

    text: str
    group: str
    name: str
    number: int = 0
    is_fall: bool = False


@dataclass(frozen=True)
class Group:
    """The limits of one kind of number: one goal for all names, or one for each name that has any."""

    name: str
    most: int | Mapping[str, int]
    listed: Mapping[str, Listed] = field(default_factory=dict)

    def goal(self, name: str) -> int | None:
        return self.most if isinstance(self.most, int) else self.most.get(name)

    def faults(self, numbers: Mapping[str, int]) -> Iterator[Fault]:
        """Compare numbers with the limits, and the list with the numbers."""
        for name, number in numbers.items():
            if (goal := self.goal(name)) is not None:
                yield from self._faults_of(name, number, goal)
        for name in self.listed.keys() - numbers.keys():
            yield self._fault(name, "is not there: give the entry its new name, or take it out", 0)

    def _faults_of(self, name: str, number: int, goal: int) -> Iterator[Fault]:
        entry = self.listed.get(name)
        if entry is None:
            if number > goal:
                yield self._fault(name, f"is {number}, and {goal} is the limit", number)
        elif number > entry.now:
            yield self._fault(name, f"is {number}, and was {entry.now}; the goal is {goal}", number)
        elif number <= goal:
            yield self._fault(name, f"is {number}, within the limit: take the entry out", number, is_fall=True)
        elif number < entry.now:
            yield self._fault(name, f"is {number}, and was {entry.now}: lower the entry", number, is_fall=True)

    def _fault(self, name: str, words: str, number: int, *, is_fall: bool = False) -> Fault:
        return Fault(f"{self.name}: {name} {words}", self.name, name, number, is_fall)


@dataclass(frozen=True)
class Statements:
    """How many statements there may be, and how many there were at ``commit``, for each place."""

    commit: str
    before: Mapping[str, int]
    allowance: int
    aim_percent: int

    @property
    def most(self) -> int:
        return sum(self.before.values()) + self.allowance

    @property
    def aim(self) -> int:
        return sum(self.before.values()) * self.aim_percent // 100

    def faults(self, numbers: Mapping[str, int]) -> Iterator[Fault]:
        total = sum(numbers.values())
        if total > self.most:
            yield Fault(f"statements: there are {total}, and {self.most} is the limit", "statements", "total", total)


@dataclass(frozen=True)
class Limits:
    """Everything in ``limits.toml``."""

    folders: Group
    rooms: Group
    methods: Group
    lines: Group
    stays: Group
    returns: Group
    statements: Statements
    entries: tuple[str, ...]
    """The walks that are measured."""
    leaves: tuple[str, ...]
    """The places that a walk enters and does not read."""


def read(text: str) -> Limits:
    """The limits that the text of a ``limits.toml`` gives.

    Raises:
        ValueError: it is not TOML, a table or a member is missing or unknown, or an entry that needs a reason has none.
    """
    document = tomllib.loads(text)
    try:
        return _limits(document)
    except (KeyError, TypeError) as error:
        raise ValueError(f"limits: {error!r}") from error


def _limits(document: Mapping[str, Any]) -> Limits:
    groups = {name: _group(name, document[name]) for name in Limits.__annotations__ if "most" in document.get(name, {})}
    walks = document["walks"]
    return Limits(
        **groups,
        statements=Statements(**document["statements"]),
        entries=tuple(walks["entries"]),
        leaves=tuple(walks["leaves"]),
    )


def _group(name: str, table: Mapping[str, Any]) -> Group:
    listed = {key: Listed(**entry) for key, entry in table.get("listed", {}).items()}
    for key, entry in listed.items():
        if name in _WITH_REASONS and not entry.reason.strip():
            raise ValueError(f"{name}: {key} needs a reason")
    return Group(name, table["most"], listed)


def lowered(text: str, fault: Fault, goal: int) -> str:
    """The text of a ``limits.toml`` in which the entry of ``fault`` has its number, or is gone when that is the goal.

    Only for a number that fell; an entry is one line.
    """
    section, lines = "", []
    for line in text.splitlines(keepends=True):
        section = line.split("]")[0].strip("[ ") if line.startswith("[") else section
        if section == f"{fault.group}.listed" and line.startswith(f'"{fault.name}" ='):
            if fault.number > goal:
                lines.append(re.sub(r"\bnow = \d+", f"now = {fault.number}", line, count=1))
        else:
            lines.append(line)
    return "".join(lines)
