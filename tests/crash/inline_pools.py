"""Pools without threads: work is done where it is asked for, so that a seed decides the order of everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from app.event_loop.pools import Pools


class InlineExecutor(Executor):
    """Does the work in ``submit``; ``crashed`` is done once ``crash`` was called: the simulated machine stopped."""

    def __init__(self) -> None:
        self.crashed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - a simulated crash is none that a program may catch
            future.set_exception(error)
        return future

    def crash(self) -> None:
        """Note that the machine stopped, under work of a pool or of the loop itself."""
        if not self.crashed.done():
            self.crashed.set_result(None)


class InlinePools(Pools):
    """All four pools are one."""

    def __init__(self) -> None:
        self.inline = InlineExecutor()
        self.write = self.flush = self.read = self.control = self.inline  # type: ignore[assignment]
