"""The socket of a connection, for what the loop's transport has no calls for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Self


class NotBareError(RuntimeError):
    """Somebody wants to write past a transport that encrypts: a defect of ours, and no byte may go out for it."""


class Wire:
    """A TCP socket that belongs to somebody else, who closes it; behind that only ``release`` may be called.

    Thread: the event loop's.
    """

    __slots__ = ("_socket", "descriptor", "unsent_bytes_max")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        # Made when it is first needed, and kept: to make one costs more than to send a small answer.
        self._socket: socket.socket | None = None
        self.unsent_bytes_max = -1
        """What ``allow_unsent`` was told last."""

    @classmethod
    def of(cls, transport: asyncio.BaseTransport) -> Self:
        """The socket of a connection. There is no other way to it: what is written here reaches the peer as it is.

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
        """Send as much as fits, and return how much that is; the kernel waits with a packet that is not full.

        Raises:
            BlockingIOError: nothing fits.
            ConnectionError: the peer is gone.
        """
        return self._borrowed().send(piece, socket.MSG_MORE if is_more_to_come else 0)

    def set_option(self, level: int, option: int, value: int | bytes) -> None:
        """Set an option, if the socket has it."""
        # Without it the connection ends anyhow, or is no TCP.
        with contextlib.suppress(OSError):
            self._borrowed().setsockopt(level, option, value)

    def allow_unsent(self, size_bytes: int) -> None:
        """Let the kernel hold so much that it has not sent yet."""
        if size_bytes != self.unsent_bytes_max:
            self.unsent_bytes_max = size_bytes
            self.set_option(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size_bytes)

    def release(self) -> None:
        """Let go of the socket, which is closed or will be. Again is fine."""
        if self._socket is not None:
            self._socket.detach()
            self._socket = None
