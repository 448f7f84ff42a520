"""The transitions of transactional ids: one at a time for each id, each in a task that no client can cancel."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.engine_local.transactions.sessions import Session
from app.event_loop.lasting_tasks import LastingTasks

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Turns:
    """The sessions of ids that are at work or known, and the tasks of their transitions. Thread: the event loop."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        """Take ``is_known``, which returns whether an id's session is kept although no caller uses it."""
        self._is_known = is_known
        self.sessions: dict[str, Session] = {}
        self.tasks = LastingTasks(logger)

    async def in_turn(
        self,
        name: str,
        work: Callable[[Session], Awaitable[Result]],
        *,
        undo: Callable[[Result], None] | None = None,
    ) -> Result:
        """Do ``work`` under the id's lock, in a task that survives the cancellation of its caller.

        ``undo`` receives the result if the caller was cancelled.
        """
        session = self.enter(name)
        return await self.tasks.run(self._locked(name, session, work), f"transition of {name!r}", undo=undo)

    async def _locked(self, name: str, session: Session, work: Callable[[Session], Awaitable[Result]]) -> Result:
        try:
            async with session.lock:
                return await work(session)
        finally:
            self.leave(name, session)

    def enter(self, name: str) -> Session:
        """Return the id's session, which is kept until ``leave``."""
        session = self.sessions.get(name)
        if session is None:
            session = self.sessions[name] = Session()
        session.users += 1
        return session

    def leave(self, name: str, session: Session) -> None:
        """Release the session. It is dropped with its last user if its id is not known."""
        session.users -= 1
        if session.users == 0 and session.in_flight == 0 and not self._is_known(name):
            self.sessions.pop(name, None)
