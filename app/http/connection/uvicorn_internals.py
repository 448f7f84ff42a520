"""The internals of uvicorn that the connections use, and whether this uvicorn has them."""

from __future__ import annotations

import inspect
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_USED_METHODS = [
    "_should_upgrade",
    "_start_asgi_task",
    "handle_websocket_upgrade",
    "on_headers_complete",
    "on_message_begin",
    "on_response_complete",
    "shutdown",
]
_USED_ATTRIBUTES = [
    "access_log",
    "access_logger",
    "app_state",
    "asgi_version",
    "config",
    "cycle",
    "flow",
    "headers",
    "loop",
    "parser",
    "pipeline",
    "root_path",
    "scheme",
    "scope",
    "server_state",
    "tasks",
    "timeout_keep_alive",
]
_USED_CYCLE_METHODS = ["receive", "run_asgi", "send", "send_500_response"]
_USED_CYCLE_ATTRIBUTES = [
    "body",
    "chunked_encoding",
    "disconnected",
    "expected_content_length",
    "flow",
    "keep_alive",
    "message_event",
    "more_body",
    "response_complete",
    "response_started",
    "transport",
    "waiting_for_100_continue",
]


def missing_internals(protocol: type[Any] = HttpToolsProtocol, cycle: type[Any] = RequestResponseCycle) -> list[str]:
    """Return the undocumented names that the connections use and that this uvicorn does not have."""
    missing = [name for name in _USED_METHODS if not inspect.isfunction(getattr(protocol, name, None))]
    missing += [name for name in _USED_ATTRIBUTES if name not in protocol.__init__.__code__.co_names]
    missing += [name for name in _USED_CYCLE_ATTRIBUTES if name not in cycle.__init__.__code__.co_names]
    missing += [name for name in _USED_CYCLE_METHODS if not inspect.isfunction(getattr(cycle, name, None))]
    return missing
