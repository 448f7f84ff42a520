"""Counts what is done within one turn of a loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest


class TurnCounts:
    """The most calls of each watched function within one turn of the loop, and all of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.all: Counter[str] = Counter()

    def watch(self, owner: Any, name: str) -> None:
        """Count the calls of ``owner.name``, which the loop's thread makes."""
        function: Callable[..., Any] = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            self.note(name)
            return function(*arguments, **named)

        self._monkeypatch.setattr(owner, name, counted)

    def watch_steps(self, owner: Any, name: str) -> None:
        """Count how often the coroutine ``owner.name`` begins, which is not when it is called."""
        function: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def counted(*arguments: Any, **named: Any) -> Any:
            self.note(name)
            return await function(*arguments, **named)

        self._monkeypatch.setattr(owner, name, counted)

    def note(self, name: str) -> None:
        """Count one."""
        if not self._now:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._now[name] += 1
        self.all[name] += 1

    def _end_turn(self) -> None:
        self.most |= self._now
        self._now.clear()
