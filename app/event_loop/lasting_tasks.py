"""Tasks that go on when the request that began them is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from logging import Logger
from typing import Any, TypeVar

Result = TypeVar("Result")


class LastingTasks(set[asyncio.Task[Any]]):
    """The tasks that run now. They survive the cancellation of their callers. Thread: the event loop.

    ``logger`` gets the failures that no caller waits for any more.
    """

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._logger = logger

    def spawn(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Do ``work`` in a task of its own."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    async def run(
        self, work: Coroutine[Any, Any, Result], name: str, *, undo: Callable[[Result], None] | None = None
    ) -> Result:
        """Do ``work`` in a task that survives the cancellation of its caller. ``undo`` receives the result then."""
        task = self.spawn(work, name)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: self._settle(done, undo))
            raise

    def _settle(self, done: asyncio.Task[Result], undo: Callable[[Result], None] | None) -> None:
        if not done.cancelled() and done.exception() is not None:
            self._logger.warning(
                "%s failed, and no request waits for it any more: %s", done.get_name(), done.exception()
            )
        elif not done.cancelled() and undo is not None:
            undo(done.result())

    async def finished(self) -> None:
        """Return once no task runs, including tasks that begin meanwhile."""
        while self:
            await asyncio.wait(tuple(self))
