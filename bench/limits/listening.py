"""The socket of a limit's server: a free port of this machine, cubic, and the line that says it is ready."""

from __future__ import annotations

import contextlib
import socket

from bench.machine import CONGESTION_WANTED


def listener() -> socket.socket:
    """A listening socket whose connections inherit the congestion control that all benchmarks use."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(OSError):
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_WANTED.encode())
    server.bind(("127.0.0.1", 0))
    server.listen(2048)
    return server


def say_ready(server: socket.socket) -> None:
    print(f"ready at http://127.0.0.1:{server.getsockname()[1]}", flush=True)
