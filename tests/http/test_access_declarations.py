"""Every route says what it needs: nothing is reachable because somebody forgot."""

from __future__ import annotations

from fastapi.routing import APIRoute

from app.access.needs import declaration_of, open_paths
from app.main import ROUTERS

ROUTES = [route for router in ROUTERS for route in router.routes]


def test_every_route_declares_what_it_needs() -> None:
    silent = [route.path for route in ROUTES if isinstance(route, APIRoute) and declaration_of(route.endpoint) is None]
    assert ROUTES
    assert not silent, "decorate them with needs, asks, needs_authentication or open_to_all (app/access/needs.py)"
    assert all(isinstance(route, APIRoute) for route in ROUTES)


def test_only_health_is_open_to_all() -> None:
    assert open_paths(ROUTES) == {"/healthz", "/readyz"}
