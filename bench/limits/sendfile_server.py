"""``python -m bench.limits.sendfile_server FILE``: ranges of one file by sendfile, and nothing else.

uvloop; the head goes out with MSG_MORE, the slice follows from the page cache. The least a Python server does per
range: it looks for ``Range: bytes=A-B`` in what it received and knows no other header.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket as sockets
import sys
from typing import Any

import uvloop

from bench.limits.listening import listener, say_ready

_RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d+)", re.IGNORECASE)
TURN_BYTES = 1024 * 1024
"""So much of one answer before others have their turn."""


class Ranges(asyncio.Protocol):
    """One connection and what it still has to send."""

    file: int

    def connection_made(self, transport: Any) -> None:
        self._loop = asyncio.get_running_loop()
        # uvloop refuses writers on its own transports' descriptors, so it sees a duplicate.
        self._socket = sockets.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._descriptor = self._socket.fileno()
        self._position = self._remaining = 0
        self._is_waiting = False

    def connection_lost(self, _exception: Exception | None) -> None:
        if self._is_waiting:
            self._loop.remove_writer(self._descriptor)
        self._remaining = 0
        self._socket.close()

    def data_received(self, data: bytes) -> None:
        found = _RANGE.search(data)
        assert found is not None
        start, last = int(found[1]), int(found[2])
        size = last - start + 1
        self._socket.send(
            b"HTTP/1.1 206 Partial Content\r\nDate: Sat, 21 Nov 2026 14:00:00 GMT\r\n"
            b"Content-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % size,
            sockets.MSG_MORE,
        )
        self._position, self._remaining = start, size
        self._transfer()

    def _transfer(self) -> None:
        if not self._remaining:
            return
        try:
            sent = os.sendfile(self._descriptor, self.file, self._position, min(self._remaining, TURN_BYTES))
        except BlockingIOError:
            sent = 0
        except OSError:
            self._remaining = 0
            return
        self._position += sent
        self._remaining -= sent
        if bool(self._remaining) != self._is_waiting:
            self._is_waiting = not self._is_waiting
            if self._is_waiting:
                self._loop.add_writer(self._descriptor, self._transfer)
            else:
                self._loop.remove_writer(self._descriptor)


async def serve(path: str) -> None:
    Ranges.file = os.open(path, os.O_RDONLY)
    socket = listener()
    server = await asyncio.get_running_loop().create_server(Ranges, sock=socket)
    say_ready(socket)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
