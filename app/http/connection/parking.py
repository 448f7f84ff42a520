"""Long polls at rest: a waiting request holds its connection and little else.

A request that waits inside the application keeps every frame of it alive: routing, dependencies, middleware, some
20 KiB. So a route that has to wait raises ``Parked`` with its wait and the function that will answer, and the whole
stack is unwound. The connection keeps the two. When the wait is over, it runs the application again. There
``ParkedRequests`` answers in place of the router: inside the same middleware, without a second run of parsing and
dependencies.

On a server without the extension, such as a test client, the request waits inside the application.
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
"""The name of the scope's extension with which a connection offers to keep waiting requests."""
CLIENT_GONE_STATUS = 499

# The entries of a scope that the answer needs. Routing has added entries that refer to the stack that was left.
_KEPT = frozenset(
    {
        *("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path"),
        *("headers", "client", "server", "state", "extensions", "app", "route", CONTINUATION),
    }
)

Answer = Callable[[Request], Awaitable[Response]]


class ClientGoneError(Exception):
    """A client that closed its connection while its request waited."""


class Parked(BaseException):
    """The wait of a request that leaves the application. A route raises it, and the connection catches it."""

    def __init__(self, waiting: Waiting, answer: Answer) -> None:
        super().__init__()
        self.waiting = waiting
        self.answer = answer
        self.began = 0.0
        """The time at which the request came, for the metrics of its answer."""


async def until(request: Request, waiting: Waiting, answer: Answer) -> Response:
    """Answer the request with ``answer`` once ``waiting`` is complete. A route calls this last.

    ``answer`` receives a new request object, and must not keep the old one alive.

    Raises:
        Parked: the connection is to wait.
        ClientGoneError: the client went away meanwhile, and ``waiting`` is cancelled.
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
    """Remove the entries of routing from the scope of a waiting request, except those that its answer needs."""
    for name in scope.keys() - _KEPT:
        del scope[name]


class ParkedRequests:
    """ASGI middleware, the innermost: it answers requests whose wait is over or whose client is gone."""

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
            # Nothing is sent. The metrics count this status separately.
            response = Response(status_code=CLIENT_GONE_STATUS)
        await response(scope, receive, send)
