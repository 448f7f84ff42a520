"""Bodies of requests, read as a stream: one limit bounds the bytes as sent, another one the decoded bytes.

No announced size is trusted. A body whose Content-Length is too large is refused before it is read. A body that turns
out to be too large is refused at that byte. The size that a compressed stream announces is ignored.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator, Iterator

import zstandard
from starlette.requests import ClientDisconnect, Request

from app.http.bodies.byte_budget import ByteBudget, Hold
from app.problems import kinds
from app.problems.problem import Problem
from app.problems.request_context import give_way

# RFC 8878 recommends that every decoder supports a window of 8 MiB. With more, a client could make us take memory.
ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024
_GZIP_OUTPUT_BYTES = 64 * 1024
# A zstd block decodes to 128 KiB from 4 bytes, so this much input decodes to at most 1 MiB. When a piece decoded to
# little, the next one is larger, and decodes to at most 8 MiB.
_ZSTD_INPUT_BYTES_MIN = 32
_ZSTD_INPUT_BYTES_MAX = 256
_ZSTD_OUTPUT_BYTES = 64 * 1024
# This many bytes of a body are never refused for lack of memory, so that large bodies do not hold up small ones.
BODY_BYTES_ALWAYS_TAKEN = 64 * 1024
# Other requests get their turn after this many decoded bytes. Each member of gzip and each frame of zstd counts as at
# least ``_MEMBER_BYTES``, because it costs as much as these.
_TURN_BYTES = 1024 * 1024
_MEMBER_BYTES = 16 * 1024
# Longest head of a zstd frame: magic, descriptor, window, id of a dictionary, size of the content.
_ZSTD_HEAD_BYTES_MAX = 18


async def read_body(
    request: Request,
    *,
    limit_bytes: int,
    decompressed_bytes_max: int | None = None,
    budget: ByteBudget | None = None,
    hold: Hold | None = None,
) -> bytearray:
    """Return the whole body, decoded, in a buffer that belongs to the caller.

    It has at most ``limit_bytes`` as sent and ``decompressed_bytes_max`` decoded (absent: ``limit_bytes``). Its bytes
    count in ``budget`` until the body is complete. With ``hold``, which is one of that budget, they count until the
    hold is released. The memory of the decoder counts until the body is complete.

    Raises:
        Problem: 413 too large, 415 unknown Content-Encoding, 400 damaged encoding, 503 the budget is spent.
        ClientDisconnect: the client went away.
    """
    body = bytearray()
    most = limit_bytes if decompressed_bytes_max is None else decompressed_bytes_max
    if budget is None:
        async for piece in iterate_body(request, limit_bytes, decompressed_bytes_max=most):
            body += piece
        return body
    held = budget.hold() if hold is None else hold
    window = budget.hold()
    try:
        async for piece in iterate_body(request, limit_bytes, decompressed_bytes_max=most, window=window):
            body += piece
            piece = b""  # noqa: PLW2901 - freed before the next one is awaited
            held.grow(len(body), always_bytes=BODY_BYTES_ALWAYS_TAKEN)
    finally:
        window.release()
        if hold is None:
            held.release()
    return body


async def iterate_body(
    request: Request,
    limit_bytes: int | None,
    *,
    decompressed_bytes_max: int | None = None,
    window: Hold | None = None,
) -> AsyncIterator[bytes]:
    """Yield the body in pieces as they arrive, decoded. A limit that is absent does not apply.

    A piece has a few hundred KiB at most, a piece out of zstd up to 8 MiB. While the next piece is awaited, only the
    window of the decoder is held. It counts in ``window``, which the caller releases.

    Raises:
        Problem: as ``read_body``; 413 and 415 from the headers alone come before the first byte is read.
        ClientDisconnect: the client went away.
    """
    announced = request.headers.get("content-length", "")
    if limit_bytes is not None and announced.isdecimal() and int(announced) > limit_bytes:
        raise _too_large(f"the body has {announced} bytes; this service takes {limit_bytes}")
    decoder = _decoder_for(request)
    received_bytes = decoded_bytes = turn_bytes = 0
    async for chunk in _received(request):
        received_bytes += len(chunk)
        if limit_bytes is not None and received_bytes > limit_bytes:
            raise _too_large(f"the body has more than {limit_bytes} bytes")
        if decoder is None:
            if chunk:
                yield chunk
            chunk = b""  # noqa: PLW2901 - freed before the next one is awaited
            continue
        for piece in decoder.decode(chunk):
            decoded_bytes += len(piece)
            if decompressed_bytes_max is not None and decoded_bytes > decompressed_bytes_max:
                raise _too_large(f"decompressed, the body has more than {decompressed_bytes_max} bytes")
            if window is not None and decoder.window_bytes > window.size_bytes:
                window.grow(decoder.window_bytes, always_bytes=BODY_BYTES_ALWAYS_TAKEN)
            if piece:
                yield piece
            turn_bytes += len(piece) or _MEMBER_BYTES
            if turn_bytes >= _TURN_BYTES:
                turn_bytes = 0
                await give_way()
        chunk = piece = b""  # noqa: PLW2901 - as above
    if decoder is not None and not decoder.is_complete:
        raise _malformed("the compressed body is cut off")


async def _received(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes. Starlette's own iterator holds each piece until the next one is there."""
    more_body = True
    while more_body:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        more_body = message.get("more_body", False)
        yield message.pop("body", b"")


