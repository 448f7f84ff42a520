"""TLS handshakes, limited in number and in time.

The loop's own TLS servers report a connection only when its handshake is done. Until then no limit counts the
connection, so clients that connect and send nothing could take all descriptors of the service. Here the service
accepts TCP connections, counts them, and begins TLS on them itself.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from typing import Any, ClassVar

from app.event_loop.turns import Turns
from app.http.connection.connection_limits import TURNED_AWAY_MAX, address_of
from app.http.connection.protocol import EdgeProtocol

_TIMEOUT_SECONDS_MIN = 0.001
HANDSHAKES_MAX = 512
"""The most handshakes in progress."""
HELLOS_PER_TURN = 8
"""Clients whose first message is answered in one iteration of the loop. Each costs a signature: up to a millisecond."""


class Handshakes:
    """The handshakes in progress on one server.

    There are at most ``HANDSHAKES_MAX``. With the open connections they are at most ``connections_max``, except for the
    last ``TURNED_AWAY_MAX``, whose clients receive a 503 over TLS. One more handshake ends the oldest handshake of the
    address that has the most. So a crowd whose handshakes do not end displaces its own handshakes.

    Example: one address holds 512 connections without sending anything, and opens another. Its oldest connection is
    closed. A client at another address has as long as it needs, up to the timeout.

    TLS begins when the client has sent something, on ``HELLOS_PER_TURN`` connections at a time.

    Thread: the event loop's.
    """

    def __init__(self, connections: type[EdgeProtocol], context: ssl.SSLContext) -> None:
        self.connections = connections
        self._hellos = Turns(HELLOS_PER_TURN)
        self._context = context
        self._by_address: dict[str, dict[asyncio.Task[Any], EdgeProtocol]] = {}
        self._count = 0
        self._has_stopped = False

    def __len__(self) -> int:
        return self._count

    def begin(self, transport: asyncio.Transport, options: dict[str, Any]) -> None:
        """Begin a handshake on the socket of ``transport``, which has read nothing.

        ``options`` are the arguments that uvicorn passes to a connection. The handshake may take as long as the headers
        of a request.
        """
        address = address_of(transport)
        try:
            # The transport itself would read the client's first bytes before TLS could.
            accepted = transport.get_extra_info("socket").dup()
        except OSError:
            # The client is gone, or there is no descriptor.
            transport.abort()
            return
        transport.abort()
        if self._has_stopped:
            accepted.close()
            return
        connection = self.connections(**options)
        limits = connection.limits
        task = asyncio.get_running_loop().create_task(self._shake_hands(connection, accepted))
        task.add_done_callback(partial(self._finish, address, accepted))
        self._by_address.setdefault(address, {})[task] = connection
        self._count += 1
        room = max(TURNED_AWAY_MAX, limits.connections_max - len(options["server_state"].connections))
        if self._count > min(HANDSHAKES_MAX, room):
            self._end_one()

    async def _shake_hands(self, connection: EdgeProtocol, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + connection.limits.header_timeout_ms / 1000
        async with asyncio.timeout_at(ends_at):
            await _readable(loop, accepted)
            await self._hellos.enter()
        await self._begin_tls(connection, accepted, max(_TIMEOUT_SECONDS_MIN, ends_at - loop.time()))

    async def _begin_tls(self, connection: EdgeProtocol, accepted: socket.socket, timeout_seconds: float) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection, accepted, ssl=self._context, ssl_handshake_timeout=timeout_seconds
        )

    def stop(self) -> None:
        """End all handshakes and begin no more."""
        self._has_stopped = True
        while self._count:
            self._end_one()

    def _end_one(self) -> None:
        address, tasks = max(self._by_address.items(), key=lambda entry: len(entry[1]))
        task, connection = next(iter(tasks.items()))
        self._remove(address, task)
        # A connection with a transport has done its handshake. Only its task has not run yet.
        if connection.transport is None:
            task.cancel()

    def _finish(self, address: str, accepted: socket.socket, task: asyncio.Task[Any]) -> None:
        self._remove(address, task)
        # The client is the cause: it spoke no TLS, was late, or left.
        if task.cancelled() or task.exception() is not None:
            accepted.close()

    def _remove(self, address: str, task: asyncio.Task[Any]) -> None:
        tasks = self._by_address.get(address)
        if tasks is not None and tasks.pop(task, None) is not None:
            self._count -= 1
            if not tasks:
                del self._by_address[address]


async def _readable(loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> None:
    """Return when the client has sent something, or is gone."""
    readable: asyncio.Future[None] = loop.create_future()

    def note() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(accepted, note)
    try:
        await readable
    finally:
        loop.remove_reader(accepted)


class TlsGate(asyncio.Protocol):
    """One accepted TCP connection before its handshake. Use the class that ``gate_of`` returns.

    Thread: the event loop's.
    """

    handshakes: ClassVar[Handshakes]

    def __init__(self, **options: Any) -> None:
        """Keep ``options``, the arguments that uvicorn passes to a connection."""
        self._options = options

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the handshake."""
        self.handshakes.begin(transport, self._options)


def gate_of(handshakes: Handshakes) -> type[TlsGate]:
    """Return the class with which a server accepts TCP connections and begins ``handshakes`` on them."""
    return type("BoundTlsGate", (TlsGate,), {"handshakes": handshakes})
