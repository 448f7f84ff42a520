"""Answers that are slices of files: the kernel moves the bytes, Python never holds them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from storage.log_snapshot import FileSlice

EXTENSION = "http.response.zerocopysend"
# What the copying road holds of one answer at a time.
PIECE_BYTES = 256 * 1024


class SliceResponse(Response):
    """Sends slices of files one behind the other, with their exact length.

    The slices keep their files open until the last byte is out, also when retention unlinks them meanwhile.
    On a server that offers ``http.response.zerocopysend`` the bytes go from the file to the socket by sendfile;
    on any other they are read in pieces of 256 KiB in a thread. If a file turns out to be shorter than its slice,
    the connection is cut: the length is out already, and nothing else can say that bytes are missing.
    """

    def __init__(
        self,
        slices: Sequence[FileSlice],
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        status: int = 200,
    ) -> None:
        self.slices = [piece for piece in slices if piece.size_bytes]
        self.size_bytes = sum(piece.size_bytes for piece in self.slices)
        super().__init__(None, status, {**(headers or {}), "Content-Length": str(self.size_bytes)}, media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] == "HEAD" or not self.slices:
            await send({"type": "http.response.body", "body": b""})
        elif EXTENSION in scope.get("extensions", {}):
            await self._send_files(send)
        else:
            await self._send_copies(receive, send)

    async def _send_files(self, send: Send) -> None:
        last = len(self.slices) - 1
        for number, piece in enumerate(self.slices):
            await send(
                {
                    "type": EXTENSION,
                    "file": piece.file,
                    "offset": int(piece.position),
                    "count": piece.size_bytes,
                    "more_body": number < last,
                }
            )

    async def _send_copies(self, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_until_disconnect(receive))
        try:
            for piece in self.slices:
                for start in range(0, piece.size_bytes, PIECE_BYTES):
                    part = await asyncio.to_thread(piece.read_part, start, PIECE_BYTES)
                    if gone.done():
                        return
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
