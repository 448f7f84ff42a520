"""Message sets to columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rollway.records.batch import Buffer, Codec, TimestampType
from rollway.records.columns import BinaryColumn, ByteArray, Int64Array, RecordColumns
from rollway.records.compression import decompress
from rollway.records.decode import DECOMPRESSED_BYTES_MAX
from rollway.records.errors import BrokenBatchError, BrokenRecordError
from rollway.records.gather import Ranges, gather
from rollway.records.message_sets.lz4_of_magic_0 import with_right_checksum
from rollway.records.message_sets.messages import CODEC_MASK, Message, read_messages


@dataclass(frozen=True, slots=True)
class DecodedMessages:
    """Messages of a set that belong together: those of one wrapper, or plain ones in a row that are alike.

    Offsets are absolute. Timestamps are -1 with magic 0; with log append time those of a wrapper are the wrapper's own.
    """

    magic: int
    codec: Codec
    timestamp_type: TimestampType
    columns: RecordColumns

    def __len__(self) -> int:
        return len(self.columns)


def decode_message_set(
    buffer: Buffer, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[DecodedMessages]:
    """The messages of a set in order, wrappers unpacked, every CRC checked. A partial last message is left out.

    The limit is for all wrappers of the set together. The columns are copies, independent of the buffer.

    Raises:
        BrokenBatchError: a size, a CRC or a compressed stream is wrong, or a wrapper ends in a partial message.
        BrokenRecordError: key and value do not fill a message, or a wrapper holds none, messages of another magic,
            or another wrapper.
        UnsupportedMagicError: a magic that is neither 0 nor 1.
        UnknownCodecError: a codec that is none of gzip, snappy and lz4.
        DecompressedSizeError: the limit is exceeded.

    Thread: any.
    """
    view = memoryview(buffer).cast("B")
    plain = _Messages(view)
    kind: tuple[int, int] | None = None
    for message in read_messages(view):
        if (message.magic, message.attributes) == kind:
            plain.add(message)
            continue
        codec = message.codec if message.attributes & CODEC_MASK else Codec.NONE
        if len(plain) and (codec is not Codec.NONE or not plain.is_like(message)):
            yield plain.decoded(Codec.NONE)
            plain = _Messages(view)
        if codec is Codec.NONE:
            kind = (message.magic, message.attributes)
            plain.add(message)
            continue
        kind = None
        inner = _unwrap(view, message, codec, decompressed_bytes_max)
        decompressed_bytes_max -= inner.size_bytes
        yield _in_place(inner.decoded(codec), message)
    if len(plain):
        yield plain.decoded(Codec.NONE)


def _unwrap(view: memoryview, wrapper: Message, codec: Codec, decompressed_bytes_max: int) -> _Messages:
    if wrapper.value_length < 0:
        raise BrokenRecordError("a compressed message has no value")
    body = view[wrapper.value_at : wrapper.value_at + wrapper.value_length]
    if codec is Codec.LZ4 and wrapper.magic == 0:
        body = memoryview(with_right_checksum(body))
    content = memoryview(decompress(codec, body, decompressed_bytes_max))
    inner = _Messages(content)
    end = 0
    for message in read_messages(content):
        if message.magic != wrapper.magic or message.attributes & CODEC_MASK:
            raise BrokenRecordError(
                f"a compressed message of magic {wrapper.magic} holds one of magic {message.magic} and codec "
                f"{message.codec.name.lower()}",
                ((len(inner), "inner messages have the magic of their wrapper and are not compressed themselves"),),
            )
        inner.add(message)
        end = message.value_at + max(message.value_length, 0)
    if end != len(content):
        raise BrokenBatchError(f"a compressed message set ends with {len(content) - end} bytes of a partial message")
    if not len(inner):
        raise BrokenRecordError("a compressed message holds no messages")
    return inner


def _in_place(inner: DecodedMessages, wrapper: Message) -> DecodedMessages:
    """Inner messages with what only the wrapper knows: absolute offsets, and the time of the append (spec A10)."""
    offsets, timestamps = inner.columns.offsets, inner.columns.timestamps
    # Some producers send 0 for the wrapper's offset; then the inner ones are all there is.
    if wrapper.magic > 0 and wrapper.offset != 0:
        offsets = offsets + (wrapper.offset - int(offsets[-1]))
    if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamps = np.full(len(inner), wrapper.timestamp, dtype=np.int64)
    columns = replace(inner.columns, offsets=offsets, timestamps=timestamps)
    return replace(inner, timestamp_type=wrapper.timestamp_type, columns=columns)


class _Messages:
    """Messages of one buffer on their way into columns: numbers only, so that many small ones take little memory."""

    def __init__(self, content: memoryview) -> None:
        self._content: ByteArray = np.frombuffer(content, dtype=np.uint8)
        self._magic = 0
        self._timestamp_type = TimestampType.CREATE_TIME
        self._offsets, self._timestamps = array("q"), array("q")
        self._key_starts, self._key_lengths = array("q"), array("q")
        self._value_starts, self._value_lengths = array("q"), array("q")

    def add(self, message: Message) -> None:
        """Take a message; the first says which others are like it."""
        if not self._offsets:
            self._magic, self._timestamp_type = message.magic, message.timestamp_type
        offset, _, _, timestamp, key_at, key_length, value_at, value_length = message
        self._offsets.append(offset)
        self._timestamps.append(timestamp)
        self._key_starts.append(key_at)
        self._key_lengths.append(key_length)
        self._value_starts.append(value_at)
        self._value_lengths.append(value_length)

    def is_like(self, message: Message) -> bool:
        """Whether the message has the magic and the kind of timestamp of those that are here."""
        return (self._magic, self._timestamp_type) == (message.magic, message.timestamp_type)

    def decoded(self, codec: Codec) -> DecodedMessages:
        """All messages as columns."""
        columns = RecordColumns(
            _numbers(self._offsets),
            _numbers(self._timestamps),
            self._gathered(self._key_starts, self._key_lengths),
            self._gathered(self._value_starts, self._value_lengths),
        )
        return DecodedMessages(self._magic, codec, self._timestamp_type, columns)

    def _gathered(self, starts: array[int], lengths: array[int]) -> BinaryColumn:
        return gather(self._content, Ranges(_numbers(starts), _numbers(lengths)))

    @property
    def size_bytes(self) -> int:
        return len(self._content)

    def __len__(self) -> int:
        return len(self._offsets)


def _numbers(numbers: array[int]) -> Int64Array:
    """The same memory as an array of numpy's; nothing can be appended any more."""
    return np.frombuffer(numbers, dtype=np.int64)
