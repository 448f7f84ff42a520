"""``python -m bench.limits.append_server FILE``: the least a Python server does to append a record batch.

uvloop, httptools, the batch's CRC, base offset and leader epoch written into it, one ``pwrite``. One partition, nothing
checked but the CRC, no index. ``--fsync`` adds an fdatasync before each answer, on the loop: what group commit saves.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import struct
from pathlib import Path

import crc32c
import httptools
import uvloop

from bench.limits.listening import listener, say_ready

_CRC = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
_RECORD_COUNT = struct.Struct(">i")
CRC_AT, CRC_FROM, COUNT_AT = 17, 21, 57
ANSWER = (
    b"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 14:00:00 GMT\r\n"
    b'Content-Type: application/json\r\nContent-Length: 21\r\n\r\n{"base_offset":12345}'
)
REFUSED = b"HTTP/1.1 422 Unprocessable Content\r\nContent-Length: 0\r\n\r\n"


class Log:
    """One file that is appended to. SIGHUP empties it."""

    def __init__(self, path: Path, fsync: bool) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._fsync = fsync
        self._position = 0
        self._offset = 0

    def clear(self) -> None:
        """Begin again with an empty file."""
        os.ftruncate(self._file, 0)
        self._position = 0

    def append(self, batch: bytearray) -> bool:
        """Check, stamp and write; whether the CRC was right."""
        with memoryview(batch) as view:
            if _CRC.unpack_from(batch, CRC_AT)[0] != crc32c.crc32c(view[CRC_FROM:]):
                return False
        _OFFSET.pack_into(batch, 0, self._offset)
        _CRC.pack_into(batch, 12, 0)
        self._offset += _RECORD_COUNT.unpack_from(batch, COUNT_AT)[0]
        self._position += os.pwrite(self._file, batch, self._position)
        if self._fsync:
            os.fdatasync(self._file)
        return True


class Connection(asyncio.Protocol):
    """Parses with httptools, collects the body in one buffer, answers from the parser's callback."""

    log: Log

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # uvloop's own class
        self._write = transport.write  # type: ignore[attr-defined]
        self._parser = httptools.HttpRequestParser(self)
        self._body = bytearray()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, bytearray()
        self._write(ANSWER if self.log.append(body) else REFUSED)


async def serve(log: Log) -> None:
    Connection.log = log
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, log.clear)
    socket = listener()
    server = await asyncio.get_running_loop().create_server(Connection, sock=socket)
    say_ready(socket)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--fsync", action="store_true")
    options = parser.parse_args()
    uvloop.run(serve(Log(options.file, options.fsync)))
