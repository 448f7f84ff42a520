"""Columns to message sets."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

import numpy as np

from rollway.records.batch import Codec, TimestampType
from rollway.records.columns import Int64Array, RecordColumns
from rollway.records.compression import compress
from rollway.records.message_sets.lz4_of_magic_0 import with_wrong_checksum
from rollway.records.message_sets.messages import TIMESTAMP_TYPE_BIT

_ENTRY_HEAD = struct.Struct(">qiI")
_CRC_BYTES = 4
_HEADS = {0: struct.Struct(">bb"), 1: struct.Struct(">bbq")}
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)


def encode_message_set(
    columns: RecordColumns,
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    level: int | None = None,
) -> bytes:
    """Return plain messages, or with a codec one wrapper around all of them; the offsets are those of ``columns``.

    Headers are dropped, because neither magic has them; magic 0 also drops timestamps. With
    ``TimestampType.LOG_APPEND_TIME`` readers report a wrapper's timestamp, the latest, for every record. No records
    make no messages.

    Raises:
        ValueError: the magic is neither 0 nor 1, the codec is zstd or does not have the level, or a message has 2 GiB.
    """
    if magic not in _HEADS:
        raise ValueError(f"a message set has magic 0 or 1, not {magic}")
    if codec is Codec.ZSTD:
        raise ValueError("messages of magic 0 and 1 know no zstd")
    attributes = TIMESTAMP_TYPE_BIT if magic > 0 and timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    if codec is Codec.NONE or not len(columns):
        return b"".join(_messages(columns, columns.offsets, magic, attributes))
    offsets = columns.offsets if magic == 0 else columns.offsets - columns.offsets[0]
    inner = b"".join(_messages(columns, offsets, magic, attributes))
    value = compress(codec, inner, level)
    if codec is Codec.LZ4 and magic == 0:
        value = with_wrong_checksum(bytes(value))
    last_offset, timestamp = int(columns.offsets[-1]), int(columns.timestamps.max())
    return _message(last_offset, magic, attributes | codec, timestamp, None, bytes(value))


def _messages(columns: RecordColumns, offsets: Int64Array, magic: int, attributes: int) -> Iterable[bytes]:
    rows = zip(
        np.asarray(offsets).tolist(),
        columns.timestamps.tolist(),
        columns.keys.to_list(),
        columns.values.to_list(),
        strict=True,
    )
    for offset, timestamp, key, value in rows:
        yield _message(offset, magic, attributes, timestamp, key, value)


def _message(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    head = _HEADS[magic].pack(magic, attributes, *([timestamp] if magic else []))
    try:
        content = b"".join((head, *_sized(key), *_sized(value)))
        return _ENTRY_HEAD.pack(offset, _CRC_BYTES + len(content), zlib.crc32(content)) + content
    except struct.error as error:
        raise ValueError(f"the message of offset {offset} does not fit its fields: {error}") from error


def _sized(data: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if data is None else (_LENGTH.pack(len(data)), data)
