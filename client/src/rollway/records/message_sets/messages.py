"""Message sets of magic 0 and 1, the formats before record batches: their layout, and how to walk them (spec A10, A11).

An entry of a set, big-endian::

     0  offset      int64    given by the log; outside the CRC
     8  size        int32    bytes of the message that follows
    12  crc         uint32   CRC-32 of everything from byte 16 to the end
    16  magic       int8     0 or 1
    17  attributes  int8     bits 0-2 codec, 3 timestamp type (magic 1)
    18  timestamp   int64    ms, -1 for none; magic 1 only
        keyLength   int32    -1 for null
        key
        valueLength int32    -1 for null
        value

A message that names a codec is a wrapper: its value is a message set, compressed as a whole. The wrapper's offset is
that of its last inner message. Inner offsets are absolute with magic 0; with magic 1 they count from 0, and the
wrapper's own gives the position of the last one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from rollway.records.batch import MAGIC as BATCH_MAGIC
from rollway.records.batch import Buffer, Codec, TimestampType
from rollway.records.errors import BrokenBatchError, BrokenRecordError, UnknownCodecError, UnsupportedMagicError

ENTRY_HEAD_BYTES = 12
"""Offset and size, before each message."""

MESSAGE_BYTES_MIN = 14
"""The smallest message of magic 0: no key, no value."""

MESSAGE_OVERHEAD_BYTES = {0: 26, 1: 34}
"""The bytes of an entry beside its key and value, by magic: its head, the message's head, two lengths."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08

_ENTRY_HEAD = struct.Struct(">qi")
_MESSAGE_HEAD = struct.Struct(">Ibb")
_TIMESTAMP = struct.Struct(">q")
_PLAIN_0 = struct.Struct(">qiIbbi")
_PLAIN_1 = struct.Struct(">qiIbbqi")
_LENGTH = struct.Struct(">i")
_MAGIC_AT = 16
_CONTENT_AT = 18
_NO_TIMESTAMP = -1


class SetEntry(NamedTuple):
    """One entry of a message set: where it begins, the offset it carries, and its size with those twelve bytes."""

    position: int
    offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        """Where the next entry begins."""
        return self.position + self.size_bytes


class Message(NamedTuple):
    """The message of one entry, its CRC checked. Key and value are ranges of the buffer, with length -1 for null.

    ``timestamp`` is -1 with magic 0, which has none.
    """

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int

    @property
    def codec(self) -> Codec:
        """The codec of the value, if this is a wrapper.

        Raises:
            UnknownCodecError: magic 0 and 1 have no such codec; zstd is younger.
        """
        number = self.attributes & CODEC_MASK
        if number >= Codec.ZSTD:
            raise UnknownCodecError(f"messages of magic {self.magic} know no compression codec {number}")
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        """The clock of the timestamp. Magic 0 has no timestamp, which counts as CreateTime."""
        appended = self.magic > 0 and self.attributes & TIMESTAMP_TYPE_BIT
        return TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME


def walk_entries(buffer: Buffer, position: int = 0) -> Iterator[SetEntry]:
    """Yield the entries of a message set from ``position`` on, by their sizes alone.

    A partial last entry ends the walk and is no error (spec A11). Wrappers are not unpacked: this is Kafka's shallow
    iterator.

    Raises:
        BrokenBatchError: a size below that of the smallest message.
    """
    end = len(buffer)
    while end - position >= ENTRY_HEAD_BYTES:
        offset, size = _ENTRY_HEAD.unpack_from(buffer, position)
        if size < MESSAGE_BYTES_MIN:
            raise BrokenBatchError(f"the message at byte {position} says it has {size} bytes; it needs at least 14")
        entry = SetEntry(position, offset, ENTRY_HEAD_BYTES + size)
        if entry.end > end:
            return
        yield entry
        position = entry.end


def read_messages(view: memoryview) -> Iterator[Message]:
    """Yield each entry that ``walk_entries`` finds, as ``read_message`` reads it, but in one quick loop.

    Raises:
        BrokenBatchError, UnsupportedMagicError, BrokenRecordError: as ``walk_entries`` and ``read_message``.
    """
    position, end = 0, len(view)
    while end - position >= _PLAIN_0.size + _LENGTH.size:
        # A message that is not sound is read again below, which finds the words for the error.
        offset, size, crc, magic, attributes, key_length = _PLAIN_0.unpack_from(view, position)
        key_at = position + _PLAIN_0.size
        timestamp = _NO_TIMESTAMP
        if magic == 1:
            if end - position < _PLAIN_1.size + _LENGTH.size:
                break
            offset, size, crc, magic, attributes, timestamp, key_length = _PLAIN_1.unpack_from(view, position)
            key_at = position + _PLAIN_1.size
        message_end = position + ENTRY_HEAD_BYTES + size
        value_length_at = key_at + key_length if key_length > 0 else key_at
        value_at = value_length_at + _LENGTH.size
        if magic not in (0, 1) or key_length < -1 or not value_at <= message_end <= end:
            break
        (value_length,) = _LENGTH.unpack_from(view, value_length_at)
        if value_at + max(value_length, 0) != message_end or value_length < -1:
            break
        if crc32(view[position + _MAGIC_AT : message_end]) != crc:
            break
        yield Message(offset, magic, attributes, timestamp, key_at, key_length, value_at, value_length)
        position = message_end
    for entry in walk_entries(view, position):
        yield read_message(view, entry)


def read_message(view: memoryview, entry: SetEntry) -> Message:
    """Return the message of an entry, after checking its CRC and that its fields fill it exactly.

    Raises:
        BrokenBatchError: the CRC is wrong.
        UnsupportedMagicError: the magic is neither 0 nor 1.
        BrokenRecordError: key and value do not fill the message.
    """
    position, offset, end = entry.position, entry.offset, entry.end
    crc, magic, attributes = _MESSAGE_HEAD.unpack_from(view, position + ENTRY_HEAD_BYTES)
    if magic not in (0, 1):
        raise UnsupportedMagicError(
            f"magic {magic} at byte {position}; message sets have magic 0 or 1", is_known=magic == BATCH_MAGIC
        )
    checksum = crc32(view[position + _MAGIC_AT : end])
    if checksum != crc:
        raise BrokenBatchError(f"the CRC of the message at byte {position} is {checksum:#010x}, not {crc:#010x}")
    timestamp = _NO_TIMESTAMP
    at = position + _CONTENT_AT
    if magic == 1:
        if at + _TIMESTAMP.size > end:
            raise _misfit(position)
        (timestamp,) = _TIMESTAMP.unpack_from(view, at)
        at += _TIMESTAMP.size
    key_at, key_length = _read_range(view, at, end, position)
    at = key_at + max(key_length, 0)
    value_at, value_length = _read_range(view, at, end, position)
    if value_at + max(value_length, 0) != end:
        raise _misfit(position)
    return Message(offset, magic, attributes, timestamp, key_at, key_length, value_at, value_length)


def _read_range(view: memoryview, at: int, end: int, position: int) -> tuple[int, int]:
    """Return where the bytes begin whose length stands at ``at``, and that length."""
    if at + _LENGTH.size > end:
        raise _misfit(position)
    (length,) = _LENGTH.unpack_from(view, at)
    at += _LENGTH.size
    if length < -1 or length > end - at:
        raise _misfit(position)
    return at, length


def _misfit(position: int) -> BrokenRecordError:
    return BrokenRecordError(f"key and value do not fill the message at byte {position}")
