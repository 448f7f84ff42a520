"""Bodies: limits on what is sent and on what it becomes, and what each Content-Encoding may do."""

from __future__ import annotations

import asyncio
import gzip
import random
import tracemalloc
import zlib
from collections.abc import Iterable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from app.http.bodies.body import ZSTD_WINDOW_BYTES_MAX, iterate_body, read_body
from app.problems.problem import Problem

MIB = 1024 * 1024


def make_request(chunks: Iterable[bytes], *, announced: int | None = None, encodings: Iterable[str] = ()) -> Request:
    """A request whose body arrives in ``chunks``; without an end if they have none."""
    source = iter(chunks)

    async def receive() -> Message:
        try:
            return {"type": "http.request", "body": next(source), "more_body": True}
        except StopIteration:
            return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"content-encoding", encoding.encode()) for encoding in encodings]
    if announced is not None:
        headers.append((b"content-length", str(announced).encode()))
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


def read(request: Request, *, limit_bytes: int = MIB, decompressed_bytes_max: int | None = None) -> bytes:
    return bytes(
        asyncio.run(read_body(request, limit_bytes=limit_bytes, decompressed_bytes_max=decompressed_bytes_max))
    )


def refusal(request: Request, *, limit_bytes: int = MIB, decompressed_bytes_max: int | None = None) -> Problem:
    with pytest.raises(Problem) as caught:
        read(request, limit_bytes=limit_bytes, decompressed_bytes_max=decompressed_bytes_max)
    return caught.value


def never() -> Iterable[bytes]:
    raise AssertionError("the body was read")
    yield b""


def test_a_body_up_to_its_limit_is_read() -> None:
    assert read(make_request([b"ab", b"", b"cd"]), limit_bytes=4) == b"abcd"
    assert read(make_request([])) == b""
    assert isinstance(asyncio.run(read_body(make_request([b"x"]), limit_bytes=1)), bytearray)


def test_a_body_over_its_limit_is_refused_where_it_is() -> None:
    problem = refusal(make_request([b"ab", b"cde"]), limit_bytes=4)
    assert (problem.status, problem.code, problem.headers) == (413, "request_too_large", {"Connection": "close"})


def test_an_announced_size_is_refused_before_a_byte_is_read() -> None:
    assert refusal(make_request(never(), announced=1024**3)).status == 413


def test_an_endless_body_is_refused() -> None:
    def endless() -> Iterable[bytes]:
        while True:
            yield b"x" * 1000

    assert refusal(make_request(endless())).status == 413


def test_a_stream_may_have_no_limit() -> None:
    async def total() -> int:
        size = 0
        async for piece in iterate_body(make_request(b"x" * 1000 for _ in range(5000)), None):
            size += len(piece)
        return size

    assert asyncio.run(total()) == 5_000_000


def test_a_client_that_leaves_is_no_end_of_a_body() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
    with pytest.raises(ClientDisconnect):
        read(request)


def compress(encoding: str, data: bytes) -> bytes:
    return gzip.compress(data) if encoding == "gzip" else zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@given(data=st.binary(max_size=3000), piece_bytes=st.integers(1, 100), frame_count=st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_decoding_undoes_encoding_however_it_is_cut(
    encoding: str, data: bytes, piece_bytes: int, frame_count: int
) -> None:
    sent = compress(encoding, data) * frame_count
    pieces = [sent[start : start + piece_bytes] for start in range(0, len(sent), piece_bytes)]
    assert read(make_request(pieces, encodings=[encoding])) == data * frame_count


@pytest.mark.parametrize("encodings", [["GZIP"], ["x-gzip"], ["identity", "gzip"], ["identity, gzip"], [" gzip "]])
def test_spellings_of_one_encoding(encodings: list[str]) -> None:
    assert read(make_request([gzip.compress(b"abc")], encodings=encodings)) == b"abc"


def test_identity_is_no_encoding() -> None:
    assert read(make_request([b"abc"], encodings=["identity"])) == b"abc"
    assert read(make_request([], encodings=["gzip"])) == b""


@pytest.mark.parametrize("encodings", [["br"], ["deflate"], ["gzip", "gzip"], ["gzip, zstd"], ["\xff"]])
def test_other_encodings_are_refused_before_a_byte_is_read(encodings: list[str]) -> None:
    problem = refusal(make_request(never(), encodings=encodings))
    assert (problem.status, problem.code) == (415, "unsupported_content_encoding")
    assert problem.headers == {"Accept-Encoding": "gzip, zstd"}


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_damage_is_refused(encoding: str) -> None:
    sent = compress(encoding, random.Random(3).randbytes(2000))
    for broken in (sent[:-1], sent[:20], sent[:2], sent + b"\0", sent + b"junk", b"junk", sent[:9] + b"\xff" * 9):
        problem = refusal(make_request([broken], encodings=[encoding]))
        assert (problem.status, problem.code) == (400, "malformed_body")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@given(place=st.integers(0, 399), bit=st.integers(0, 7))
@settings(deadline=None, max_examples=100)
def test_flipped_bits_never_do_anything_else(encoding: str, place: int, bit: int) -> None:
    sent = bytearray(compress(encoding, random.Random(3).randbytes(300) * 2))
    sent[place % len(sent)] ^= 1 << bit
    status = 200
    try:
        read(make_request([bytes(sent)], encodings=[encoding]))
    except Problem as problem:
        status = problem.status
    assert status in (200, 400)


def gzip_bomb(size: int) -> bytes:
    compressor = zlib.compressobj(9, wbits=31)
    pieces = [compressor.compress(bytes(MIB)) for _ in range(size // MIB)]
    return b"".join([*pieces, compressor.flush()])


def zstd_bomb(size: int) -> bytes:
    """Blocks of one repeated byte: 4 bytes for each 128 KiB, more than any compressor writes."""
    frame = bytes.fromhex("28b52ffd") + bytes([0x00, 0x58])  # a window of 2 MiB, no size
    block = (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    last = (1 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"x"
    return frame + block * (size // 131072) + last


@pytest.mark.parametrize(
    ("encoding", "bomb"), [("gzip", gzip_bomb(64 * MIB)), ("zstd", zstd_bomb(1024 * MIB))], ids=["gzip", "zstd"]
)
def test_a_bomb_takes_little_memory(encoding: str, bomb: bytes) -> None:
    """1 GiB fits in 32 KB of zstd."""
    assert len(bomb) < 70_000
    tracemalloc.start()
    try:
        problem = refusal(make_request([bomb], encodings=[encoding]), decompressed_bytes_max=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert problem.status == 413
    assert peak < 16 * MIB


def test_a_window_that_is_too_large_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=24)
    assert ZSTD_WINDOW_BYTES_MAX < 1 << 24
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    sent = compressor.compress(b"abc") + compressor.flush()
    assert refusal(make_request([sent], encodings=["zstd"])).status == 400
