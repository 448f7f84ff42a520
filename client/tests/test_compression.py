from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rollway.records import BrokenBatchError, Codec, DecompressedSizeError, RecordFormatError
from rollway.records.compression import compress, decompress

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
compressed_codecs = pytest.mark.parametrize("codec", COMPRESSED)

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
LIMIT = 2**26


def plain(codec: Codec, body: bytes, limit: int = LIMIT) -> bytes:
    return bytes(decompress(codec, memoryview(body), limit))


def compressed(codec: Codec, content: bytes, level: int | None = None) -> bytes:
    return bytes(compress(codec, content, level))


contents = st.binary(max_size=300) | st.builds(
    lambda part, times: part * times, st.binary(max_size=9), st.integers(0, 20_000)
)


@given(st.sampled_from(Codec), contents)
def test_round_trip(codec: Codec, content: bytes) -> None:
    assert plain(codec, compressed(codec, content)) == content


@compressed_codecs
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 128 * 1024 + 1, 5_000_000])
def test_sizes_around_those_of_blocks(codec: Codec, size: int) -> None:
    content = bytes(index * 7 & 0xFF for index in range(251)) * (size // 251 + 1)
    assert plain(codec, compressed(codec, content[:size])) == content[:size]


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (0, 1, 9)), (Codec.LZ4, (-5, 0, 1, 9, 16)), (Codec.ZSTD, (-50, 1, 3, 19))]
)
def test_levels(codec: Codec, levels: tuple[int, ...]) -> None:
    content = b"some records " * 1000
    for level in levels:
        assert plain(codec, compressed(codec, content, level)) == content


@pytest.mark.parametrize(
    ("codec", "level"),
    [(Codec.GZIP, 10), (Codec.GZIP, -1), (Codec.LZ4, 18), (Codec.ZSTD, 23), (Codec.SNAPPY, 1), (Codec.NONE, 0)],
)
def test_levels_a_codec_does_not_have(codec: Codec, level: int) -> None:
    with pytest.raises(ValueError, match=f"{codec.name.lower()} has no compression level {level}"):
        compress(codec, b"x", level)


def test_lz4_is_written_as_kafka_reads_it() -> None:
    """Version 1, independent blocks of 64 KiB, no sizes and no content checksum."""
    assert compressed(Codec.LZ4, b"x" * 200_000)[:6] == bytes.fromhex("04 22 4d 18 60 40")


def test_snappy_is_written_in_xerial_frames() -> None:
    content = b"0123456789" * 10_000
    body = compressed(Codec.SNAPPY, content)
    assert body.startswith(XERIAL_HEADER)
    position, sizes = len(XERIAL_HEADER), []
    while position < len(body):
        (length,) = struct.unpack_from(">i", body, position)
        sizes.append(cramjam.snappy.decompress_raw_len(body[position + 4 : position + 4 + length]))
        position += 4 + length
    assert sizes == [32768, 32768, 32768, 100_000 - 3 * 32768]


def test_raw_snappy_and_joined_xerial_streams_are_read() -> None:
    content = b"raw block" * 20_000
    assert plain(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(content))) == content
    assert plain(Codec.SNAPPY, compressed(Codec.SNAPPY, content) * 2) == content * 2


def test_gzip_members_and_zstd_frames_follow_each_other() -> None:
    assert plain(Codec.GZIP, b"".join(gzip.compress(b"%d," % part) for part in range(2000))) == b"".join(
        b"%d," % part for part in range(2000)
    )
    skippable = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    frames = zstandard.compress(b"one") + skippable + zstandard.ZstdCompressor(write_checksum=True).compress(b"two")
    assert plain(Codec.ZSTD, frames) == b"onetwo"


def test_zstd_frames_that_do_not_tell_their_size_are_read() -> None:
    content = b"streamed " * 10_000
    # The window of zstd's highest level, which Kafka's clients may use.
    widest = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    for compressor in (
        zstandard.ZstdCompressor().compressobj(),
        zstandard.ZstdCompressor(compression_params=widest).compressobj(),
    ):
        body = compressor.compress(content) + compressor.flush()
        assert zstandard.frame_content_size(body) == -1
        assert plain(Codec.ZSTD, body) == content


@compressed_codecs
def test_cut_off_anywhere(codec: Codec) -> None:
    body = compressed(codec, bytes(range(256)) * 300)
    cuts = {*range(min(len(body), 200)), *range(0, len(body), 97), len(body) - 1}
    # A xerial stream may end after its header or a block: nothing there says that more should follow.
    whole = {len(XERIAL_HEADER)}
    if codec is Codec.SNAPPY:
        position = len(XERIAL_HEADER)
        while position < len(body):
            position += 4 + struct.unpack_from(">i", body, position)[0]
            whole.add(position)
        cuts -= whole
    for cut in cuts:
        with pytest.raises(BrokenBatchError):
            plain(codec, body[:cut])


