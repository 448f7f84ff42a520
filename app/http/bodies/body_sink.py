"""Large bodies, read from the socket to where they stay: no piece is kept apart, and none copied together.

While such a body comes in, a sink stands in for its connection's protocol: the transport reads into the sink's buffer.
Buffers are used again once nobody looks at them any more.
"""

from __future__ import annotations

import asyncio
import mmap
import sys
from typing import Protocol

SINK_BYTES_MIN = 192 * 1024
"""Smaller bodies are quicker in pieces."""

_STEP_BYTES = 256 * 1024
# Of the list, of the loop's variable, of the call that counts.
_OWN_REFERENCES = 3


class BodyBuffers:
    """Buffers for bodies, the latest kept for the next: memory that was just used is quicker than new memory.

    Thread: one. Whoever has a view of a buffer keeps it from being used again, in whichever thread.
    """

    def __init__(self, kept_bytes_max: int = 16 * 1024 * 1024) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept: list[mmap.mmap] = []
        self.kept_bytes = 0

    def take(self, size_bytes: int) -> memoryview:
        """A view of ``size_bytes`` that nobody else has; what it holds is of no meaning."""
        for buffer in self._kept:
            if size_bytes <= len(buffer) <= 4 * size_bytes and sys.getrefcount(buffer) <= _OWN_REFERENCES:
                return memoryview(buffer)[:size_bytes]
        # Unlike that of a bytearray, this memory is nobody's until it is written: of a body that never comes.
        made = mmap.mmap(-1, -(-size_bytes // _STEP_BYTES) * _STEP_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if len(made) <= self._kept_bytes_max:
            self._kept.append(made)
            self.kept_bytes += len(made)
            while self.kept_bytes > self._kept_bytes_max:
                self.kept_bytes -= len(self._kept.pop(0))
        return memoryview(made)[:size_bytes]


class _Connection(Protocol):
    """What a sink stands in for."""

    @property
    def is_deaf(self) -> bool:
        """Nothing that comes in counts any more."""
        ...

    def body_grew(self, size_bytes: int) -> None: ...

    def body_filled(self, body: memoryview) -> None:
        """All of it is there, and the transport is the connection's again."""
        ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class BodySink(asyncio.BufferedProtocol):
    """Fills one body, and not a byte of what follows it."""

    def __init__(
        self, connection: _Connection, transport: asyncio.Transport, body: memoryview, begun: memoryview
    ) -> None:
        """``begun`` is what has come of the body, less than all."""
        self._connection = connection
        self._transport = transport
        self._body = body
        self._filled = len(begun)
        self._rest = body[self._filled :]
        body[: self._filled] = begun

    def stand_by(self) -> None:
        """Let nothing be read until ``start``."""
        self._transport.pause_reading()

    def start(self) -> None:
        """Take the connection's place, behind ``stand_by``."""
        self._hand_to(self)

    def _hand_to(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._connection.is_deaf:
            return memoryview(bytearray(max(sizehint, 1)))
        return self._rest

    def buffer_updated(self, nbytes: int) -> None:
        if self._connection.is_deaf:
            return
        self._filled += nbytes
        self._rest = self._body[self._filled :]
        self._connection.body_grew(nbytes)
        if self._filled == len(self._body):
            # A transport that reads goes on as it began, whatever its protocol.
            self._transport.pause_reading()
            self._hand_to(self._connection)  # type: ignore[arg-type]
            body, self._body, self._rest = self._body, self._body[:0], self._rest[:0]
            self._connection.body_filled(body)

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
