"""Which records a fetch means, and reading them from a snapshot. Synchronous: it may touch the disk.

Everything here works on one snapshot, so what it says stays true together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

import numpy as np

from app.last_records import start_of_last
from app.record_texts import RecordText, record_texts
from app.translate import Encoding, RecordDocument
from rollway.records import (
    HEADER_BYTES,
    BatchHeader,
    RecordBatch,
    RecordColumns,
    RecordFormatError,
    TimestampType,
    committed_batches,
    decode_batch,
    parse_header,
)
from storage.errors import CorruptionError
from storage.log_snapshot import FetchData, Isolation, LogSnapshot
from storage.offsets import LogOffsetMetadata, Offset, Position

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024

TIMESTAMP_TYPE_NAMES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}

ISOLATIONS = {"read_uncommitted": Isolation.HIGH_WATERMARK, "read_committed": Isolation.LAST_STABLE}
"""Where a read of each kind of consumer ends (spec D12)."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One fetch. Exactly one of ``offset``, ``timestamp`` and ``tail`` is set; absent ends are ``None``."""

    offset: int | Literal["earliest", "latest"] | None = None
    timestamp: int | None = None
    tail: int | None = None
    end_offset: int | None = None
    until: int | None = None
    latest_ms: int | None = None
    """Records after this time say nothing about where the range begins and ends."""
    max_records: int | None = None
    max_bytes: int = 1024 * 1024
    wait_ms: int = 0
    min_bytes: int = 1
    restart_at_earliest: bool = False
    aborted_count_max: int | None = None
    isolation: Isolation = Isolation.HIGH_WATERMARK


class FetchRange(NamedTuple):
    """The offsets ``[start, end)``; ``end`` is ``None`` while the log may still grow into the range."""

    start: Offset
    end: Offset | None


class ReadRecords(NamedTuple):
    """Records for JSON, and where the next fetch begins."""

    documents: list[RecordText]
    next_offset: Offset


class DecodedRecords(NamedTuple):
    """Records for JSON, where they end, and how many bytes they hold; all that were allowed if some were left out."""

    documents: list[RecordText]
    next_offset: Offset
    content_bytes: int


def start_of(snapshot: LogSnapshot, request: FetchRequest) -> Offset:
    """The first offset the request means; outside the log when it names such a one.

    A timestamp later than every record means the end of what is visible.
    """
    bound = snapshot.bound(request.isolation).offset
    if request.tail is not None:
        return start_of_last(snapshot, request.tail, request.isolation)
    if request.timestamp is not None:
        found = snapshot.offset_for_timestamp(request.timestamp, request.isolation, latest=request.latest_ms)
        return bound if found is None else found.offset
    if request.offset == "earliest":
        return snapshot.log_start_offset
    if request.offset == "latest":
        return bound
    assert isinstance(request.offset, int)
    return Offset(request.offset)


def range_of(snapshot: LogSnapshot, request: FetchRequest, start: Offset) -> FetchRange:
    """The range from ``start`` to the nearest end that is known and visible.

    ``until`` ends the range at its first record at or after that time, once there is one; behind what one answer holds
    it is not looked for. A record before ``start`` that is ahead of its time ends nothing: the range would be empty for
    as long as the log has that record.
    """
    bound = snapshot.bound(request.isolation).offset
    ends = [] if request.end_offset is None else [request.end_offset]
    if request.until is not None:
        found = snapshot.offset_for_timestamp(
            request.until,
            request.isolation,
            start_offset=start,
            latest=request.latest_ms,
            bytes_max=request.max_bytes,
        )
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
    bounded = _bounded(snapshot, end, request.isolation)
    return read_listable(bounded, wanted.start, request.max_bytes, request.isolation, request.aborted_count_max)


