"""Long polls at rest: a request that waits holds its connection and little else.

A request that waits inside the application keeps every frame of it alive: routing, dependencies, middlewares, some
20 KiB. So a route that has to wait hands over what it waits for and how it will answer, and the whole stack is
unwound. The connection keeps the two; when the wait is over it runs the application again, where ``ParkedRequests``
gives the answer in the router's place: inside the same middlewares, without parsing and dependencies again.

A server without the extension, such as a test client, waits inside the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.engine.waiting import Waiting
from app.problems.request_context import CONTINUATION

EXTENSION = "rollway.parking"
"""Among the scope's extensions: the connection takes requests that wait."""
CLIENT_GONE_STATUS = 499

# What of a scope is needed beside the application; routing has added much that refers to the stack it left.
_KEPT = frozenset(
    {
        *("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path"),
        *("headers", "client", "server", "state", "extensions", "app", "route", CONTINUATION),
    }
)

Answer = Callable[[Request], Awaitable[Response]]


class ClientGoneError(Exception):
    """The client closed its connection while its request waited."""


class Parked(BaseException):
    """Raised by a request that is to wait outside of the application."""

    def __init__(self, waiting: Waiting, answer: Answer) -> None:
        super().__init__()
        self.waiting = waiting
        self.answer = answer
        self.began = 0.0
        """When the request came, for who counts it once it is answered."""


async def until(request: Request, waiting: Waiting, answer: Answer) -> Response:
    """``answer`` the request once ``waiting`` is complete; the last thing a route does.

    ``answer`` is given the request anew, and keeps nothing of the old one alive.

    Raises:
        Parked: for the connection, which waits.
        ClientGoneError: the client went away meanwhile; ``waiting`` is cancelled.
    """
    if not waiting.done.done():
        if EXTENSION in request.scope.get("extensions", ()):
            raise Parked(waiting, answer)
        await _wait_here(request, waiting)
    return await answer(request)


async def _wait_here(request: Request, waiting: Waiting) -> None:
    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.ensure_future(gone())
    try:
        await asyncio.wait((waiting.done, watch), return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
        waiting.cancel()
    if waiting.done.cancelled():
        raise ClientGoneError


def forget_routing(scope: Scope) -> None:
    """Drop what routing left in the scope of a request that waits, but for what its answer needs."""
    for name in scope.keys() - _KEPT:
        del scope[name]


class ParkedRequests:
    """ASGI middleware, the innermost: answers requests whose wait is over, and those nobody waits for any more."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parked: Parked | None = scope.get(CONTINUATION)
        response: Response
        try:
            if parked is None:
                await self._app(scope, receive, send)
                return
            if parked.waiting.done.cancelled():
                raise ClientGoneError
            response = await parked.answer(Request(scope, receive))
        except ClientGoneError:
            # Nothing is sent; the metrics show it apart.
            response = Response(status_code=CLIENT_GONE_STATUS)
        await response(scope, receive, send)
