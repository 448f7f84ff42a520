"""The socket of a connection, for operations that the loop's transport does not offer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Self


class NotBareError(RuntimeError):
    """An attempt to write past a transport that encrypts. It is a defect of ours, and no byte may be sent."""


class Wire:
    """A borrowed TCP socket. Its owner closes it; after that only ``release`` may be called.

    Thread: the event loop's.
    """

    __slots__ = ("_socket", "descriptor", "unsent_bytes_max")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        # Made on first use and kept, because making one costs more than sending a small answer.
        self._socket: socket.socket | None = None
        self.unsent_bytes_max = -1
        """The last argument of ``allow_unsent``; -1 before."""

    @classmethod
    def of(cls, transport: asyncio.BaseTransport) -> Self:
        """Return the socket of a connection. Bytes that are sent on it reach the peer as they are.

        Raises:
            NotBareError: the connection speaks TLS.
        """
        if transport.get_extra_info("sslcontext") is not None:
            raise NotBareError("the socket below TLS must not be written to")
        return cls(transport.get_extra_info("socket").fileno())

    def _borrowed(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=self.descriptor)
        return self._socket

    def send(self, piece: bytes | bytearray | memoryview, *, is_more_to_come: bool) -> int:
        """Send as many bytes as fit and return their number.

        If ``is_more_to_come``, the kernel holds a packet back until it is full.

        Raises:
            BlockingIOError: no byte fits.
            ConnectionError: the peer is gone.
        """
        return self._borrowed().send(piece, socket.MSG_MORE if is_more_to_come else 0)

    def set_option(self, level: int, option: int, value: int | bytes) -> None:
        """Set an option if the socket has it."""
        # A socket without it is at its end, or no TCP socket.
        with contextlib.suppress(OSError):
            self._borrowed().setsockopt(level, option, value)

    def allow_unsent(self, size_bytes: int) -> None:
        """Let the kernel hold up to ``size_bytes`` that it has not sent yet."""
        if size_bytes != self.unsent_bytes_max:
            self.unsent_bytes_max = size_bytes
            self.set_option(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size_bytes)

    def release(self) -> None:
        """Give the socket back without closing it. A second call does nothing."""
        if self._socket is not None:
            self._socket.detach()
            self._socket = None
