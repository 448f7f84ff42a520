"""Which records a fetch means, and reading them from a snapshot. Synchronous: it may touch the disk.

Everything here works on one snapshot, so what it says stays true together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from app.translate import Encoding, RecordDocument, record_documents
from rollway.records import (
    BatchHeader,
    RecordBatch,
    RecordColumns,
    RecordFormatError,
    TimestampType,
    decode_batch,
    split_batches,
)
from storage.errors import CorruptionError
from storage.log_snapshot import FetchData, LogSnapshot
from storage.offsets import LogOffsetMetadata, Offset, Position

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024

TIMESTAMP_TYPE_NAMES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One fetch. Exactly one of ``offset``, ``timestamp`` and ``tail`` is set; absent ends are ``None``."""

    offset: int | Literal["earliest", "latest"] | None = None
    timestamp: int | None = None
    tail: int | None = None
    end_offset: int | None = None
    until: int | None = None
    max_records: int | None = None
    max_bytes: int = 1024 * 1024
    wait_ms: int = 0
    min_bytes: int = 1
    restart_at_earliest: bool = False


class FetchRange(NamedTuple):
    """The offsets ``[start, end)``; ``end`` is ``None`` while the log may still grow into the range."""

    start: Offset
    end: Offset | None


class ReadRecords(NamedTuple):
    """Records for JSON, and where the next fetch begins."""

    documents: list[RecordDocument]
    next_offset: Offset


def start_of(snapshot: LogSnapshot, request: FetchRequest) -> Offset:
    """The first offset the request means; outside the log when it names such a one.

    A timestamp later than every record means the end of what is visible.
    """
    bound = snapshot.high_watermark
    if request.tail is not None:
        return max(snapshot.log_start_offset, Offset(bound - request.tail))
    if request.timestamp is not None:
        found = snapshot.offset_for_timestamp(request.timestamp)
        return bound if found is None else found.offset
    if request.offset == "earliest":
        return snapshot.log_start_offset
    if request.offset == "latest":
        return bound
    assert isinstance(request.offset, int)
    return Offset(request.offset)


def range_of(snapshot: LogSnapshot, request: FetchRequest, start: Offset) -> FetchRange:
    """The range from ``start`` to the nearest end that is known and visible.

    ``until`` ends the range at the first record of the log at or after that time, once there is one.
    """
    bound = snapshot.high_watermark
    ends = [] if request.end_offset is None else [request.end_offset]
    if request.until is not None:
        found = snapshot.offset_for_timestamp(request.until)
        if found is not None:
            ends.append(found.offset)
    end = min(ends, default=bound + 1)
    return FetchRange(start, Offset(max(start, end)) if end <= bound else None)


def read_slices(snapshot: LogSnapshot, wanted: FetchRange, request: FetchRequest) -> FetchData:
    """Whole batches as they lie in the files; the first and the last may reach beyond the range.

    Raises:
        StorageError: as ``LogSnapshot.read``.
    """
    end = _end_of_read(wanted, request)
    if end is not None and end <= wanted.start:
        return FetchData((), wanted.start)
    return _bounded(snapshot, end).read(wanted.start, request.max_bytes)


def read_records(
    snapshot: LogSnapshot, wanted: FetchRange, request: FetchRequest, *, encoding: Encoding, partition: int
) -> ReadRecords:
    """Exactly the records of the range, decoded for JSON, as far as ``max_bytes`` goes.

    Raises:
        CorruptionError: stored bytes are damaged.
        StorageError: as ``LogSnapshot.read``.
    """
    data = read_slices(snapshot, wanted, request)
    end = _end_of_read(wanted, request)
    documents: list[RecordDocument] = []
    next_offset = wanted.start
    left_bytes = DECOMPRESSED_BYTES_MAX
    for batch in _batches(data):
        content = batch.header.size_bytes
        if not batch.header.is_control:
            found, content = _documents_of(batch, wanted.start, end, encoding, partition)
            if documents and content > left_bytes:
                break
            documents += found
        left_bytes -= content
        next_offset = Offset(batch.header.next_offset)
    else:
        next_offset = data.next_offset
    return ReadRecords(documents, next_offset if end is None else min(next_offset, max(end, wanted.start)))


class DecodedBatch(NamedTuple):
    """A batch's records inside a range; none of a control batch. ``content_bytes``: what it takes decompressed."""

    header: BatchHeader
    columns: RecordColumns
    content_bytes: int


class ColumnRead(NamedTuple):
    """The batches of a range, decoded one after the other, and where the next fetch begins after all of them."""

    batches: Iterator[DecodedBatch]
    next_offset: Offset


