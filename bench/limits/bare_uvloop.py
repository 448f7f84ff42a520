"""``python -m bench.limits.bare_uvloop``: a uvloop protocol that answers every request with the same bytes.

The floor of any Python server on this loop: no parser, no headers, only "the request has ended". A request ends where
its Content-Length, which is taken from the first of a connection, says.
"""

from __future__ import annotations

import asyncio
import re

import uvloop

from bench.limits.listening import listener, say_ready

ANSWER = (
    b"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 14:00:00 GMT\r\n"
    b"Content-Type: application/octet-stream\r\nContent-Length: 0\r\n\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class ConstantAnswer(asyncio.Protocol):
    """Counts bytes, and answers each request's last one."""

    def __init__(self) -> None:
        self._size = 0
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # uvloop's own class
        self._write = transport.write  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self._size:
            head = data.index(b"\r\n\r\n") + 4
            found = _LENGTH.search(data, 0, head)
            self._size = head + (int(found[1]) if found else 0)
        self._received += len(data)
        if self._received >= self._size:
            self._received -= self._size
            self._write(ANSWER)


async def serve() -> None:
    socket = listener()
    server = await asyncio.get_running_loop().create_server(ConstantAnswer, sock=socket)
    say_ready(socket)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
