"""The bytes that a client has not taken yet, as the kernel counts them: they tell a slow client from a lost one."""

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
    """Return the bytes that the kernel holds for the peer of a TCP socket: not sent, or not acknowledged.

    0 if the kernel cannot tell. A socket becomes writable again only when a good part of these bytes is gone, which may
    take minutes with a slow client. This number falls with every packet that the client takes.
    """
    try:
        answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, struct.pack("i", 0))
    except OSError:
        return 0
    return int(struct.unpack("i", answer)[0])


def acknowledged_bytes(transport: asyncio.BaseTransport) -> int | None:
    """Return the bytes that the peer of a TCP connection has acknowledged since it began; ``None`` if unknown."""
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
    """Return whether the peer of a TCP connection has closed it or its direction. Works while nothing is read."""
    if sys.platform != "linux":
        return False
    try:
        state = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except (OSError, AttributeError):
        return True
    return bool(state != _ESTABLISHED)


_ESTABLISHED = 1


def taken_mark(transport: asyncio.WriteTransport, *, is_tls: bool) -> int:
    """Return a number that has grown since the last call if the client took bytes and nothing was written.

    Under TLS, encrypted bytes wait in a transport below, whose buffer is not accessible. There the number counts the
    bytes that the peer has acknowledged. Otherwise it is minus the number of bytes that wait in the transport and in
    the kernel. The client takes no bytes of a closing transport, whose socket may be gone.
    """
    if transport.is_closing():
        return -sys.maxsize
    if is_tls:
        acknowledged = acknowledged_bytes(transport)
        if acknowledged is not None:
            return acknowledged
    waiting_bytes = transport.get_write_buffer_size() + queued_bytes(transport.get_extra_info("socket").fileno())
    return -waiting_bytes
