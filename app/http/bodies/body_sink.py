"""Large bodies, read from the socket straight into one buffer: no pieces are kept, and none are joined by a copy.

While such a body comes in, a sink replaces the protocol of its connection, and the transport reads into the sink's
buffer. A buffer is used again when no view of it is left.
"""

from __future__ import annotations

import asyncio
import mmap
import sys
from collections.abc import Sequence
from typing import Protocol

SINK_BYTES_MIN = 192 * 1024
"""Size from which a body has a sink. Smaller bodies are faster in pieces."""

_STEP_BYTES = 256 * 1024


def _free_buffer(buffers: Sequence[mmap.mmap], size_bytes: int, own_references: int) -> mmap.mmap | None:
    """Return a buffer of this size that has no more references than ``own_references``; ``None`` if there is none."""
    for buffer in buffers:
        if size_bytes <= len(buffer) <= 4 * size_bytes and sys.getrefcount(buffer) <= own_references:
            return buffer
    return None


# The references of the list, of the loop variable and of the call that counts. Not each version of Python counts all.
_OWN_REFERENCES = next(count for count in range(1, 8) if _free_buffer([mmap.mmap(-1, 1)], 1, count) is not None)


class BodyBuffers:
    """Buffers for bodies. The latest are kept for later bodies, as memory in use is faster than new memory.

    Thread: one. A view of a buffer keeps it from being used again, in any thread.
    """

    def __init__(self, kept_bytes_max: int = 16 * 1024 * 1024) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept: list[mmap.mmap] = []
        self.kept_bytes = 0

    def take(self, size_bytes: int) -> memoryview:
        """Return a view of ``size_bytes`` that belongs to the caller. Its content is undefined."""
        free = _free_buffer(self._kept, size_bytes, _OWN_REFERENCES)
        if free is not None:
            return memoryview(free)[:size_bytes]
        # Unlike a bytearray, this takes no memory until it is written, so a body that never comes costs none.
        made = mmap.mmap(-1, -(-size_bytes // _STEP_BYTES) * _STEP_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if len(made) <= self._kept_bytes_max:
            self._kept.append(made)
            self.kept_bytes += len(made)
            while self.kept_bytes > self._kept_bytes_max:
                self.kept_bytes -= len(self._kept.pop(0))
        return memoryview(made)[:size_bytes]


class _Connection(Protocol):
    """The connection that a sink stands in for."""

    @property
    def is_deaf(self) -> bool:
        """Whether incoming bytes are ignored from now on."""

    def body_grew(self, size_bytes: int) -> None: ...

    def body_filled(self, body: memoryview) -> None:
        """Take the whole body. The transport belongs to the connection again."""

    def connection_lost(self, exc: Exception | None) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class BodySink(asyncio.BufferedProtocol):
    """A protocol that fills one body and reads no byte behind it."""

    def __init__(
        self, connection: _Connection, transport: asyncio.Transport, body: memoryview, begun: memoryview
    ) -> None:
        """Fill ``body``, which begins with ``begun``: the bytes that have come, fewer than all."""
        self._connection = connection
        self._transport = transport
        self._body = body
        self._filled = len(begun)
        self._rest = body[self._filled :]
        body[: self._filled] = begun

    def stand_by(self) -> None:
        """Stop reading until ``start``."""
        self._transport.pause_reading()

    def start(self) -> None:
        """Replace the protocol of the connection and read. Call it after ``stand_by``."""
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
            # A transport that is reading keeps its old protocol, so stop it first.
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
