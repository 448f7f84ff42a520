"""Compressed answers: gzip or zstd for large JSON, NDJSON and text, if the client accepts it."""

from __future__ import annotations

import asyncio
import gzip
from concurrent.futures import Executor

import zstandard
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

WORTH_BYTES_MIN = 1024
INLINE_BYTES_MAX = 64 * 1024
_GZIP_LEVEL = 1
_ZSTD_LEVEL = 1
_COMPRESSIBLE = ("application/json", "application/x-ndjson", "application/problem+json", "text/plain", "text/html")


def chosen_encoding(accept_encoding: str) -> str | None:
    """Return ``zstd`` or ``gzip``, as the client prefers; zstd among equals, ``None`` if it accepts neither."""
    weights: dict[str, float] = {}
    for item in accept_encoding.split(","):
        name, _, parameters = item.partition(";")
        weight = parameters.strip().removeprefix("q=") if parameters else "1"
        try:
            weights[name.strip().lower()] = float(weight)
        except ValueError:
            continue
    others = weights.get("*", 0.0)
    zstd, gzip_weight = weights.get("zstd", others), weights.get("gzip", others)
    if max(zstd, gzip_weight) <= 0:
        return None
    return "zstd" if zstd >= gzip_weight else "gzip"


def encoded_etag(etag: str, encoding: str) -> str:
    """Return the strong ETag of an encoded form, which differs from that of the plain form (RFC 9110, 8.8.3.3).

    Example: ``"7"`` becomes ``"7;gzip"``.
    """
    return f'{etag[:-1]};{encoding}"' if etag.endswith('"') else etag


def plain_etag(etag: str) -> str:
    """Return the ETag of the form that is not encoded."""
    return etag.replace(";gzip", "").replace(";zstd", "")


def _compress(content: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(content, _GZIP_LEVEL, mtime=0)
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(content)


class AnswerCompression:
    """ASGI middleware that compresses whole answers of text.

    Answers in pieces, encoded answers, answers below ``WORTH_BYTES_MIN`` and answers that are no text pass unchanged.
    """

    def __init__(self, app: ASGIApp, pool: Executor) -> None:
        self._app = app
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        encoding = chosen_encoding(Headers(scope=scope).get("accept-encoding", ""))
        await self._app(scope, receive, _Compressing(send, encoding, self._pool))


class _Compressing:
    """The ``send`` of one answer."""

    def __init__(self, send: Send, encoding: str | None, pool: Executor) -> None:
        self._send = send
        self._encoding = encoding
        self._pool = pool
        self._held: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            if headers.get("content-type", "").partition(";")[0] in _COMPRESSIBLE:
                headers.add_vary_header("Accept-Encoding")
                if self._encoding is not None and "content-encoding" not in headers:
                    self._held = message
                    return
        elif self._held is not None:
            start, self._held = self._held, None
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                message = await self._compressed(start, message)
            await self._send(start)
        await self._send(message)

    async def _compressed(self, start: Message, message: Message) -> Message:
        content = message.get("body", b"")
        if len(content) < WORTH_BYTES_MIN:
            return message
        assert self._encoding is not None
        if len(content) <= INLINE_BYTES_MAX:
            content = _compress(content, self._encoding)
        else:
            loop = asyncio.get_running_loop()
            content = await loop.run_in_executor(self._pool, _compress, content, self._encoding)
        headers = MutableHeaders(raw=start["headers"])
        headers["Content-Encoding"] = self._encoding
        headers["Content-Length"] = str(len(content))
        if "etag" in headers:
            headers["ETag"] = encoded_etag(headers["etag"], self._encoding)
        return {**message, "body": content}
