"""The capability that a route needs from the engine, declared beside its rights.

A route that only some engines can serve declares::

    @router.get(SEGMENTS, ...)
    @needs(Operation.DESCRIBE, ResourceKind.TOPIC)
    @needs_capability("segments")

The service refuses its requests with 501 if the engine lacks the capability, and OpenAPI shows the 501. A parameter
that needs a capability is refused in the same way, by ``refuse_missing`` where the parameter is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from app.engine.capabilities import INSTEAD, Capabilities, Capability
from app.problems import kinds
from app.problems.problem import Problem

Route = TypeVar("Route", bound=Callable[..., Any])

_DECLARED: dict[Callable[..., Any], Capability] = {}


def needs_capability(capability: Capability) -> Callable[[Route], Route]:
    """Declare that the route needs this capability. It is checked after the rights, before the body is read."""

    def declare(endpoint: Route) -> Route:
        _DECLARED[endpoint] = capability
        return endpoint

    return declare


def capability_of(endpoint: Callable[..., Any]) -> Capability | None:
    """Return the capability that a route needs; ``None`` if every engine serves the route."""
    return _DECLARED.get(endpoint)


def refuse_missing(capability: Capability, capabilities: Capabilities) -> None:
    """Return if the engine has the capability.

    Raises:
        Problem: 501, with the engine, the capability, and what to use instead.
    """
    if not capabilities.has(capability):
        raise Problem(
            kinds.UNSUPPORTED_BY_ENGINE, INSTEAD[capability], engine=capabilities.engine, capability=capability
        )