@compressed_codecs
def test_other_bytes_behind_the_stream(codec: Codec) -> None:
    body = compressed(codec, b"records" * 100)
    for tail in (b"\x00", b"\xff" * 9, b"garbage that is longer than any header of a stream"):
        with pytest.raises(BrokenBatchError):
            plain(codec, body + tail)


@compressed_codecs
@pytest.mark.parametrize("size", [1000, 200_000])
def test_the_limit_is_exact(codec: Codec, size: int) -> None:
    body = compressed(codec, b"a" * size)
    assert len(plain(codec, body, size)) == size
    for limit in (size - 1, size // 2, 0):
        with pytest.raises(DecompressedSizeError):
            plain(codec, body, limit)


def xerial_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(2**20)))
    return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * 200


def zstd_bomb(*, sized: bool) -> bytes:
    compressor = zstandard.ZstdCompressor(write_content_size=sized)
    stream = compressor.compressobj(size=2**31 if sized else -1)
    zeros = bytes(2**24)
    return b"".join(stream.compress(zeros) for _ in range(128)) + stream.flush()


BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, lambda: gzip.compress(bytes(2**27), 1)),
    "gzip members": (Codec.GZIP, lambda: gzip.compress(bytes(2**20)) * 100),
    "snappy": (Codec.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(bytes(2**27)))),
    "xerial": (Codec.SNAPPY, xerial_bomb),
    "lz4": (Codec.LZ4, lambda: lz4.frame.compress(bytes(2**27), store_size=True)),
    "zstd": (Codec.ZSTD, lambda: zstd_bomb(sized=True)),
    "zstd unsized": (Codec.ZSTD, lambda: zstd_bomb(sized=False)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_stopped_at_the_limit(name: str) -> None:
    codec, build = BOMBS[name]
    with pytest.raises(DecompressedSizeError, match="1000000 bytes"):
        plain(codec, build(), 1_000_000)


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        # A snappy block that claims 4 GiB; the same inside xerial frames.
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20)),
        (Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", 10) + b"\xff\xff\xff\xff\x0fabcde"),
        # Blocks of impossible length, a version nobody wrote yet, a length that is cut off.
        (Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", -1) + b"abc"),
        (Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", 2**31 - 1) + b"abc"),
        (Codec.SNAPPY, XERIAL_MAGIC + struct.pack(">ii", 1, 2)),
        (Codec.SNAPPY, XERIAL_MAGIC + b"\x00\x00"),
        (Codec.SNAPPY, XERIAL_HEADER + b"\x00"),
        (Codec.SNAPPY, b""),
        # A zstd frame of unknown size whose window is 2 TiB; a reserved block; a block that is too large; no frame.
        (Codec.ZSTD, bytes.fromhex("28b52ffd 00 f8 010000")),
        (Codec.ZSTD, bytes.fromhex("28b52ffd 20 01 070000")),
        (Codec.ZSTD, bytes.fromhex("28b52ffd 00 58 f5ffff") + bytes(2**21)),
        (Codec.ZSTD, bytes.fromhex("28b52ffd")),
        (Codec.ZSTD, bytes.fromhex("502a4d18 ffffffff") + bytes(10)),
        (Codec.ZSTD, b""),
        (Codec.GZIP, b""),
        (Codec.LZ4, b""),
        # LZ4 frames of a wrong version and with a wrong header checksum.
        (Codec.LZ4, bytes.fromhex("04224d18 20 40 82 00000000")),
        (Codec.LZ4, bytes.fromhex("04224d18 60 40 83 00000000")),
    ],
)
def test_damaged_streams(codec: Codec, body: bytes) -> None:
    with pytest.raises(BrokenBatchError):
        plain(codec, body)


@compressed_codecs
def test_any_byte_changed_gives_records_or_a_typed_error(codec: Codec) -> None:
    content = bytes(range(256)) * 4 + b"a" * 1000
    body = compressed(codec, content)
    for place in range(len(body)):
        for changed in (0x00, 0x01, 0x7F, 0x80, 0xFF, body[place] ^ 1):
            damaged = body[:place] + bytes([changed]) + body[place + 1 :]
            try:
                assert len(plain(codec, damaged, 100_000)) <= 100_000
            except RecordFormatError:
                continue


@given(
    st.sampled_from(COMPRESSED),
    st.binary(max_size=60),
    st.sampled_from([b"", b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", XERIAL_HEADER]),
)
def test_noise_gives_records_or_a_typed_error(codec: Codec, noise: bytes, start: bytes) -> None:
    try:
        assert len(plain(codec, start + noise, 10_000)) <= 10_000
    except RecordFormatError:
        return


def test_the_gzip_checksum_counts() -> None:
    body = bytearray(gzip.compress(b"records"))
    body[-8:-4] = struct.pack("<I", zlib.crc32(b"others"))
    with pytest.raises(BrokenBatchError, match="gzip"):
        plain(Codec.GZIP, bytes(body))
