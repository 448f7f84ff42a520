"""Columns to record batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rollway.records.batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    Codec,
    TimestampType,
    attributes_of,
    build_batch,
    build_head,
)
from rollway.records.columns import RecordColumns
from rollway.records.compression import compress
from rollway.records.sections.writer import fit_records, write_lists, write_section
from rollway.records.sections.writer_py import SECTION_BYTES_MAX, too_large

_RECORD_BYTES_MIN = 7


@dataclass(frozen=True, slots=True, eq=False)
class RecordSection:
    """The records of a batch, encoded and compressed, without its header.

    A batch is ``head(...)`` followed by ``data``. Callers that send them as two pieces copy nothing.
    """

    data: Buffer
    codec: Codec
    record_count: int
    base_timestamp: int
    max_timestamp: int

    def head(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        transactional: bool = False,
    ) -> bytes:
        """Return the header of 61 bytes, checksum included.

        Raises:
            ValueError: a number does not fit its field.
        """
        header = BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            partition_leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes_of(self.codec, timestamp_type, transactional=transactional, control=False),
            last_offset_delta=self.record_count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
        )
        return build_head(header, self.data)

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return HEADER_BYTES + len(self.data)


def encode_section(columns: RecordColumns, *, codec: Codec = Codec.NONE, level: int | None = None) -> RecordSection:
    """Encode all records of one batch, for callers that choose the header later, or send it as a piece of its own.

    Raises:
        ValueError: there are no records, the codec does not have the level, or the records take more than 2 GiB.
    """
    if len(columns) == 0:
        raise ValueError("a batch holds at least one record")
    contents = [columns.keys, columns.values]
    if columns.headers is not None:
        contents += [columns.headers.names, columns.headers.values]
    if sum(content.size_bytes for content in contents) > SECTION_BYTES_MAX:
        raise too_large()
    data = compress(codec, write_section(columns), level)
    if len(data) > SECTION_BYTES_MAX:
        raise too_large()
    timestamps = columns.timestamps
    return RecordSection(data, codec, len(columns), int(timestamps[0]), int(timestamps.max()))


def encode_batch(
    columns: RecordColumns,
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    transactional: bool = False,
    level: int | None = None,
) -> bytes:
    """Return one batch of all records, numbered from ``base_offset`` on; ``columns.offsets`` is not read.

    The bytes are those of Kafka's own clients. The base timestamp is that of the first record, the maximum that of the
    latest one. With ``TimestampType.LOG_APPEND_TIME`` readers report the maximum for every record. ``level`` is the
    codec's own.

    Example: three records and a ``base_offset`` of 50 make a batch with the offsets 50, 51 and 52.

    Raises:
        ValueError: there are no records, the codec does not have the level, a number does not fit its field, or the
            records take more than 2 GiB.
    """
    section = encode_section(columns, codec=codec, level=level)
    head = section.head(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        timestamp_type=timestamp_type,
        transactional=transactional,
    )
    return b"".join((head, section.data))


def encode_lists(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None,
) -> bytes:
    """Return an uncompressed batch of records that are lists, as ``encode_batch`` of columns.

    Raises:
        ValueError: there are no records, the lists differ in length, the name of a header has a lone surrogate that
            stands for no byte, or the records take more than 2 GiB.
    """
    count = len(values)
    if count == 0:
        raise ValueError("a batch holds at least one record")
    if len(timestamps) != count or len(keys) != count or (headers is not None and len(headers) != count):
        raise ValueError("lists of different lengths")
    section = write_lists(timestamps, keys, values, headers)
    if len(section) > SECTION_BYTES_MAX:
        raise too_large()
    return build_batch(
        BatchHeader(0, 0, 0, MAGIC, 0, 0, count - 1, timestamps[0], max(timestamps), -1, -1, -1, count), section
    )


def encode_batches(
    columns: RecordColumns,
    *,
    batch_bytes_max: int,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    transactional: bool = False,
    level: int | None = None,
) -> list[bytes]:
    """Return batches of at most ``batch_bytes_max`` with consecutive offsets.

    A batch takes records while they fit uncompressed. A record that is larger alone gets a batch of its own. A batch
    that is too large only with its codec stays uncompressed. No records make no batches. A base sequence at or above 0
    counts on from batch to batch, and wraps to 0 at 2^31.

    Raises:
        ValueError: as ``encode_batch``; no records are no error.
    """
    batches: list[bytes] = []
    section_bytes_max = max(batch_bytes_max - HEADER_BYTES, 0)
    start = 0
    while start < len(columns):
        candidates = columns.slice(start, min(start + section_bytes_max // _RECORD_BYTES_MIN + 1, len(columns)))
        end = start + max(fit_records(candidates, section_bytes_max), 1)
        encode = partial(
            encode_batch,
            columns.slice(start, end),
            base_offset=base_offset + start,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence if base_sequence < 0 else (base_sequence + start) % 2**31,
            timestamp_type=timestamp_type,
            transactional=transactional,
        )
        batch = encode(codec=codec, level=level)
        if len(batch) > batch_bytes_max and codec is not Codec.NONE:
            batch = min(batch, encode(), key=len)
        batches.append(batch)
        start = end
    return batches