def read_listable(
    snapshot: LogSnapshot,
    offset: Offset,
    max_bytes: int,
    isolation: Isolation,
    aborted_count_max: int | None = None,
    *,
    min_one: bool = True,
) -> FetchData:
    """``LogSnapshot.read``, but fewer batches if they have more than ``aborted_count_max`` aborted transactions.

    Of a single batch only those of its own producer are listed.

    Raises:
        StorageError: as ``LogSnapshot.read``.
    """
    data = snapshot.read(offset, max_bytes, isolation=isolation, min_one=min_one)
    while data.aborted and aborted_count_max is not None and len(data.aborted) > aborted_count_max:
        fewer = snapshot.read(offset, data.size_bytes // 2, isolation=isolation, min_one=min_one)
        if fewer.size_bytes == data.size_bytes:
            producer_id = parse_header(data.slices[0].read_part(0, HEADER_BYTES)).producer_id
            own = [transaction for transaction in data.aborted if transaction.producer_id == producer_id]
            return data._replace(aborted=tuple(own[:aborted_count_max]))
        data = fewer
    return data


def read_records(
    snapshot: LogSnapshot,
    wanted: FetchRange,
    request: FetchRequest,
    *,
    encoding: Encoding,
    partition: int,
    between: bytes | None = None,
) -> ReadRecords:
    """Exactly the records of the range, decoded for JSON, as far as ``max_bytes`` goes; as ``record_texts``.

    Raises:
        CorruptionError: stored bytes are damaged.
        StorageError: as ``LogSnapshot.read``.
    """
    data = read_slices(snapshot, wanted, request)
    end = _end_of_read(wanted, request)
    documents, next_offset, _ = records_of(
        data, wanted.start, end, encoding=encoding, partition=partition, between=between
    )
    return ReadRecords(documents, next_offset if end is None else min(next_offset, max(end, wanted.start)))


class DecodedBatch(NamedTuple):
    """A batch's records inside a range. ``content_bytes``: what it takes decompressed."""

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
    return ColumnRead((_decoded_range(batch, wanted.start, end) for batch in _visible(data)), next_offset)


def _decoded_range(batch: RecordBatch, start: Offset, end: Offset | None) -> DecodedBatch:
    columns = _decoded(batch)
    first = int(np.searchsorted(columns.offsets, start))
    last = len(columns) if end is None else int(np.searchsorted(columns.offsets, end))
    content_bytes = columns.keys.size_bytes + columns.values.size_bytes
    return DecodedBatch(batch.header, columns.slice(first, max(first, last)), content_bytes)


def records_of(
    data: FetchData,
    start: Offset,
    end: Offset | None,
    *,
    encoding: Encoding,
    partition: int,
    between: bytes | None = None,
    content_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    min_one: bool = True,
) -> DecodedRecords:
    """The records of ``[start, end)`` in ``data``, as many as ``content_bytes_max`` bytes of keys and values allow.

    As ``record_texts``, one or more texts for each batch.

    Control records never; nor those of the transactions that ``data`` calls aborted.

    With ``min_one`` those of the first batch that has some come in any case.

    Raises:
        CorruptionError: stored bytes are damaged.
    """
    documents: list[RecordText] = []
    next_offset = start
    content_bytes = 0
    for batch in _visible(data):
        if end is not None and batch.header.base_offset >= end:
            break
        found, content = _documents_of(batch, start, end, encoding, partition, between)
        if content_bytes + content > content_bytes_max and (documents or not min_one):
            return DecodedRecords(documents, next_offset, content_bytes_max)
        documents += found
        content_bytes += content
        next_offset = Offset(batch.header.next_offset)
    return DecodedRecords(documents, data.next_offset, content_bytes)


def read_record(
    snapshot: LogSnapshot,
    offset: Offset,
    *,
    encoding: Encoding,
    partition: int,
    isolation: Isolation = Isolation.HIGH_WATERMARK,
) -> RecordDocument | None:
    """The record with this offset; ``None`` when the log has none there, as truncation may leave it, or a marker,
    or one that ``isolation`` does not show.
    """
    request = FetchRequest(offset=offset, max_bytes=0, max_records=1, isolation=isolation)
    wanted = FetchRange(offset, Offset(offset + 1))
    documents = read_records(snapshot, wanted, request, encoding=encoding, partition=partition).documents
    return cast("RecordDocument", documents[0]) if documents else None


def read_value(
    snapshot: LogSnapshot, offset: Offset, isolation: Isolation = Isolation.HIGH_WATERMARK
) -> tuple[bytes | None, int] | None:
    """A record's value, null or not, and its timestamp; ``None`` as for ``read_record``."""
    wanted = FetchRange(offset, Offset(offset + 1))
    request = FetchRequest(offset=offset, max_bytes=0, isolation=isolation)
    for batch in _visible(read_slices(snapshot, wanted, request)):
        columns = _decoded(batch)
        (places,) = np.nonzero(columns.offsets == offset)
        if len(places):
            return columns.values[int(places[0])], int(columns.timestamps[places[0]])
    return None


def _end_of_read(wanted: FetchRange, request: FetchRequest) -> Offset | None:
    """Where reading stops: from one record to the next the offset rises by one at least."""
    if request.max_records is None:
        return wanted.end
    counted = Offset(wanted.start + request.max_records)
    return counted if wanted.end is None else min(counted, wanted.end)


def _bounded(snapshot: LogSnapshot, end: Offset | None, isolation: Isolation) -> LogSnapshot:
    """The same log as if, for this isolation, it ended with the batch that holds the record before ``end``."""
    visible = snapshot.bound(isolation)
    if end is None or end >= visible.offset:
        return snapshot
    place = max(0, bisect_right(snapshot.base_offsets, end - 1) - 1)
    segment = snapshot.segments[place]
    on_bound = segment.base_offset == visible.segment_base_offset
    limit = visible.position if on_bound else segment.size_bytes
    last = segment.locate(Offset(end - 1), limit)
    if last is None:
        bound = LogOffsetMetadata(end, segment.base_offset, Position(limit))
    elif last.header.base_offset >= end:
        bound = LogOffsetMetadata(end, segment.base_offset, last.position)
    else:
        bound = LogOffsetMetadata(Offset(last.header.next_offset), segment.base_offset, last.end)
    stable = min(bound, snapshot.last_stable_metadata, key=lambda place: place.offset)
    if isolation is Isolation.LAST_STABLE:
        return replace(snapshot, last_stable_metadata=stable)
    return replace(snapshot, last_stable_metadata=stable, high_watermark_metadata=bound)


def _batches(data: FetchData) -> Iterator[RecordBatch]:
    """One after the other: who has enough of them has not paid for the others."""
    for piece in data.slices:
        content = memoryview(piece.read())
        position = 0
        try:
            while position < len(content):
                end = position + parse_header(content, position).size_bytes
                yield RecordBatch(content[position:end])
                position = end
        except RecordFormatError as error:
            raise CorruptionError(f"{piece.file.path}: {error}") from error


def _visible(data: FetchData) -> Iterator[RecordBatch]:
    """Batches of records, without those of aborted transactions as far as ``data`` lists them."""
    return committed_batches(_batches(data), [transaction[:2] for transaction in data.aborted or ()])


def _decoded(batch: RecordBatch) -> RecordColumns:
    try:
        batch.check_crc()
        return decode_batch(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    except RecordFormatError as error:
        raise CorruptionError(f"the stored batch of offset {batch.header.base_offset} is damaged: {error}") from error


def _documents_of(
    batch: RecordBatch, start: Offset, end: Offset | None, encoding: Encoding, partition: int, between: bytes | None
) -> tuple[list[RecordText], int]:
    """The batch's records inside the range, and how many bytes it holds decompressed."""
    _, columns, content = _decoded_range(batch, start, end)
    documents = record_texts(
        columns,
        encoding=encoding,
        timestamp_type=TIMESTAMP_TYPE_NAMES[batch.header.timestamp_type],
        partition=partition,
        between=between,
    )
    return documents, content
