"""The class of a server's connections."""

from __future__ import annotations

import asyncio
import logging

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.event_loop.turns import Turns
from app.fast_path.plain_requests import PlainRequests
from app.http.connection.connection_limits import ConnectionLimits, Peers
from app.http.connection.fast_path_interface import PlainDispatcher, plain_heads
from app.http.connection.protocol import EdgeProtocol
from app.http.connection.uvicorn_internals import missing_internals
from app.http.transfer.transfer_turns import TransferTurns
from app.settings import Settings
from rollway.records.compiled import load

compiled = load("app.fast_path.connection_c")
"""The compiled path of plain requests, or ``None``; see ``connection_c.pyx``."""

logger = logging.getLogger(__name__)

LATE_CLIENTS_PER_TURN = 16
"""Late clients that one iteration of the loop answers and closes: about a millisecond of work."""

STARTS_PER_TURN = 1
"""Requests that enter the application, or large bodies that begin to come in, in one iteration of the loop.

Each takes about a millisecond. Starting all of them at once would save about 9 % of CPU with 32 such clients.
"""

BODIES_PER_TURN = 1
"""Requests that waited for bytes of a body and go on in one iteration of the loop.

Their next step may take ten milliseconds: they undo a coding, parse 64 KiB, or ask for 1,000 partitions.
"""


def protocol_class(settings: Settings, fast_path: PlainDispatcher | None = None) -> type[asyncio.Protocol]:
    """Return the class of one server's connections, bound to its limits, its count of peers, and its fast path if any.

    If this uvicorn lacks an internal that the class builds on, the result is uvicorn's own protocol, with a warning
    in the log. The service works then, but connections have no limits, and files are copied through memory.
    """
    missing = missing_internals()
    if missing:
        logger.warning(
            "this uvicorn has no %s: connections have no limits, and files are copied through memory",
            ", ".join(missing),
        )
        return HttpToolsProtocol
    limits = ConnectionLimits.of(settings)
    bound: dict[str, object] = {
        "limits": limits,
        "peers": Peers(),
        "late_clients": Turns(LATE_CLIENTS_PER_TURN),
        "starts": Turns(STARTS_PER_TURN),
        "bodies": Turns(BODIES_PER_TURN),
        "transfers": TransferTurns(),
        "fast_path": fast_path,
    }
    return type("BoundEdgeProtocol", _bases(fast_path), bound)


def _bases(fast_path: PlainDispatcher | None) -> tuple[type[asyncio.Protocol], ...]:
    if fast_path is None or plain_heads is None:
        return (EdgeProtocol,)
    return (PlainRequests,) if compiled is None else (compiled.CompiledRequests, PlainRequests)