class _GzipDecoder:
    """A decoder of gzip members, one behind the other."""

    window_bytes = 0
    """The bytes of content that the decoder keeps: few."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self.is_complete = True
        """Whether the stream may end here."""

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decoded content of ``chunk`` in pieces. An empty piece stands for the work of a new member."""
        while chunk:
            if self._member.eof:
                self._member = zlib.decompressobj(wbits=31)
                yield b""
            try:
                piece = self._member.decompress(chunk, _GZIP_OUTPUT_BYTES)
            except zlib.error as error:
                raise _malformed(f"the gzip body is damaged: {error}") from None
            if piece:
                yield piece
            chunk = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            self.is_complete = self._member.eof


class _ZstdDecoder:
    """A decoder of zstd frames, one behind the other."""

    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
        self._frame = self._decompressor.decompressobj()
        self._window_bytes = self._decoded_bytes = 0
        self._frame_head = b""
        self.is_complete = True

    @property
    def window_bytes(self) -> int:
        """The largest window of all frames so far, as far as it was filled. The decoder uses it again."""
        return min(self._window_bytes, self._decoded_bytes)

    def _look_at_head(self, piece: bytes) -> None:
        """Find the window in the head of a frame, of which ``piece`` is the next bytes."""
        if len(self._frame_head) == _ZSTD_HEAD_BYTES_MAX:
            return
        self._frame_head += piece[: _ZSTD_HEAD_BYTES_MAX - len(self._frame_head)]
        with contextlib.suppress(zstandard.ZstdError):
            # The head is incomplete, or it is none. Then the decoder raises a better error.
            found = zstandard.get_frame_parameters(self._frame_head)
            self._window_bytes = max(self._window_bytes, found.window_size)

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        start, input_bytes = 0, _ZSTD_INPUT_BYTES_MIN
        while start < len(chunk):
            rest = chunk[start : start + input_bytes]
            start += len(rest)
            decoded_bytes_before = self._decoded_bytes
            while rest:
                if self._frame.eof:
                    self._frame = self._decompressor.decompressobj()
                    self._frame_head = b""
                    yield b""
                self._look_at_head(rest)
                try:
                    piece = self._frame.decompress(rest)
                except zstandard.ZstdError as error:
                    raise _malformed(f"the zstd body is damaged: {error}") from None
                self._decoded_bytes += len(piece)
                if piece:
                    yield piece
                    piece = b""
                self.is_complete = self._frame.eof
                rest = self._frame.unused_data if self._frame.eof else b""
            is_little = self._decoded_bytes - decoded_bytes_before < _ZSTD_OUTPUT_BYTES
            input_bytes = min(2 * input_bytes, _ZSTD_INPUT_BYTES_MAX) if is_little else _ZSTD_INPUT_BYTES_MIN


_DECODERS: dict[str, type[_GzipDecoder | _ZstdDecoder]] = {
    "gzip": _GzipDecoder,
    "x-gzip": _GzipDecoder,
    "zstd": _ZstdDecoder,
}


def _decoder_for(request: Request) -> _GzipDecoder | _ZstdDecoder | None:
    header = ",".join(request.headers.getlist("content-encoding"))
    codings = [coding for coding in (part.strip().lower() for part in header.split(",")) if coding != "identity"]
    if not any(codings):
        return None
    if len(codings) == 1 and codings[0] in _DECODERS:
        return _DECODERS[codings[0]]()
    raise Problem(
        kinds.UNSUPPORTED_CONTENT_ENCODING,
        f"Content-Encoding may be gzip or zstd, one of them, not {header[:200]}",
        headers={"Accept-Encoding": "gzip, zstd"},
    )


def _too_large(detail: str) -> Problem:
    # The rest of the body is not read, so the connection cannot serve another request.
    return Problem(kinds.REQUEST_TOO_LARGE, detail, headers={"Connection": "close"})


def _malformed(detail: str) -> Problem:
    return Problem(kinds.MALFORMED_BODY, detail)
