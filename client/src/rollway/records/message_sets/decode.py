"""Message sets to columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rollway.records.batch import Buffer, Codec, TimestampType
from rollway.records.columns import BinaryColumnBuilder, RecordColumns
from rollway.records.compression import decompress
from rollway.records.decode import DECOMPRESSED_BYTES_MAX
from rollway.records.errors import BrokenBatchError, BrokenRecordError
from rollway.records.message_sets.lz4_of_magic_0 import with_right_checksum
from rollway.records.message_sets.messages import CODEC_MASK, Message, read_messages


@dataclass(frozen=True, slots=True)
class DecodedMessages:
    """Messages of a set that belong together: the messages of one wrapper, or plain ones in a row that are alike.

    Offsets are absolute. Timestamps are -1 with magic 0. With log append time each has the timestamp of its wrapper.
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
    """Yield the messages of a set in order, wrappers unpacked, every CRC checked. A partial last message is left out.

    The limit is for all wrappers of the set together. The columns are copies, independent of the buffer.

    Raises:
        BrokenBatchError: a size, a CRC or a compressed stream is wrong, or a wrapper ends in a partial message.
        BrokenRecordError: key and value do not fill a message, or a wrapper holds no messages, messages of another
            magic, or another wrapper.
        UnsupportedMagicError: a magic is neither 0 nor 1.
        UnknownCodecError: a codec is none of gzip, snappy and lz4.
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
    """Return inner messages with the fields of their wrapper: absolute offsets, the time of the append (spec A10)."""
    offsets, timestamps = inner.columns.offsets, inner.columns.timestamps
    # Some producers send 0 for the wrapper's offset; then only the inner offsets are known.
    if wrapper.magic > 0 and wrapper.offset != 0:
        offsets = offsets + (wrapper.offset - int(offsets[-1]))
    if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamps = np.full(len(inner), wrapper.timestamp, dtype=np.int64)
    columns = replace(inner.columns, offsets=offsets, timestamps=timestamps)
    return replace(inner, timestamp_type=wrapper.timestamp_type, columns=columns)


class _Messages:
    """Messages of one buffer on their way into columns. Only numbers and bytes, so a small one takes little memory."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._magic = 0
        self._timestamp_type = TimestampType.CREATE_TIME
        self._offsets, self._timestamps = array("q"), array("q")
        self._keys, self._values = BinaryColumnBuilder(), BinaryColumnBuilder()

    def add(self, message: Message) -> None:
        """Add a message. The first one decides which messages are like it."""
        if not self._offsets:
            self._magic, self._timestamp_type = message.magic, message.timestamp_type
        offset, _, _, timestamp, key_at, key_length, value_at, value_length = message
        self._offsets.append(offset)
        self._timestamps.append(timestamp)
        self._keys.append(None if key_length < 0 else self._content[key_at : key_at + key_length])
        self._values.append(None if value_length < 0 else self._content[value_at : value_at + value_length])

    def is_like(self, message: Message) -> bool:
        """Return whether the message has the magic and the kind of timestamp of the messages added so far."""
        return (self._magic, self._timestamp_type) == (message.magic, message.timestamp_type)

    def decoded(self, codec: Codec) -> DecodedMessages:
        """Return all messages as columns. No message can be added afterwards."""
        columns = RecordColumns(
            np.frombuffer(self._offsets, dtype=np.int64),
            np.frombuffer(self._timestamps, dtype=np.int64),
            self._keys.column(),
            self._values.column(),
        )
        return DecodedMessages(self._magic, codec, self._timestamp_type, columns)

    @property
    def size_bytes(self) -> int:
        """The whole buffer."""
        return len(self._content)

    def __len__(self) -> int:
        return len(self._offsets)
