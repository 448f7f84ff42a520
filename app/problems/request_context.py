"""The context of a request: its number, its principal and its client. Every log line that it causes has them."""

from __future__ import annotations

import asyncio
import re
import secrets
from contextvars import ContextVar
from typing import Protocol

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.paths import FETCH, OFFSETS

HEADER = "X-Request-Id"
CLIENT_HEADER = "Client-Id"
THROTTLE_HEADER = "Throttle-Time-Ms"
_NAME = HEADER.lower().encode()
_CLIENT_NAME = CLIENT_HEADER.lower().encode()
_TAKEN = re.compile(rb"[\x21-\x7e]{1,128}")
_CLIENT_ID = re.compile(rb"[\x21-\x7e]{1,255}")

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The request's number; ``None`` outside of requests."""
principal: ContextVar[str | None] = ContextVar("principal", default=None)
"""The name of the request's principal; ``None`` outside of requests, and before it is known."""

client_id: ContextVar[str] = ContextVar("client_id", default="")
"""The client's name for itself, from ``Client-Id``; quotas may be for it. Empty without the header."""

throttle_time_ms: ContextVar[int] = ContextVar("throttle_time_ms", default=0)
"""The longest pause that a quota, which the request broke, asks of its client."""

may_write: ContextVar[bool] = ContextVar("may_write", default=True)
"""Whether the request may change something; true outside of requests, where it is not known."""

CONTINUATION = "rollway.continuation"
"""In the scope of a request whose wait is over, and which runs again: its ``app.http.connection.parking.Parked``."""

CLIENT = "rollway.client"
"""The entry of a scope with the request's ``Client``, where the connection gives one."""


class Client(Protocol):
    """The client of a request: whether it still takes the answer."""

    disconnected: bool
    """The connection is gone."""
    is_impatient: bool
    """The client has closed its sending side, and may be gone: only sending the answer can tell."""

    async def give_way(self) -> None:
        """Let other requests run on the event loop."""


client: ContextVar[Client | None] = ContextVar("client", default=None)
"""The client of the request, if it is known."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_READING_PATHS = frozenset({FETCH, OFFSETS})


def may_change(scope: Scope) -> bool:
    """Return whether a request like this may change something: any but GET, HEAD, OPTIONS and POSTs that only read."""
    return scope["method"] not in SAFE_METHODS and scope["path"] not in _READING_PATHS


async def give_way() -> None:
    """Let the other requests that work on bodies run on the event loop, one after the other."""
    asked_by = client.get()
    await (asyncio.sleep(0) if asked_by is None else asked_by.give_way())


def throttle(time_ms: int) -> None:
    """Note the pause that a broken quota asks for; the answer names the longest."""
    if time_ms > throttle_time_ms.get():
        throttle_time_ms.set(time_ms)


def new_request_id() -> str:
    """Return a number that no other request has."""
    return secrets.token_hex(8)


class RequestContext:
    """ASGI middleware, the outermost: gives each request a number, and names it in the answer.

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
            number = _given(scope, _NAME, _TAKEN) or new_request_id()
            # Not reset afterwards: each request has a task of its own, and the server logs its access later.
            request_id.set(number)
            principal.set(None)
            client_id.set(_given(scope, _CLIENT_NAME, _CLIENT_ID) or "")
            throttle_time_ms.set(0)
        may_write.set(may_change(scope))
        # Not left in the scope, which it would keep alive in a circle.
        client.set(scope.pop(CLIENT, None))

        async def send_with_number(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                headers.setdefault(HEADER, number)
                if wait_ms := throttle_time_ms.get():
                    headers[THROTTLE_HEADER] = str(wait_ms)
            await send(message)

        await self._app(scope, receive, send_with_number)


def given_request_id(value: bytes) -> str | None:
    """Return the number that a client gave, if it can be taken."""
    return value.decode() if _TAKEN.fullmatch(value) else None


def given_client_id(value: bytes) -> str | None:
    """Return the name that a client gave itself, if it can be taken."""
    return value.decode() if _CLIENT_ID.fullmatch(value) else None


def _given(scope: Scope, wanted: bytes, form: re.Pattern[bytes]) -> str | None:
    for name, value in scope["headers"]:
        if name == wanted:
            return value.decode() if form.fullmatch(value) else None
    return None
