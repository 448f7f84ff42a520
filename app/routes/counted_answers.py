"""A memory budget for long responses, whose bytes stay in memory until the client has received them."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.bodies.byte_budget import NO_HOLD, ByteBudget, Hold
from app.problems.problem import Problem, instance_of
from app.problems.request_context import may_change
from app.record_json.work_rooms import TEXT_BYTES_MIN
from app.routes.answers import IS_HELD


class CountedAnswers:
    """ASGI middleware that counts responses of more than 64 KiB towards a budget, unless it already counts them.

    If all together would hold more than twice the budget, the response to a read becomes a 503. The response to a
    request that may have changed something is sent in any case.
    """

    def __init__(self, app: ASGIApp, budget: Callable[[], ByteBudget | None]) -> None:
        """Wrap ``app``. While ``budget`` returns ``None``, responses are not counted."""
        self._app = app
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        budget = self._budget()
        if scope["type"] != "http" or budget is None:
            await self._app(scope, receive, send)
            return
        counting = _Counting(scope, receive, send, budget)
        try:
            await self._app(scope, receive, counting.send)
        finally:
            counting.hold.release()


class _Counting:
    """One response that is being counted."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, budget: ByteBudget) -> None:
        self.hold: Hold = NO_HOLD
        self._scope = scope
        self._receive = receive
        self._send = send
        self._budget = budget
        self._start: Message | None = None
        self._is_refused = False

    async def send(self, message: Message) -> None:
        """Pass on a part of the response, or send a refusal in place of the response."""
        if message["type"] == "http.response.start":
            # Held until the size of the body is known.
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            refusal = self._count(len(message.get("body", b"")))
            if refusal is not None:
                self._is_refused = True
                await refusal.response(instance_of(self._scope))(self._scope, self._receive, self._send)
                return
            await self._send(start)
        if not self._is_refused:
            await self._send(message)

    def _count(self, size_bytes: int) -> Problem | None:
        if size_bytes <= TEXT_BYTES_MIN or self._scope.get(IS_HELD):
            return None
        if may_change(self._scope):
            self.hold = self._budget.hold(size_bytes)
            return None
        try:
            self.hold = self._budget.take(size_bytes)
        except Problem as refusal:
            return refusal
        return None
