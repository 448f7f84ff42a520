"""What may be done with a path: the methods of all its routes, and HEAD wherever there is GET (RFC 9110, 9.3.2)."""

from __future__ import annotations

from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ANY_NAME = "name"
_HEAD = "rollway.head"

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


def methods_of_path(scope: Scope) -> list[str]:
    """Every method with which the asked path leads somewhere; none when there is no such path."""
    methods = [method for method in METHODS if _has_route(scope, method)]
    if "GET" in methods and "HEAD" not in methods:
        methods.insert(methods.index("GET") + 1, "HEAD")
    return methods


def _has_route(scope: Scope, method: str) -> bool:
    # Routers within routers answer this too, while their routes cannot be looked into.
    asked = {**scope, "method": method}
    return any(route.matches(dict(asked))[0] is Match.FULL for route in scope["app"].routes)


def template_below(scope: Scope, method: str) -> str | None:
    """The path of what lies directly below the asked path and takes ``method``, such as ``/v1/topics/{topic}``."""
    path = scope["path"].rstrip("/")
    if not _has_route({**scope, "path": f"{path}/{_ANY_NAME}"}, method):
        return None
    # A collection is called by the plural of what it has.
    return f"{path}/{{{path.rpartition('/')[2].removesuffix('s')}}}"


def sends_body(scope: Scope) -> bool:
    """Whether the answer's body is sent; not of HEAD, also where GET answers it."""
    return scope["method"] != "HEAD" and not scope.get(_HEAD, False)


class HeadOfGet:
    """ASGI middleware: HEAD on a path that has GET but no HEAD of its own is GET's answer without its body.

    Outside of whatever changes headers, so that they are GET's.
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
                # For who counts requests by route, outside of this.
                scope["route"] = asked["route"]
