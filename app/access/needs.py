"""The rights that each route needs, declared once. The service enforces the declaration, and OpenAPI shows it.

A route declares one of::

    @router.get(TOPIC, ...)
    @needs(Operation.DESCRIBE, ResourceKind.TOPIC)        # on the {topic} of its path; checked before the route runs

    @router.post(PRODUCE, ...)
    @asks(Operation.WRITE, ResourceKind.TOPIC)            # on names in its body: the route checks AccessOf item by item

    @needs_authentication                                 # any authenticated principal
    @open_to_all                                          # also unauthenticated callers: health

Several ``needs`` and ``asks`` add up. A route without a declaration refuses every request once authentication is on,
and a test finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from app.access.access import EVERYTHING, Access
from app.access.operations import CLUSTER, Operation, Resource, ResourceKind
from app.problems import kinds
from app.problems.problem import Problem

SCOPE_KEY = "rollway.access"

_PATH_PARAMETERS = {
    ResourceKind.TOPIC: "topic",
    ResourceKind.GROUP: "group_id",
    ResourceKind.TRANSACTIONAL_ID: "transactional_id",
}

Route = TypeVar("Route", bound=Callable[..., Any])


@dataclass(slots=True)
class Declaration:
    """The rights that one route needs: ``checked`` before it runs, ``asked`` by the route itself."""

    checked: list[tuple[Operation, ResourceKind]] = field(default_factory=list)
    asked: list[tuple[Operation, ResourceKind]] = field(default_factory=list)
    is_open: bool = False


_DECLARED: dict[Callable[..., Any], Declaration] = {}


def declaration_of(endpoint: Callable[..., Any]) -> Declaration | None:
    """Return the declaration of a route; ``None`` if it has none."""
    return _DECLARED.get(endpoint)


def needs(operation: Operation, kind: ResourceKind) -> Callable[[Route], Route]:
    """Declare that the route needs this on the resource of its path, or on the cluster.

    The right is checked before the body is read.
    """

    def declare(endpoint: Route) -> Route:
        _DECLARED.setdefault(endpoint, Declaration()).checked.insert(0, (operation, kind))
        return endpoint

    return declare


def asks(operation: Operation, kind: ResourceKind) -> Callable[[Route], Route]:
    """Declare that the route may need this on resources that it finds itself. It checks each of them."""

    def declare(endpoint: Route) -> Route:
        _DECLARED.setdefault(endpoint, Declaration()).asked.insert(0, (operation, kind))
        return endpoint

    return declare


def needs_authentication(endpoint: Route) -> Route:
    """Declare that the route serves every authenticated caller."""
    _DECLARED.setdefault(endpoint, Declaration())
    return endpoint


def open_to_all(endpoint: Route) -> Route:
    """Declare that the route serves every caller, authenticated or not. Its path has no parameters."""
    _DECLARED.setdefault(endpoint, Declaration()).is_open = True
    return endpoint


def open_paths(routes: Iterable[object]) -> frozenset[str]:
    """Return the paths that serve every caller."""
    return frozenset(
        route.path
        for route in routes
        if isinstance(route, APIRoute) and (declared := declaration_of(route.endpoint)) and declared.is_open
    )


async def access_of(request: Request) -> Access:
    """Return the rights of the request; see ``Access``."""
    access: Access = request.scope.get(SCOPE_KEY, EVERYTHING)
    return access


AccessOf = Annotated[Access, Depends(access_of)]


async def check_needs(request: Request) -> None:
    """Refuse a request without the rights that its route declares. A dependency of every route.

    Raises:
        Problem: 403, or 404 for a topic that the caller may not see.
    """
    access: Access = request.scope.get(SCOPE_KEY, EVERYTHING)
    if access is EVERYTHING:
        return
    declared = declaration_of(request.scope["route"].endpoint)
    if declared is None:
        raise Problem(kinds.CLUSTER_AUTHORIZATION_FAILED, "this route may not be used")
    for operation, kind in declared.checked:
        access.require(operation, _resource_of_path(request, kind))


def _resource_of_path(request: Request, kind: ResourceKind) -> Resource:
    return CLUSTER if kind is ResourceKind.CLUSTER else Resource(kind, request.path_params[_PATH_PARAMETERS[kind]])
