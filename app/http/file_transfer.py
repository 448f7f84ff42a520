"""One stretch of a file on its way into a socket by sendfile, beside the event loop's own transport.

The loop keeps its hands on a transport's descriptor, so a duplicate of the socket is watched and written instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from typing import Protocol

from app.http.send_queue import queued_bytes

# What goes into the socket before other connections get their turn.
PIECE_BYTES = 1024 * 1024

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class SourceFile(Protocol):
    """An open file; its descriptor stays valid while a transfer holds it."""

    def fileno(self) -> int: ...


class FileEndedError(Exception):
    """The file is shorter than the answer's head has promised."""


class StalledError(Exception):
    """The peer took no byte for too long."""


class FileTransfer:
    """Sends bytes of a file over the connection of ``transport``, which must not write meanwhile.

    Thread: the event loop's. Cold data is sent from a thread of the loop's pool, so that only that thread waits
    for the disk.
    """

    def __init__(self, transport: asyncio.Transport, stall_timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._stall_seconds = stall_timeout_ms / 1000
        wire = transport.get_extra_info("socket")
        self._socket = socket.socket(wire.family, socket.SOCK_STREAM, 0, fileno=os.dup(wire.fileno()))
        self._writable: asyncio.Future[None] | None = None
        self._is_aborted = False

    def hold_small_writes(self) -> None:
        """Let the kernel wait with a packet that is not full, so that the head leaves with the first bytes."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)

    def abort(self) -> None:
        """End a running ``send`` with ConnectionAbortedError. Again is fine."""
        self._is_aborted = True
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def reset(self) -> None:
        """Let the close throw away what the peer has not taken, and tell it so."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)

    def close(self) -> None:
        """Give the descriptor back; the transport still has its own."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        self._socket.close()

    async def send(self, file: SourceFile, offset: int, count: int) -> None:
        """Send ``count`` bytes of ``file`` from ``offset`` on.

        The file may be closed by its owner meanwhile: the transfer has a descriptor of its own.

        Raises:
            FileEndedError: there are fewer; what there was is sent.
            StalledError: the peer took nothing for the stall timeout.
            ConnectionError: the peer is gone, or ``abort`` was called.
        """
        source = os.dup(file.fileno())
        try:
            while count:
                sent = await self._send_piece(source, offset, min(count, PIECE_BYTES))
                if self._is_aborted:
                    raise ConnectionAbortedError
                if sent == 0:
                    raise FileEndedError
                offset += sent
                count -= sent
        finally:
            os.close(source)

    async def _send_piece(self, source: int, offset: int, length: int) -> int:
        """Send at least one byte, 0 only at the end of the file."""
        while True:
            try:
                if _is_cached(source, offset, length):
                    sent = os.sendfile(self._socket.fileno(), source, offset, length)
                    # A full piece: let others have the loop.
                    if sent == PIECE_BYTES:
                        await asyncio.sleep(0)
                    return sent
                return await self._send_from_thread(source, offset, length)
            except BlockingIOError:
                await self._wait_until_writable()

    async def _send_from_thread(self, source: int, offset: int, length: int) -> int:
        sending = self._loop.run_in_executor(None, os.sendfile, self._socket.fileno(), source, offset, length)
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            # The thread uses both descriptors: they must not be closed, and given to others, under it.
            await asyncio.wait([sending])
            with contextlib.suppress(OSError):
                sending.result()
            raise

    async def _wait_until_writable(self) -> None:
        if self._is_aborted:
            raise ConnectionAbortedError
        writable = self._writable = self._loop.create_future()
        descriptor = self._socket.fileno()
        self._loop.add_writer(descriptor, _complete, writable)
        try:
            await self._unless_stalled(writable)
        finally:
            # Before the descriptor closes: its number may be another's at once.
            self._loop.remove_writer(descriptor)
            self._writable = None
        if self._is_aborted:
            raise ConnectionAbortedError

    async def _unless_stalled(self, writable: asyncio.Future[None]) -> None:
        """Wait for ``writable`` for as long as the peer takes bytes, however few."""
        queued = queued_bytes(self._socket.fileno())
        while True:
            try:
                async with asyncio.timeout(self._stall_seconds):
                    # A timeout leaves the future as it is.
                    await asyncio.shield(writable)
                return
            except TimeoutError:
                before, queued = queued, queued_bytes(self._socket.fileno())
                if queued >= before:
                    raise StalledError from None


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _is_cached(source: int, offset: int, length: int) -> bool:
    """Whether both ends of a stretch are in the page cache; also yes where the file system cannot tell."""
    byte = bytearray(1)
    try:
        os.preadv(source, [byte], offset, os.RWF_NOWAIT)
        os.preadv(source, [byte], offset + length - 1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
