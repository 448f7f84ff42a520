"""Answers that are slices of files: the kernel moves the bytes, Python never holds them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from log_model.reads import FileSlice

EXTENSION = "http.response.zerocopysend"
# Bytes of one answer that are held at a time if they are copied.
PIECE_BYTES = 256 * 1024


Part = FileSlice | bytes
"""A part of an answer: a slice of a file, or bytes."""


class SliceResponse(Response):
    """A response of slices of files and bytes, one behind the other, with their exact length.

    The slices keep their files open until the last byte is sent, also if retention unlinks the files meanwhile. On a
    server that offers ``http.response.zerocopysend``, sendfile moves the bytes from the file to the socket. On any
    other server they are read in a thread, in pieces of 256 KiB. If a file is shorter than its slice, the connection
    is cut: the length is already sent, so only this shows that bytes are missing.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        status: int = 200,
    ) -> None:
        self.parts = [part for part in parts if _size_of(part)]
        self.size_bytes = sum(map(_size_of, self.parts))
        super().__init__(None, status, {**(headers or {}), "Content-Length": str(self.size_bytes)}, media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] == "HEAD" or not self.parts:
            await send({"type": "http.response.body", "body": b""})
        elif EXTENSION in scope.get("extensions", {}):
            await self._send_files(send)
        else:
            await self._send_copies(receive, send)

    async def _send_files(self, send: Send) -> None:
        last = len(self.parts) - 1
        for number, part in enumerate(self.parts):
            if isinstance(part, bytes) or part.content is not None:
                body = part if isinstance(part, bytes) else part.content
                await send({"type": "http.response.body", "body": body, "more_body": number < last})
                continue
            await send(
                {
                    "type": EXTENSION,
                    "file": part.file,
                    "offset": int(part.position),
                    "count": part.size_bytes,
                    "more_body": number < last,
                }
            )

    async def _send_copies(self, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_until_disconnect(receive))
        try:
            for part in self.parts:
                for start in range(0, _size_of(part), PIECE_BYTES):
                    if isinstance(part, bytes):
                        piece = part[start : start + PIECE_BYTES]
                    else:
                        piece = await asyncio.to_thread(part.read_part, start, PIECE_BYTES)
                    if gone.done():
                        return
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()


def _size_of(part: Part) -> int:
    return len(part) if isinstance(part, bytes) else part.size_bytes


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
