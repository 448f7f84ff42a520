"""What a client has not taken yet, told by the kernel: how a slow client is known from one that is gone."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios

# ``tcpi_bytes_acked`` in Linux's ``struct tcp_info``.
_ACKNOWLEDGED_AT = 120
_ACKNOWLEDGED = struct.Struct("=Q")


def queued_bytes(descriptor: int) -> int:
    """Bytes the kernel holds for the peer of a TCP socket: not sent, or not acknowledged. 0 where it cannot tell.

    A socket becomes writable again only after a good part of them is gone, which may take a slow client minutes;
    this number falls with every packet that it takes.
    """
    try:
        answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, struct.pack("i", 0))
    except OSError:
        return 0
    return int(struct.unpack("i", answer)[0])


def acknowledged_bytes(transport: asyncio.BaseTransport) -> int | None:
    """How many bytes the peer of a TCP connection has acknowledged since it began; ``None`` where it is not known."""
    if sys.platform != "linux":
        return None
    try:
        information = transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED_AT + _ACKNOWLEDGED.size
        )
    except OSError:
        return None
    if len(information) < _ACKNOWLEDGED_AT + _ACKNOWLEDGED.size:
        return None
    return int(_ACKNOWLEDGED.unpack_from(information, _ACKNOWLEDGED_AT)[0])


def has_left(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer of a TCP connection has closed it, or its direction, though nothing is read of it now."""
    if sys.platform != "linux":
        return False
    try:
        state = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except (OSError, AttributeError):
        return True
    return bool(state != _ESTABLISHED)


_ESTABLISHED = 1


def taken_mark(transport: asyncio.WriteTransport, *, is_tls: bool) -> int:
    """Return a number that is larger than before when the client has taken bytes meanwhile, and nothing was written.

    Under TLS encrypted bytes wait in a transport below, whose buffer nobody can look at: the number counts what the
    peer has acknowledged. Elsewhere it counts down what waits in the transport and in the kernel. The client
    takes nothing more of a transport that closes; its socket may be gone.
    """
    if transport.is_closing():
        return -sys.maxsize
    if is_tls:
        acknowledged = acknowledged_bytes(transport)
        if acknowledged is not None:
            return acknowledged
    waiting_bytes = transport.get_write_buffer_size() + queued_bytes(transport.get_extra_info("socket").fileno())
    return -waiting_bytes
