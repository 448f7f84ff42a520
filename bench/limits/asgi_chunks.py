"""``python -m bench.limits.asgi_chunks FILE``: a bare ASGI application that appends what the server gave it.

The body stays the list of pieces that uvicorn made of it: CRC over the pieces, base offset written into the first,
one ``pwritev``. What can be had without leaving ASGI.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import crc32c
import uvicorn

from bench.limits.append_server import COUNT_AT, CRC_AT, CRC_FROM
from bench.limits.listening import listener, say_ready

Message = MutableMapping[str, Any]
_IOV_MAX = 1024
ANSWER = b'{"base_offset":12345}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]


class Application:
    """ASGI, with one file behind it."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._position = 0
        self._offset = 0

    def clear(self, *_: object) -> None:
        """Begin again with an empty file."""
        os.ftruncate(self._file, 0)
        self._position = 0

    def _append(self, pieces: list[bytes]) -> bool:
        first = bytearray(pieces[0])
        crc = crc32c.crc32c(memoryview(first)[CRC_FROM:])
        for piece in pieces[1:]:
            crc = crc32c.crc32c(piece, crc)
        if int.from_bytes(first[CRC_AT : CRC_AT + 4], "big") != crc:
            return False
        first[:8] = self._offset.to_bytes(8, "big")
        self._offset += int.from_bytes(first[COUNT_AT : COUNT_AT + 4], "big")
        pieces[0] = bytes(first)
        for start in range(0, len(pieces), _IOV_MAX):
            self._position += os.pwritev(self._file, pieces[start : start + _IOV_MAX], self._position)
        return True

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        assert scope["type"] == "http"
        pieces: list[bytes] = []
        while True:
            message = await receive()
            if message.get("body"):
                pieces.append(message["body"])
            if not message.get("more_body"):
                break
        status = 200 if self._append(pieces) else 422
        await send({"type": "http.response.start", "status": status, "headers": HEADERS})
        await send({"type": "http.response.body", "body": ANSWER})


def main() -> None:
    application = Application(sys.argv[1])
    signal.signal(signal.SIGHUP, application.clear)
    config = uvicorn.Config(
        application,  # type: ignore[arg-type]
        http="httptools",
        loop="uvloop",
        lifespan="off",
        log_config=None,
        access_log=False,
        ws="none",
    )
    socket = listener()
    say_ready(socket)
    uvicorn.Server(config).run([socket])


if __name__ == "__main__":
    main()
