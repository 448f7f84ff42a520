"""The five codecs of a batch's records, with decompression that stops at a limit.

Decompression never trusts the size that a stream claims. Output grows as it is produced. Snappy alone needs its size in
advance, and gets no more than its input can possibly become.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import zstandard

from rollway.records.batch import Buffer, Codec
from rollway.records.errors import BrokenBatchError, DecompressedSizeError

_PIECE_BYTES = 16 * 1024
_FIRST_OUTPUT_BYTES = 64 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_VERSION = 1
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
# The densest element of a snappy block makes 64 bytes out of 3.
_SNAPPY_RATIO_MAX = 22

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BIT = 0x20
_LZ4_DICTIONARY_BIT = 0x01

# As Kafka's own reader: the window of zstd's highest levels. Memory is touched only as far as output reaches.
_ZSTD_WINDOW_BYTES_MAX = 1 << 27
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
_ZSTD_SKIPPABLE_MAGICS = range(0x184D2A50, 0x184D2A60)

_LEVELS = {Codec.GZIP: range(10), Codec.LZ4: range(-16, 18), Codec.ZSTD: range(-(1 << 17), 23)}


def compress(codec: Codec, records: Buffer, level: int | None = None) -> Buffer:
    """Compress the record section of a batch so that Kafka's own clients can read it.

    gzip: one member. snappy: xerial frames of 32 KiB blocks. lz4: a frame of independent 64 KiB blocks. zstd: a frame.
    ``level`` is the codec's own, its default if absent.

    Raises:
        ValueError: the codec does not have the level.
    """
    if level is not None and level not in _LEVELS.get(codec, ()):
        raise ValueError(f"{codec.name.lower()} has no compression level {level}")
    match codec:
        case Codec.NONE:
            return records
        case Codec.GZIP:
            compressor = zlib.compressobj(-1 if level is None else level, wbits=31)
            return compressor.compress(records) + compressor.flush()
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(records))
        case Codec.LZ4:
            compressed: bytes = lz4.frame.compress(
                records,
                compression_level=0 if level is None else level,
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                store_size=False,
            )
            return compressed
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=3 if level is None else level).compress(records)


def decompress(codec: Codec, body: memoryview, decompressed_bytes_max: int) -> bytes | memoryview:
    """Decompress the record section of a batch, to at most ``decompressed_bytes_max``.

    Takes memory for the bytes that come out, not for the size that the stream claims.

    Raises:
        BrokenBatchError: the stream is damaged, cut off, or followed by other bytes.
        DecompressedSizeError: there are more bytes than the limit.
    """
    if codec is Codec.NONE:
        return body
    return _DECOMPRESSORS[codec](body, decompressed_bytes_max)


class _Output:
    """The output of a decompressor, and how much it may produce next."""

    def __init__(self, input_bytes: int, bytes_max: int) -> None:
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._bytes_max = bytes_max
        self._step_bytes = max(_FIRST_OUTPUT_BYTES, 4 * input_bytes)

    @property
    def allowance_bytes(self) -> int:
        """The bytes to ask for next: at most one byte beyond the limit, to learn that there are more."""
        return min(self._step_bytes, self._bytes_max - self._size_bytes + 1)

    def add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size_bytes += len(part)
        self._step_bytes = max(self._step_bytes, self._size_bytes)
        if self._size_bytes > self._bytes_max:
            raise DecompressedSizeError(f"decompressed, the records are larger than {self._bytes_max} bytes")

    def joined(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


def _decompress_gzip(body: memoryview, bytes_max: int) -> bytes:
    """Decompress one gzip member or more, end to end."""
    output = _Output(len(body), bytes_max)
    position = 0
    try:
        while position < len(body) or position == 0:
            member = zlib.decompressobj(wbits=31)
            # In pieces, because zlib copies the input behind a member at the end of the member.
            while not member.eof:
                piece = member.unconsumed_tail
                if not piece:
                    piece = bytes(body[position : position + _PIECE_BYTES])
                    position += len(piece)
                    if not piece:
                        raise BrokenBatchError("the gzip stream is cut off")
                output.add(member.decompress(piece, output.allowance_bytes))
            position -= len(member.unused_data)
    except zlib.error as error:
        raise BrokenBatchError(f"the gzip stream is damaged: {error}") from error
    return output.joined()


def _compress_xerial(records: memoryview) -> bytes:
    parts: list[Buffer] = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    for start in range(0, len(records), _XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(records[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(body: memoryview, bytes_max: int) -> bytes:
    """Decompress xerial frames if they begin with their magic, otherwise one raw block, as Kafka's readers do."""
    output = _Output(len(body), bytes_max)
    if body[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        output.add(_decompress_snappy_block(body, bytes_max))
        return output.joined()
    position = 0
    while position < len(body):
        if body[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position = _skip_xerial_header(body, position)
            continue
        if position + _BLOCK_LENGTH.size > len(body):
            raise BrokenBatchError("the snappy stream is cut off")
        (length,) = _BLOCK_LENGTH.unpack_from(body, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(body) - position:
            raise BrokenBatchError(f"a snappy block of {length} bytes where {len(body) - position} are left")
        output.add(_decompress_snappy_block(body[position : position + length], output.allowance_bytes - 1))
        position += length
    return output.joined()


def _skip_xerial_header(body: memoryview, position: int) -> int:
    if position + _XERIAL_HEADER.size > len(body):
        raise BrokenBatchError("the snappy stream is cut off")
    _, _, compatible_version = _XERIAL_HEADER.unpack_from(body, position)
    if compatible_version != _XERIAL_VERSION:
        raise BrokenBatchError(f"the snappy stream needs a reader of version {compatible_version}")
    return position + _XERIAL_HEADER.size


def _decompress_snappy_block(block: memoryview, bytes_max: int) -> bytes:
    try:
        claimed_bytes = cramjam.snappy.decompress_raw_len(block)
        if claimed_bytes > _SNAPPY_RATIO_MAX * len(block):
            raise BrokenBatchError(f"a snappy block of {len(block)} bytes claims {claimed_bytes} decompressed")
        if claimed_bytes > bytes_max:
            raise DecompressedSizeError(f"decompressed, the records are larger than {bytes_max} bytes")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise BrokenBatchError(f"the snappy stream is damaged: {error}") from error


def _decompress_lz4(body: memoryview, bytes_max: int) -> bytes:
    """Decompress one LZ4 frame, as Kafka writes it."""
    output = _Output(len(body), bytes_max)
    frame = lz4.frame.LZ4FrameDecompressor()
    piece: Buffer = body
    try:
        while not frame.eof:
            part = frame.decompress(piece, output.allowance_bytes)
            if not part and not frame.eof and (frame.needs_input or not piece):
                raise BrokenBatchError("the lz4 frame is cut off")
            output.add(part)
            piece = b""
    except (RuntimeError, EOFError) as error:
        raise BrokenBatchError(f"the lz4 frame is damaged: {error}") from error
    if frame.unused_data:
        raise BrokenBatchError(f"{len(frame.unused_data)} bytes follow the lz4 frame")
    return output.joined()


def find_lz4_obstacle(body: memoryview) -> str | None:
    """Return why Java's readers, Kafka's among them, cannot decompress an LZ4 frame that is otherwise sound.

    ``None`` if they can, and for bytes that are no LZ4 frame. Example: "of linked blocks", as many encoders do.
    """
    if body[: len(_LZ4_MAGIC)] != _LZ4_MAGIC or len(body) <= len(_LZ4_MAGIC):
        return None
    flags = body[len(_LZ4_MAGIC)]
    if not flags & _LZ4_INDEPENDENT_BIT:
        return "of linked blocks"
    return "that needs a dictionary" if flags & _LZ4_DICTIONARY_BIT else None


def _decompress_zstd(body: memoryview, bytes_max: int) -> bytes:
    """Decompress one zstd frame or more."""
    output = _Output(len(body), bytes_max)
    try:
        _check_zstd_frames(body)
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        with decompressor.stream_reader(body, read_across_frames=True) as reader:
            while part := reader.read(output.allowance_bytes):
                output.add(part)
    except zstandard.ZstdError as error:
        raise BrokenBatchError(f"the zstd stream is damaged: {error}") from error
    return output.joined()


def _check_zstd_frames(body: memoryview) -> None:
    """Walk frames and blocks by their lengths: the stream reader does not notice that a stream is cut off."""
    position = 0
    while position < len(body) or position == 0:
        magic = int.from_bytes(body[position : position + 4], "little")
        if magic in _ZSTD_SKIPPABLE_MAGICS:
            position += 8 + int.from_bytes(body[position + 4 : position + 8], "little")
        else:
            position = _zstd_frame_end(body, position)
        if position > len(body):
            raise BrokenBatchError("the zstd stream is cut off")


def _zstd_frame_end(body: memoryview, position: int) -> int:
    # The largest frame header is 18 bytes.
    head = body[position : position + 18]
    parameters = zstandard.get_frame_parameters(head)
    position += zstandard.frame_header_size(head)
    last = False
    while not last:
        if position + 3 > len(body):
            raise BrokenBatchError("the zstd stream is cut off")
        block = int.from_bytes(body[position : position + 3], "little")
        last = bool(block & 1)
        kind, length = block >> 1 & 3, block >> 3
        if kind == 3 or length > _ZSTD_BLOCK_BYTES_MAX:
            raise BrokenBatchError(f"the zstd stream has no block at byte {position}")
        position += 3 + (1 if kind == 1 else length)
    return position + (4 if parameters.has_checksum else 0)


_DECOMPRESSORS: dict[Codec, Callable[[memoryview, int], bytes]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
