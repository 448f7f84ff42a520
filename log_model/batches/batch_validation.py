"""Validation of a produce body, before its append is queued.

Stateless and thread-safe, so it runs beside other appends. ``PartitionLog.append`` checks everything that depends on
the state of the log: offsets, sequences, space in the segment.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from log_model.batches.recompression import rebuild, recompress, stored_codec
from log_model.config import TopicConfig
from log_model.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordError,
    RecordListTooLargeError,
    RefusedError,
    UnsupportedCodecError,
)
from log_model.offsets import NO_TIMESTAMP, LeaderEpoch, Offset
from rollway.records import (
    HEADER_BYTES,
    BatchHeader,
    BrokenRecordError,
    Codec,
    DecompressedSizeError,
    RecordBatch,
    RecordFormatError,
    RecordSection,
    TimestampType,
    UnknownCodecError,
    UnsupportedMagicError,
    decode_batch,
    decompress_batch,
    parse_header,
)
from rollway.records.columns import BoolArray, Int64Array, RecordColumns
from rollway.records.compression import find_lz4_obstacle
from rollway.records.decode import COLUMNS_RATIO_MAX
from rollway.records.sections.reader import find_facts

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
RECORD_ERRORS_MAX = 100
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_LEAVES_UNCOMPRESSED = frozenset({"producer", "uncompressed"})
_CODEC_MASK = 0x07
_LOG_APPEND_TIME_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10

# Base offset, length, leader epoch.
_pack_place = struct.Struct(">qii").pack_into

_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43
# In the second of the two attribute bytes.
TRANSACTIONAL_BIT = 0x10


class ValidBatch:
    """A batch that may be written: a copy of its 61 header bytes, to be stamped, and its records, never copied.

    ``header`` is the producer's. ``max_timestamp`` is the largest timestamp of its records, ``NO_TIMESTAMP`` if none
    has one.
    """

    __slots__ = ("body", "head", "header", "max_timestamp", "size_bytes")

    def __init__(self, head: bytearray, body: memoryview, header: BatchHeader, max_timestamp: int) -> None:
        self.head = head
        self.body = body
        self.header = header
        self.max_timestamp = max_timestamp
        self.size_bytes = HEADER_BYTES + len(body)

    @property
    def last_offset(self) -> Offset:
        """The offset of the last record, once the batch is stamped."""
        (base_offset,) = struct.unpack_from(">q", self.head, 0)
        return Offset(base_offset + self.header.last_offset_delta)

    def stamp(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Set base offset and leader epoch: bytes 0-7 and 12-15, which the CRC does not cover (spec E16)."""
        _pack_place(self.head, 0, base_offset, self.header.batch_length, leader_epoch)

    def set_log_append_time(self, now_ms: int) -> None:
        """Make every record report ``now_ms``, and compute the CRC again (spec E15)."""
        (attributes,) = struct.unpack_from(">h", self.head, _ATTRIBUTES_AT)
        struct.pack_into(">h", self.head, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME_BIT)
        self.set_max_timestamp(now_ms)

    def set_producer(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool = False
    ) -> None:
        """Assign the batch to an idempotent producer or to its transaction; compute the CRC again (spec E19)."""
        if is_transactional:
            self.head[_ATTRIBUTES_AT + 1] |= TRANSACTIONAL_BIT
        struct.pack_into(">qhi", self.head, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
        self._set_crc()
        self.header = parse_header(self.head)

    def set_transactional(self) -> None:
        """Make the batch part of its producer's transaction; compute the CRC again (spec E22)."""
        (attributes,) = struct.unpack_from(">h", self.head, _ATTRIBUTES_AT)
        struct.pack_into(">h", self.head, _ATTRIBUTES_AT, attributes | _TRANSACTIONAL_BIT)
        self._set_crc()
        self.header = parse_header(self.head)

    def set_max_timestamp(self, max_timestamp: int) -> None:
        """Replace the maximum timestamp, and compute the CRC again (spec E15)."""
        struct.pack_into(">q", self.head, _MAX_TIMESTAMP_AT, max_timestamp)
        self.max_timestamp = max_timestamp
        self._set_crc()

    def _set_crc(self) -> None:
        checksum = crc32c(self.body, crc32c(memoryview(self.head)[_ATTRIBUTES_AT:]))
        struct.pack_into(">I", self.head, _CRC_AT, checksum)


def validate_batches(
    buffer: bytes | bytearray | memoryview,
    config: TopicConfig,
    now_ms: int,
    *,
    ignore_partial_tail: bool = False,
) -> list[ValidBatch]:
    """Check every batch of a produce body; return all of them or raise (spec E9-E11, E13-E15).

    An empty buffer gives no batches. With ``ignore_partial_tail`` a last batch that is cut off is left out, as Kafka's
    log does with its own input; otherwise it is an error. The batches refer to ``buffer``, which must not change until
    they are written.

    Raises:
        CorruptBatchError: not whole batches, a wrong CRC, or a magic that no format has.
        InvalidRecordError: counts, offsets, attributes or records that break a rule; names the records.
        InvalidTimestampError: a timestamp outside ``message.timestamp.{before,after}.max.ms``.
        UnsupportedCodecError, MessageTooLargeError, RecordListTooLargeError.

    Thread: any; reads ``buffer`` only.
    """
    view = memoryview(buffer).cast("B")
    batches: list[ValidBatch] = []
    position = 0
    while position < len(view):
        try:
            header = parse_header(view, position)
        except RecordFormatError as error:
            if ignore_partial_tail and batches and len(view) - position < HEADER_BYTES:
                break
            raise refusal(error, f"batch at byte {position}: {error}") from error
        end = position + header.size_bytes
        if end > len(view):
            if ignore_partial_tail and batches:
                break
            raise CorruptBatchError(
                f"the batch at byte {position} is {header.size_bytes} bytes long, but {len(view) - position} follow"
            )
        try:
            batches.append(_validate_batch(view, position, header, config, now_ms))
        except RecordFormatError as error:
            raise refusal(error, f"batch at byte {position}: {error}") from error
        position = end
    total_bytes = sum([batch.size_bytes for batch in batches])
    if total_bytes > config.segment_bytes:
        raise RecordListTooLargeError(
            f"{total_bytes} bytes of batches do not fit into a segment of {config.segment_bytes} bytes"
        )
    return batches


def allows_records(config: TopicConfig, timestamps: Sequence[int], keys: Sequence[bytes | None], now_ms: int) -> bool:
    """Return whether every record of a batch obeys the topic's rules; ``validate_batches`` names the records at fault.

    Thread: any.
    """
    return allows_range(config, min(timestamps), max(timestamps), now_ms, has_null_key=None in keys)


def allows_range(config: TopicConfig, oldest: int, newest: int, now_ms: int, *, has_null_key: bool) -> bool:
    """Return ``allows_records`` for a batch whose smallest and largest timestamps are ``oldest`` and ``newest``."""
    if config.compacts and has_null_key:
        return False
    if config.message_timestamp_type != "CreateTime":
        return True
    least, greatest = _timestamp_range(config, now_ms)
    return least <= oldest and newest <= greatest


def own_batch(batch: bytes) -> ValidBatch:
    """Wrap a batch that the service encoded from records that the topic ``allows_records``, within its size limit.

    The batch is not decoded again: ``validate_batches`` would find no fault.
    """
    header = parse_header(batch)
    return ValidBatch(bytearray(batch[:HEADER_BYTES]), memoryview(batch)[HEADER_BYTES:], header, header.max_timestamp)


def own_section(section: RecordSection) -> ValidBatch:
    """Wrap records that have no header yet; otherwise as ``own_batch``."""
    head = section.head()
    return ValidBatch(bytearray(head), memoryview(section.data), parse_header(head), section.max_timestamp)


def refusal(error: RecordFormatError, message: str) -> RefusedError:
    """Return the error that refuses record bytes with this format error."""
    if isinstance(error, BrokenRecordError):
        return InvalidRecordError(message, [RecordError(index, text) for index, text in error.record_errors])
    if isinstance(error, UnknownCodecError):
        return UnsupportedCodecError(message)
    if isinstance(error, UnsupportedMagicError):
        # An older format, or none at all: brokers make the same difference.
        return InvalidRecordError(message) if error.is_known else CorruptBatchError(message)
    if isinstance(error, DecompressedSizeError):
        return MessageTooLargeError(message)
    return CorruptBatchError(message)


def _validate_batch(
    view: memoryview, position: int, header: BatchHeader, config: TopicConfig, now_ms: int
) -> ValidBatch:
    """Check the batch at ``position``, which is whole and has this header."""
    end = position + header.size_bytes
    if end - position > config.max_message_bytes:
        raise MessageTooLargeError(
            f"the batch at byte {position} has {header.size_bytes} bytes; "
            f"max.message.bytes is {config.max_message_bytes}"
        )
    whole = view[position:end]
    if crc32c(whole[_ATTRIBUTES_AT:]) != header.crc:
        RecordBatch(whole).check_crc()
    _check_header(header, config, position)
    if header.attributes & _LOG_APPEND_TIME_BIT:
        whole = _with_create_time(whole)
        header = parse_header(whole)
    if header.attributes & _CODEC_MASK or config.compression_type not in _LEAVES_UNCOMPRESSED:
        return _validate_compressed(RecordBatch(whole), config, now_ms, position)
    body = whole[HEADER_BYTES:]
    checked = _check_records(whole, body, header, config, now_ms, position)
    return _valid(whole[:HEADER_BYTES], body, header, checked.max_timestamp)


def _with_create_time(whole: memoryview) -> memoryview:
    """Return a copy of the batch whose records report their own timestamps, not the append time of the batch."""
    copy = bytearray(whole)
    copy[_ATTRIBUTES_AT + 1] &= ~_LOG_APPEND_TIME_BIT
    struct.pack_into(">I", copy, _CRC_AT, crc32c(memoryview(copy)[_ATTRIBUTES_AT:]))
    return memoryview(copy)


def _validate_compressed(batch: RecordBatch, config: TopicConfig, now_ms: int, position: int) -> ValidBatch:
    """Check a batch that arrives compressed, or that the topic stores compressed.

    Offset deltas that are not 0, 1, 2, ... are replaced by these, as a broker does where it compresses (spec E12).
    """
    header = batch.header
    _check_codec(batch, config, position)
    section = decompress_batch(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    checked = _check_records(batch.buffer, section, header, config, now_ms, position, may_renumber=True)
    max_timestamp = checked.max_timestamp
    if checked.renumbered is None:
        batch = recompress(batch, section, config)
    else:
        batch = rebuild(header, checked.renumbered, config)
    if batch.header.size_bytes > config.max_message_bytes:
        raise MessageTooLargeError(
            f"the batch at byte {position} has {batch.header.size_bytes} bytes with compression.type "
            f"{config.compression_type}; max.message.bytes is {config.max_message_bytes}"
        )
    return _valid(batch.buffer[:HEADER_BYTES], batch.body, batch.header, max_timestamp)


def _check_codec(batch: RecordBatch, config: TopicConfig, position: int) -> None:
    """Refuse a codec variant that would be stored unchanged and that Java, hence Kafka's tools, cannot decompress."""
    if batch.header.attributes & _CODEC_MASK != Codec.LZ4 or stored_codec(config, Codec.LZ4) is not Codec.LZ4:
        return
    obstacle = find_lz4_obstacle(batch.body)
    if obstacle is not None:
        raise InvalidRecordError(
            f"the batch at byte {position} is compressed as an lz4 frame {obstacle}, which Kafka's Java clients cannot "
            "read. Send frames of independent blocks, or set the topic's compression.type to another codec"
        )


def _valid(head: memoryview, body: memoryview, header: BatchHeader, max_timestamp: int) -> ValidBatch:
    valid = ValidBatch(bytearray(head), body, header, max_timestamp)
    if max_timestamp != header.max_timestamp:
        valid.set_max_timestamp(max_timestamp)
    return valid


def _check_header(header: BatchHeader, config: TopicConfig, position: int) -> None:
    """Check the header fields that a client may set (spec E9, E13)."""
    if (
        header.base_offset == 0
        and 0 < header.record_count == header.last_offset_delta + 1
        and not header.attributes & ~_CODEC_MASK
        and header.producer_id < 0
    ):
        # Nearly all batches take this exit: none of the faults below is possible.
        return
    where = f"the batch at byte {position}"
    if header.base_offset != 0:
        raise InvalidRecordError(f"{where} has base offset {header.base_offset}; a producer sends 0")
    if header.record_count <= 0:
        raise InvalidRecordError(f"{where} says it has {header.record_count} records; it needs at least one")
    if header.last_offset_delta + 1 != header.record_count:
        raise InvalidRecordError(
            f"{where} has {header.record_count} records but last offset delta {header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecordError(f"{where} is a control batch; only the service writes those")
    if header.has_delete_horizon:
        raise InvalidRecordError(f"{where} carries a delete horizon; only compaction writes those")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecordError(f"{where} is transactional and has no producer")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecordError(
            f"{where} has producer id {header.producer_id} with epoch {header.producer_epoch} and "
            f"base sequence {header.base_sequence}; neither may be negative"
        )
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and (
        config.message_timestamp_type != "CreateTime" or header.max_timestamp == NO_TIMESTAMP
    ):
        detail = "a producer does not set the timestamp type to LogAppendTime"
        places = range(min(header.record_count, RECORD_ERRORS_MAX))
        raise InvalidTimestampError(f"{where}: {detail}", [RecordError(place, detail) for place in places])


class _Checked(NamedTuple):
    """The result of the check of a batch's records: their largest timestamp, and the records as columns if their offset
    deltas must be replaced."""

    max_timestamp: int
    renumbered: RecordColumns | None = None


def _check_records(
    whole: memoryview,
    section: bytes | memoryview,
    header: BatchHeader,
    config: TopicConfig,
    now_ms: int,
    position: int,
    *,
    may_renumber: bool = False,
) -> _Checked:
    """Check every record of the batch ``whole`` (spec E14).

    Records are decoded to columns only if one of them may break a rule, to name the records at fault. With
    ``may_renumber`` offset deltas need not be 0, 1, 2, ...
    """
    is_compressed = header.attributes & _CODEC_MASK
    facts = find_facts(
        section, header.record_count, COLUMNS_RATIO_MAX * DECOMPRESSED_BYTES_MAX if is_compressed else None
    )
    if facts is not None:
        oldest = header.base_timestamp + facts.timestamp_delta_min
        newest = header.base_timestamp + facts.timestamp_delta_max
        if _is_in_time(oldest, newest, config, now_ms) and not (facts.has_null_key and config.compacts):
            return _Checked(newest)
    columns = decode_batch(RecordBatch(whole), decompressed_bytes_max=DECOMPRESSED_BYTES_MAX, section=section)
    misplaced = columns.offsets - header.base_offset != np.arange(header.record_count, dtype=np.int64)
    faults = []
    if not may_renumber:
        faults.append(_Fault(misplaced, "the offset delta is not the record's place in the batch"))
    if config.compacts and columns.keys.nulls is not None:
        faults.append(_Fault(columns.keys.nulls, "a compacted topic needs a key"))
    if config.message_timestamp_type == "CreateTime":
        faults.append(_timestamp_fault(columns.timestamps, config, now_ms))
    _raise_faults(faults, f"the batch at byte {position}")
    return _Checked(int(columns.timestamps.max()), columns if misplaced.any() else None)


def _is_in_time(oldest: int, newest: int, config: TopicConfig, now_ms: int) -> bool:
    """Return whether the topic accepts all timestamps in this range; may be false for records without one."""
    if config.message_timestamp_type != "CreateTime":
        return oldest >= _INT64_MIN and newest <= _INT64_MAX
    least, greatest = _timestamp_range(config, now_ms)
    return least <= oldest and newest <= greatest


class _Fault(NamedTuple):
    """A rule, and the records that break it."""

    broken: BoolArray
    message: str
    is_of_timestamp: bool = False


def _timestamp_range(config: TopicConfig, now_ms: int) -> tuple[int, int]:
    # Limits are compared, not differences: subtracting from an extreme timestamp would wrap around.
    return max(now_ms - config.timestamp_before_limit_ms, 0), min(now_ms + config.timestamp_after_limit_ms, 2**63 - 1)


def _timestamp_fault(timestamps: Int64Array, config: TopicConfig, now_ms: int) -> _Fault:
    oldest, newest = _timestamp_range(config, now_ms)
    outside = (timestamps != NO_TIMESTAMP) & ((timestamps < oldest) | (timestamps > newest))
    return _Fault(
        outside, f"the timestamp is outside {oldest} to {newest}, the range the topic accepts now", is_of_timestamp=True
    )


def _raise_faults(faults: Sequence[_Fault], where: str) -> None:
    """Refuse all records that break a rule, each with the first rule it breaks; error 32 if a timestamp is at fault."""
    errors: list[RecordError] = []
    messages: list[str] = []
    known: BoolArray | None = None
    kind: type[InvalidRecordError] = InvalidRecordError
    for fault in faults:
        broken = fault.broken if known is None else fault.broken & ~known
        if not broken.any():
            continue
        known = broken if known is None else known | broken
        errors += _record_errors(broken, fault.message)
        messages.append(fault.message)
        if fault.is_of_timestamp:
            kind = InvalidTimestampError
    if errors:
        errors.sort()
        raise kind(f"{where} has records that are refused: {'; '.join(messages)}", errors[:RECORD_ERRORS_MAX])


def _record_errors(wrong: BoolArray, message: str) -> list[RecordError]:
    return [RecordError(int(index), message) for index in np.flatnonzero(wrong)[:RECORD_ERRORS_MAX]]
