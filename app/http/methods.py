"""The methods of a path: those of all its routes, and HEAD wherever there is GET (RFC 9110, 9.3.2)."""

from __future__ import annotations

from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ANY_NAME = "name"
_HEAD = "rollway.head"

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


def methods_of_path(scope: Scope) -> list[str]:
    """Return the methods for which the requested path has a route; none if there is no such path."""
    methods = [method for method in METHODS if _has_route(scope, method)]
    if "GET" in methods and "HEAD" not in methods:
        methods.insert(methods.index("GET") + 1, "HEAD")
    return methods


def _has_route(scope: Scope, method: str) -> bool:
    # This also works for routers within routers, whose routes cannot be looked into.
    asked = {**scope, "method": method}
    return any(route.matches(dict(asked))[0] is Match.FULL for route in scope["app"].routes)


def template_below(scope: Scope, method: str) -> str | None:
    """Return the template of a path directly below the requested path that takes ``method``, else ``None``.

    Example: ``/v1/topics/{topic}`` below ``/v1/topics``.
    """
    path = scope["path"].rstrip("/")
    if not _has_route({**scope, "path": f"{path}/{_ANY_NAME}"}, method):
        return None
    # The name of a collection is the plural of its members' name.
    return f"{path}/{{{path.rpartition('/')[2].removesuffix('s')}}}"


def sends_body(scope: Scope) -> bool:
    """Return whether the body of the answer is sent. It is not for HEAD, also where GET answers it."""
    return scope["method"] != "HEAD" and not scope.get(_HEAD, False)


class HeadOfGet:
    """ASGI middleware: HEAD on a path that has GET but no HEAD of its own is answered as GET, without the body.

    It stands outside of all middleware that changes headers, so that the headers are those of GET.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        if _has_route(scope, "HEAD") or not _has_route(scope, "GET"):
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        asked = {**scope, "method": "GET", _HEAD: True}
        try:
            await self._app(asked, receive, send_without_body)
        finally:
            if "route" in asked:
                # For the metrics outside of this, which count requests by route.
                scope["route"] = asked["route"]
