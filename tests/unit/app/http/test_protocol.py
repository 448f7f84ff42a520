"""What the connections need of uvicorn, and what happens without it."""

from __future__ import annotations

from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.http.connection.connection_limits import ConnectionLimits
from app.http.connection.protocol import EdgeProtocol
from app.http.connection.uvicorn_internals import missing_internals
from app.server import connections
from app.server.connections import protocol_class
from app.settings import Settings


def test_this_uvicorn_has_all_that_is_used() -> None:
    assert missing_internals() == []


def test_each_server_counts_its_own_peers() -> None:
    first: Any = protocol_class(Settings(connections_max=7))
    second: Any = protocol_class(Settings())
    assert issubclass(first, EdgeProtocol)
    assert first.limits.connections_max == 7
    assert first.peers is not second.peers


def test_missing_internals_are_named() -> None:
    class Protocol(HttpToolsProtocol):
        _start_asgi_task = None  # type: ignore[assignment]

    class Cycle(RequestResponseCycle):
        def __init__(self) -> None:
            self.body = b""

    missing = missing_internals(Protocol, Cycle)
    assert "_start_asgi_task" in missing
    assert "keep_alive" in missing
    assert "body" not in missing


def test_without_them_the_stock_protocol_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "missing_internals", lambda: ["flow"])
    assert protocol_class(Settings()) is HttpToolsProtocol
    assert "this uvicorn has no flow" in caplog.text


def test_every_limit_comes_from_a_setting() -> None:
    limits = ConnectionLimits.of(Settings(send_stall_timeout_ms=1, request_header_count_max=8, request_body_grace_ms=3))
    assert (limits.stall_timeout_ms, limits.header_count_max, limits.body_grace_ms) == (1, 8, 3)
