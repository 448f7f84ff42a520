"""Compressed bodies of very many members that make no bytes."""

from __future__ import annotations

import asyncio
import gzip

import pytest
import zstandard
from starlette.requests import Request
from starlette.types import Message

from app.http.bodies.body import read_body

MEMBER_COUNT = 10_000


@pytest.mark.parametrize(
    ("coding", "member"),
    [("gzip", gzip.compress(b"", mtime=0)), ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(b""))],
    ids=["gzip", "zstd"],
)
def test_members_without_a_byte_do_not_hold_the_loop(coding: str, member: bytes) -> None:
    """Turns of the loop were given for bytes that came out. 4 MB of empty members made none, and held up everybody for
    half a second at a time."""
    pieces = [member * MEMBER_COUNT]

    async def receive() -> Message:
        return {"type": "http.request", "body": pieces.pop() if pieces else b"", "more_body": bool(pieces)}

    async def count_turns() -> int:
        request = Request(
            {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-encoding", coding.encode())]},
            receive,
        )
        reading = asyncio.ensure_future(read_body(request, limit_bytes=2**20))
        count = 0
        while not reading.done():
            count += 1
            await asyncio.sleep(0)
        assert reading.result() == b""
        return count

    # At most a hundred members in a turn.
    assert asyncio.run(count_turns()) >= MEMBER_COUNT // 100
