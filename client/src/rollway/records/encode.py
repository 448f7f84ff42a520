"""Columns to record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rollway.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
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
from rollway.records.section_lists import list_section
from rollway.records.section_writer import payload_sizes, record_section, record_sizes

# What batchLength, an int32, leaves for records.
_SECTION_BYTES_MAX = 2**31 - 1 - (HEADER_BYTES - LOG_OVERHEAD_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class RecordSection:
    """The records of a batch, encoded and compressed, without its header.

    A batch is ``head(...)`` followed by ``data``: sent as two pieces, nothing is copied.
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
        """The header of 61 bytes, checksum included.

        Raises:
            ValueError: a number that does not fit its field.
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
    """All records as they lie in one batch, for who chooses the header later, or sends it as a piece of its own.

    Raises:
        ValueError: no records, a level the codec does not have, or more than 2 GiB.
    """
    if len(columns) == 0:
        raise ValueError("a batch holds at least one record")
    if columns.keys.size_bytes + columns.values.size_bytes > _SECTION_BYTES_MAX:
        raise _too_large()
    data = compress(codec, record_section(columns), level)
    if len(data) > _SECTION_BYTES_MAX:
        raise _too_large()
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
    """One batch of all records, numbered 0 to n - 1 from ``base_offset``; ``columns.offsets`` is not looked at.

    The bytes are those of Kafka's own clients. The base timestamp is the first record's, the maximum is worked out.
    With ``TimestampType.LOG_APPEND_TIME`` readers report that maximum for every record. ``level`` is the codec's own.

    Raises:
        ValueError: no records, a level the codec does not have, a number that does not
            fit its field, or more than 2 GiB.
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
    """``encode_batch`` of records that are lists, uncompressed: below some thousand of them quicker than columns.

    Raises:
        ValueError: no records, lists of different lengths, a header name with a lone surrogate, or more than 2 GiB.
    """
    count = len(values)
    if count == 0:
        raise ValueError("a batch holds at least one record")
    if len(timestamps) != count or len(keys) != count or (headers is not None and len(headers) != count):
        raise ValueError("lists of different lengths")
    section = list_section(timestamps, keys, values, headers)
    if len(section) > _SECTION_BYTES_MAX:
        raise _too_large()
    return build_batch(
        BatchHeader(0, 0, 0, MAGIC, 0, 0, count - 1, timestamps[0], max(timestamps), -1, -1, -1, count), section
    )


def _too_large() -> ValueError:
    return ValueError(f"a batch holds at most {_SECTION_BYTES_MAX} bytes of records; use encode_batches")


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
    """As many batches as it takes for each to stay within ``batch_bytes_max``, with consecutive offsets.

    Greedy: a batch takes records while they fit uncompressed. A record that alone is larger gets a batch of its own.
    A batch that only compression makes too large stays uncompressed.
    No records make no batches. A base sequence at or above 0 goes on from batch to batch, and wraps to 0 at 2^31.

    Raises:
        ValueError: as ``encode_batch``; no records are no error.
    """
    batches: list[bytes] = []
    start = 0
    for end in _batch_ends(columns, batch_bytes_max - HEADER_BYTES):
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


def _batch_ends(columns: RecordColumns, section_bytes_max: int) -> Iterator[int]:
    """Where each batch ends, when none but those of a single record may exceed ``section_bytes_max``."""
    payload = payload_sizes(columns)
    # A length and two deltas, a byte each: few records more than that fit, so the exact sizes of few are computed.
    least_ends = np.cumsum(payload + 3)
    start = 0
    while start < len(columns):
        used = int(least_ends[start - 1]) if start else 0
        candidate_end = int(np.searchsorted(least_ends, used + section_bytes_max, side="right"))
        sizes = record_sizes(payload[start:candidate_end], columns.timestamps[start:candidate_end])
        start += max(1, int(np.searchsorted(np.cumsum(sizes), section_bytes_max, side="right")))
        yield start