def read_columns(snapshot: LogSnapshot, wanted: FetchRange, request: FetchRequest) -> ColumnRead:
    """Exactly the records of the range, in columns, as far as ``max_bytes`` of stored bytes goes.

    Raises:
        StorageError: as ``LogSnapshot.read``; CorruptionError also while batches are taken.
    """
    data = read_slices(snapshot, wanted, request)
    end = _end_of_read(wanted, request)
    next_offset = data.next_offset if end is None else min(data.next_offset, max(end, wanted.start))
    return ColumnRead((_decoded_range(batch, wanted.start, end) for batch in _batches(data)), next_offset)


def _decoded_range(batch: RecordBatch, start: Offset, end: Offset | None) -> DecodedBatch:
    columns = _decoded(batch)
    if batch.header.is_control:
        return DecodedBatch(batch.header, columns.slice(0, 0), batch.header.size_bytes)
    first = int(np.searchsorted(columns.offsets, start))
    last = len(columns) if end is None else int(np.searchsorted(columns.offsets, end))
    content_bytes = columns.keys.size_bytes + columns.values.size_bytes
    return DecodedBatch(batch.header, columns.slice(first, max(first, last)), content_bytes)


def read_record(snapshot: LogSnapshot, offset: Offset, *, encoding: Encoding, partition: int) -> RecordDocument | None:
    """The record with this offset; ``None`` when the log has none there, as truncation may leave it."""
    request = FetchRequest(offset=offset, max_bytes=0, max_records=1)
    wanted = FetchRange(offset, Offset(offset + 1))
    documents = read_records(snapshot, wanted, request, encoding=encoding, partition=partition).documents
    return documents[0] if documents else None


def read_value(snapshot: LogSnapshot, offset: Offset) -> tuple[bytes | None, int] | None:
    """A record's value, null or not, and its timestamp; ``None`` when there is no such record."""
    wanted = FetchRange(offset, Offset(offset + 1))
    for batch in _batches(read_slices(snapshot, wanted, FetchRequest(offset=offset, max_bytes=0))):
        columns = _decoded(batch)
        (places,) = np.nonzero(columns.offsets == offset)
        if len(places) and not batch.header.is_control:
            return columns.values[int(places[0])], int(columns.timestamps[places[0]])
    return None


def _end_of_read(wanted: FetchRange, request: FetchRequest) -> Offset | None:
    """Where reading stops: from one record to the next the offset rises by one at least."""
    if request.max_records is None:
        return wanted.end
    counted = Offset(wanted.start + request.max_records)
    return counted if wanted.end is None else min(counted, wanted.end)


def _bounded(snapshot: LogSnapshot, end: Offset | None) -> LogSnapshot:
    """The same log as if it ended, for readers, with the batch that holds the record before ``end``."""
    if end is None or end >= snapshot.high_watermark:
        return snapshot
    place = max(0, bisect_right(snapshot.base_offsets, end - 1) - 1)
    segment = snapshot.segments[place]
    on_bound = segment.base_offset == snapshot.high_watermark_metadata.segment_base_offset
    limit = snapshot.high_watermark_metadata.position if on_bound else segment.size_bytes
    last = segment.locate(Offset(end - 1), limit)
    if last is None:
        bound = LogOffsetMetadata(end, segment.base_offset, Position(limit))
    elif last.header.base_offset >= end:
        bound = LogOffsetMetadata(end, segment.base_offset, last.position)
    else:
        bound = LogOffsetMetadata(Offset(last.header.next_offset), segment.base_offset, last.end)
    stable = min(bound, snapshot.last_stable_metadata, key=lambda place: place.offset)
    return replace(snapshot, high_watermark_metadata=bound, last_stable_metadata=stable)


def _batches(data: FetchData) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    for piece in data.slices:
        try:
            batches += split_batches(piece.read())
        except RecordFormatError as error:
            raise CorruptionError(f"{piece.file.path}: {error}") from error
    return batches


def _decoded(batch: RecordBatch) -> RecordColumns:
    try:
        batch.check_crc()
        return decode_batch(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    except RecordFormatError as error:
        raise CorruptionError(f"the stored batch of offset {batch.header.base_offset} is damaged: {error}") from error


def _documents_of(
    batch: RecordBatch, start: Offset, end: Offset | None, encoding: Encoding, partition: int
) -> tuple[list[RecordDocument], int]:
    """The batch's records inside the range, and how many bytes it holds decompressed."""
    columns = _decoded(batch)
    content = int(columns.keys.lengths().sum() + columns.values.lengths().sum())
    first = int(np.searchsorted(columns.offsets, start))
    last = len(columns) if end is None else int(np.searchsorted(columns.offsets, end))
    documents = record_documents(
        columns.slice(first, max(first, last)),
        encoding=encoding,
        timestamp_type=TIMESTAMP_TYPE_NAMES[batch.header.timestamp_type],
        partition=partition,
    )
    return documents, content
