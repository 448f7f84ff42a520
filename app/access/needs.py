"""What each route needs, declared once: the declaration is enforced, and shown in the OpenAPI document.

A route says one of::

    @router.get(TOPIC, ...)
    @needs(Operation.DESCRIBE, ResourceKind.TOPIC)        # of the {topic} of its path; checked before the route runs

    @router.post(PRODUCE, ...)
    @asks(Operation.WRITE, ResourceKind.TOPIC)            # of names in its body: the route asks AccessOf, item by item

    @needs_authentication                                 # of whoever is known
    @open_to_all                                          # of everybody: health

Several ``needs`` and ``asks`` add up. A route without a declaration is refused to everybody once authentication is
on, and a test finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from app.access.access import EVERYTHING, Access
from app.access.operations import CLUSTER, Operation, Resource, ResourceKind
from app.problems.problems import Problem

SCOPE_KEY = "rollway.access"

_PATH_PARAMETERS = {
    ResourceKind.TOPIC: "topic",
    ResourceKind.GROUP: "group_id",
    ResourceKind.TRANSACTIONAL_ID: "transactional_id",
}

Route = TypeVar("Route", bound=Callable[..., Any])


@dataclass(slots=True)
class Declaration:
    """What one route needs: ``checked`` before it runs, ``asked`` by the route itself."""

    checked: list[tuple[Operation, ResourceKind]] = field(default_factory=list)
    asked: list[tuple[Operation, ResourceKind]] = field(default_factory=list)
    is_open: bool = False


_DECLARED: dict[Callable[..., Any], Declaration] = {}


def declaration_of(endpoint: Callable[..., Any]) -> Declaration | None:
    """What the route has declared; ``None`` when it forgot to."""
    return _DECLARED.get(endpoint)


def needs(operation: Operation, kind: ResourceKind) -> Callable[[Route], Route]:
    """The route needs this on the resource of its path, or on the cluster. Checked before its body is read."""

    def declare(endpoint: Route) -> Route:
        _DECLARED.setdefault(endpoint, Declaration()).checked.insert(0, (operation, kind))
        return endpoint

    return declare


def asks(operation: Operation, kind: ResourceKind) -> Callable[[Route], Route]:
    """The route may need this on resources that it finds itself, and asks for each of them."""

    def declare(endpoint: Route) -> Route:
        _DECLARED.setdefault(endpoint, Declaration()).asked.insert(0, (operation, kind))
        return endpoint

    return declare


def needs_authentication(endpoint: Route) -> Route:
    """The route answers whoever is known."""
    _DECLARED.setdefault(endpoint, Declaration())
    return endpoint


def open_to_all(endpoint: Route) -> Route:
    """The route answers everybody, also who is not known. Its path has no parameters."""
    _DECLARED.setdefault(endpoint, Declaration()).is_open = True
    return endpoint


def open_paths(routes: Iterable[object]) -> frozenset[str]:
    """The paths that answer everybody."""
    return frozenset(
        route.path
        for route in routes
        if isinstance(route, APIRoute) and (declared := declaration_of(route.endpoint)) and declared.is_open
    )


async def access_of(request: Request) -> Access:
    """What the request may do; see ``Access``."""
    access: Access = request.scope.get(SCOPE_KEY, EVERYTHING)
    return access


AccessOf = Annotated[Access, Depends(access_of)]


async def check_needs(request: Request) -> None:
    """Refuse a request that lacks what its route declares. A dependency of every route.

    Raises:
        Problem: 403, or 404 for a topic it may not see.
    """
    access: Access = request.scope.get(SCOPE_KEY, EVERYTHING)
    if access is EVERYTHING:
        return
    declared = declaration_of(request.scope["route"].endpoint)
    if declared is None:
        raise Problem(403, "cluster_authorization_failed", "this route may not be used", kafka_code=31)
    for operation, kind in declared.checked:
        access.require(operation, _resource_of_path(request, kind))


def _resource_of_path(request: Request, kind: ResourceKind) -> Resource:
    return CLUSTER if kind is ResourceKind.CLUSTER else Resource(kind, request.path_params[_PATH_PARAMETERS[kind]])
