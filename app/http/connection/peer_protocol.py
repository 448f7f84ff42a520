"""The transport side of a connection: its count among peers, and an end that lets the client read its answer."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.connection.connection_limits import TURNED_AWAY_MAX, ConnectionLimits, Peers, address_of, answer_of
from app.http.connection.parking import EXTENSION as PARKING
from app.http.connection.response_cycle import TLS_PIECE_BYTES
from app.http.tls.tls import tls_extensions
from app.http.transfer.wire import Wire
from app.http.transfer.zero_copy import EXTENSION as ZERO_COPY
from app.problems import kinds
from app.problems.problem import Problem

# A client that still sends after its answer has this long to read the answer.
LINGER_SECONDS = 2.0

# Shared by all requests, and never changed.
_EXTENSIONS: dict[str, dict[object, object]] = {ZERO_COPY: {}, PARKING: {}}


class PeerProtocol(HttpToolsProtocol):
    """uvicorn's protocol, counted among the connections of its server and closed with care.

    Thread: the event loop's.
    """

    limits: ClassVar[ConnectionLimits]
    peers: ClassVar[Peers]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # uvicorn decides by the handlers of its logger, which other code may have added.
        self.access_log = self.access_log and self.config.access_log
        self.stall_timeout_ms = self.limits.stall_timeout_ms
        self.unsent_bytes_max = self.limits.unsent_bytes_max
        self.extensions = _EXTENSIONS
        # Whether incoming bytes are ignored: the connection ends with the answer that is being sent, or one behind it.
        self._deaf = False
        self._counted_as: str | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._wire: Wire | None = None

    @property
    def wire(self) -> Wire:
        """The socket of the connection.

        Raises:
            NotBareError: the connection speaks TLS.
        """
        if self._wire is None:
            self._wire = Wire.of(self.transport)
        return self._wire

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        address = address_of(transport)
        if len(self.connections) >= self.limits.connections_max:
            self._turn_away(transport, "the service has all the connections it takes")
        elif self.peers[address] >= self.limits.connections_per_address_max:
            self._turn_away(transport, "the service has all the connections it takes from this address")
        else:
            self._counted_as = address
            self.peers[address] += 1
            super().connection_made(transport)
            if self.scheme == "https":
                # The limit of plain TCP. The default under TLS is eight times as high.
                transport.set_write_buffer_limits(high=TLS_PIECE_BYTES)
                self.extensions = tls_extensions(transport.get_extra_info("peercert"))

    def _turn_away(self, transport: asyncio.Transport, detail: str) -> None:
        self._deaf = True
        self.transport, self.flow = transport, FlowControl(transport)
        if len(self.peers.turned_away) >= TURNED_AWAY_MAX:
            self.cut()
            return
        self.peers.turned_away.add(self)
        self._write_and_close(Problem(kinds.OVERLOADED, detail, retry_after_ms=1_000))

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self.peers.turned_away.discard(self)
        if self._counted_as is not None:
            self.peers.leave(self._counted_as)
            self._counted_as = None
        if self._wire is not None:
            self._wire.release()
        if self._close_timer is not None:
            self._close_timer.cancel()
        super().connection_lost(exc)

    def _write_and_close(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        target = getattr(self, "url", b"")
        self.transport.write(answer_of(problem, target, self.server_state.default_headers))
        self._close_after_answer(is_client_sending=True)

    def _close_after_answer(self, *, is_client_sending: bool) -> None:
        """Close, but let a client that is still sending read its answer first.

        Closing a socket with unread bytes resets the connection, which may destroy bytes that the peer has not read.
        """
        self._deaf = True
        if self.transport.is_closing():
            return
        if is_client_sending and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._close_timer = self.loop.call_later(LINGER_SECONDS, self._close)
        else:
            self._close()

    def _close(self) -> None:
        """Close when all bytes are written. A client that does not take them within the stall timeout is cut off."""
        self._deaf = True
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._close_timer = self.loop.call_later(self.stall_timeout_ms / 1000, self.transport.abort)
        self.transport.close()

    def cut(self) -> None:
        """Drop the connection and all unsent bytes."""
        self._deaf = True
        self.transport.abort()
