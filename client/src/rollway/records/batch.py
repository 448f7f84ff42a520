"""The record batch of format 2: its header, its place in a buffer, its checksum.

All integers are big-endian (docs/reference/on-disk-format.md#record-batch-log)::

     0  baseOffset            int64    given by the log
     8  batchLength           int32    bytes after this field
    12  partitionLeaderEpoch  int32    given by the log
    16  magic                 int8     2
    17  crc                   uint32   CRC-32C of everything from byte 21 to the end
    21  attributes            int16    bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
    23  lastOffsetDelta       int32
    27  baseTimestamp         int64    ms; the delete horizon when bit 6 is set
    35  maxTimestamp          int64    ms
    43  producerId            int64    -1 without one
    51  producerEpoch         int16
    53  baseSequence          int32
    57  recordsCount          int32
    61  records               compressed as a whole, when a codec is named

The fields that the log sets lie before the checksum's range, so stamping a batch does not touch its payload (spec E16).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from rollway.records.errors import BrokenBatchError, UnknownCodecError, UnsupportedMagicError

HEADER_BYTES = 61
"""Size of a batch without records."""

LOG_OVERHEAD_BYTES = 12
"""The bytes that ``batchLength`` does not count: the base offset and the length itself."""

MAGIC = 2

_HEADER = struct.Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_new_tuple = tuple.__new__
_LENGTH_FIELD = 1
_MAGIC_FIELD = 3
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_CRC = struct.Struct(">I")
_ATTRIBUTES_AT = 21

_CODEC_MASK = 0x07
_TIMESTAMP_TYPE_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_DELETE_HORIZON_BIT = 0x40

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """How the records of a batch are compressed: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """The clock of the timestamps, the producer's or the log's: bit 3 of the attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, as numbers. Timestamps are ms since 1970; -1 is absent, as on the wire.

    Example: base offset 50 and last offset delta 2: the records have the offsets 50 to 52, the next batch begins at 53.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record, inclusive. Compaction keeps it after that record is gone."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset where the next batch may begin."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The codec of the records.

        Raises:
            UnknownCodecError: bits 0-2 are 5, 6 or 7.
        """
        number = self.attributes & _CODEC_MASK
        if number > Codec.ZSTD:
            raise UnknownCodecError(f"no compression codec has the number {number}")
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & _TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether compaction wrote the batch. The base timestamp is then the time when its tombstones may go."""
        return bool(self.attributes & _DELETE_HORIZON_BIT)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch that begins at ``position``.

    Checks that 61 bytes are there, that the length is possible and that the magic is 2. The batch itself may reach
    beyond the buffer, and the CRC is not checked.

    Raises:
        BrokenBatchError: there are fewer than 61 bytes, or the length is below that of the smallest batch.
        UnsupportedMagicError: the magic is not 2.
    """
    try:
        header: BatchHeader = _new_tuple(BatchHeader, _unpack_header(buffer, position))
        if header[_MAGIC_FIELD] == MAGIC and header[_LENGTH_FIELD] >= HEADER_BYTES - LOG_OVERHEAD_BYTES:
            return header
    except struct.error:
        pass
    raise _header_error(buffer, position)


def _header_error(buffer: Buffer, position: int) -> BrokenBatchError | UnsupportedMagicError:
    """Return the error of a header. A wrong magic comes first: the bytes are then of another format."""
    available = len(buffer) - position
    if available > _MAGIC_AT and buffer[position + _MAGIC_AT] != MAGIC:
        magic = buffer[position + _MAGIC_AT]
        return UnsupportedMagicError(f"magic {magic} at byte {position}; only 2 is supported", is_known=magic < MAGIC)
    if available < HEADER_BYTES:
        return BrokenBatchError(f"{available} bytes at byte {position}; a batch has at least {HEADER_BYTES}")
    header = BatchHeader._make(_unpack_header(buffer, position))
    return BrokenBatchError(
        f"the batch at byte {position} says it has {header.batch_length} bytes after its length; "
        f"it needs at least {HEADER_BYTES - LOG_OVERHEAD_BYTES}"
    )


class RecordBatch:
    """One whole batch in a buffer. It copies nothing, so the buffer must not change.

    Thread: any, as long as no thread writes to the buffer.

    Raises:
        BrokenBatchError: the buffer is not exactly as long as the batch in it.
        UnsupportedMagicError: the magic is not 2.
    """

    __slots__ = ("buffer", "header")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = memoryview(buffer).cast("B")
        self.header = parse_header(self.buffer)
        if self.header.size_bytes != len(self.buffer):
            raise BrokenBatchError(f"a batch of {self.header.size_bytes} bytes in {len(self.buffer)} bytes")

    @property
    def body(self) -> memoryview:
        """The records, still compressed."""
        return self.buffer[HEADER_BYTES:]

    def check_crc(self) -> None:
        """Compare the CRC-32C of bytes 21 to the end with the one in the header.

        Raises:
            BrokenBatchError: they differ.
        """
        checksum = crc32c(self.buffer[_ATTRIBUTES_AT:])
        if checksum != self.header.crc:
            raise BrokenBatchError(f"the CRC is {checksum:#010x}, the header says {self.header.crc:#010x}")

    def __repr__(self) -> str:
        return f"RecordBatch({self.header!r})"


def split_batches(buffer: Buffer) -> list[RecordBatch]:
    """Cut a buffer of batches laid end to end; whole batches to the last byte, or an error.

    An empty buffer has no batches. The CRCs are not checked.

    Raises:
        BrokenBatchError: a batch is broken or cut off; the message has its byte position.
        UnsupportedMagicError: a magic is not 2.
    """
    view = memoryview(buffer).cast("B")
    batches: list[RecordBatch] = []
    position = 0
    while position < len(view):
        header = parse_header(view, position)
        end = position + header.size_bytes
        if end > len(view):
            raise BrokenBatchError(
                f"the batch at byte {position} is {header.size_bytes} bytes long, but {len(view) - position} are there"
            )
        batches.append(RecordBatch(view[position:end]))
        position = end
    return batches


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at ``position``: bytes 0-7 and 12-15 (spec E16).

    The CRC covers neither, so the batch stays valid. Takes the same time for any batch.
    """
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def attributes_of(codec: Codec, timestamp_type: TimestampType, *, transactional: bool, control: bool) -> int:
    """Return the attributes field for these properties."""
    attributes = int(codec)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= _TIMESTAMP_TYPE_BIT
    if transactional:
        attributes |= _TRANSACTIONAL_BIT
    if control:
        attributes |= _CONTROL_BIT
    return attributes


def codec_changed(header: BatchHeader, codec: Codec) -> BatchHeader:
    """Return the same header with another codec."""
    return header._replace(attributes=header.attributes & ~_CODEC_MASK | codec)


def build_head(header: BatchHeader, records: Buffer) -> bytes:
    """Return ``header`` as it stands before ``records``: with its length, magic and CRC computed.

    Raises:
        ValueError: a number does not fit its field.
    """
    batch_length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(records)
    try:
        head = bytearray(_HEADER.pack(*header._replace(batch_length=batch_length, magic=MAGIC, crc=0)))
    except struct.error as error:
        raise ValueError(f"a number does not fit its field of the header: {error}") from error
    checksum = crc32c(records, crc32c(memoryview(head)[_ATTRIBUTES_AT:]))
    _CRC.pack_into(head, _CRC_AT, checksum)
    return bytes(head)


def build_batch(header: BatchHeader, records: Buffer) -> bytes:
    """Return a whole batch: ``build_head``, then ``records``.

    Raises:
        ValueError: a number does not fit its field.
    """
    return b"".join((build_head(header, records), records))
