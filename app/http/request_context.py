"""Who asks, and under which number: known to every log line that a request causes."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.parking import CONTINUATION

HEADER = "X-Request-Id"
_NAME = HEADER.lower().encode()
_TAKEN = re.compile(rb"[\x21-\x7e]{1,128}")

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The request's number; ``None`` outside of requests."""
principal: ContextVar[str | None] = ContextVar("principal", default=None)
"""The name of who asks; ``None`` outside of requests, and before it is known."""


def new_request_id() -> str:
    """A number that no other request has."""
    return secrets.token_hex(8)


class RequestContext:
    """ASGI middleware, the outermost: gives each request a number, and tells it in the answer.

    A client's own ``X-Request-Id`` is taken when it is 1 to 128 visible characters of ASCII, so that one number can be
    followed through several services; anything else is replaced.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        number = request_id.get() if CONTINUATION in scope else None
        if number is None:
            number = _given(scope) or new_request_id()
            # Not reset afterwards: each request has a task of its own, and the server logs its access behind us.
            request_id.set(number)
            principal.set(None)

        async def send_with_number(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(raw=message.setdefault("headers", [])).setdefault(HEADER, number)
            await send(message)

        await self._app(scope, receive, send_with_number)


def _given(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _NAME:
            return value.decode() if _TAKEN.fullmatch(value) else None
    return None
