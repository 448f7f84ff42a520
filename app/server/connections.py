"""The class of a server's connections."""

from __future__ import annotations

import asyncio
import logging

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.event_loop.turns import Turns
from app.fast_path.plain_requests import PlainRequests
from app.http.connection.connection_limits import ConnectionLimits, Peers
from app.http.connection.hot import HotTier, plain_heads
from app.http.connection.protocol import EdgeProtocol
from app.http.connection.uvicorn_internals import missing_internals
from app.http.transfer.transfer_turns import TransferTurns
from app.settings import Settings
from rollway.records.compiled import load

compiled = load("app.fast_path.connection_c")
"""The way of plain requests in C, or ``None``; see ``connection_c.pyx``."""

logger = logging.getLogger(__name__)

LATE_CLIENTS_PER_TURN = 16
"""So many are looked at in one turn of the loop: about a millisecond of answers and closing."""

STARTS_PER_TURN = 1
"""So many requests begin their way through the application, or large bodies to come in, in one turn of the loop.

Each takes about a millisecond. All at once would cost 32 such clients together about 9 % less CPU.
"""

BODIES_PER_TURN = 1
"""This many requests whose application waited for bytes of a body go on in one turn of the loop.

What they do next may take ten milliseconds: undo a coding, parse 64 KiB, ask for 1,000 partitions.
"""


def protocol_class(settings: Settings, hot: HotTier | None = None) -> type[asyncio.Protocol]:
    """The class of the connections of one server, with its limits, its count of peers, and its hot tier if it has one.

    If this uvicorn lacks what the class builds on, uvicorn's own protocol is used, with a warning: the service works,
    without these limits and with files copied.
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
        "hot": hot,
    }
    return type("BoundEdgeProtocol", _bases(hot), bound)


def _bases(hot: HotTier | None) -> tuple[type[asyncio.Protocol], ...]:
    if hot is None or plain_heads is None:
        return (EdgeProtocol,)
    return (PlainRequests,) if compiled is None else (compiled.CompiledRequests, PlainRequests)
