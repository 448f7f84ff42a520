"""What a client has not taken yet, told by the kernel: how a slow client is known from one that is gone."""

from __future__ import annotations

import fcntl
import struct
import termios


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
