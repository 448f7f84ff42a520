"""Which records a fetch means, and reading them from a snapshot. Synchronous: it may touch the disk.

Everything here works on one snapshot, so what it says stays true together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

import msgspec

from app.engine_local.reading.last_records import start_of_last
from app.record_json import decoding
from app.record_json.decoding import DecodedPiece, DecodedRecords, DecodingLimits, NeedsRoomError, decoded_pieces
from app.record_json.record_texts import IN_LIST, RecordText
from app.record_json.translate import Encoding
from log_model.errors import CorruptionError
from log_model.offsets import LogOffsetMetadata, Offset, Position
from log_model.reads import FetchData, Isolation
from rollway.records import (
    HEADER_BYTES,
    RecordBatch,
    RecordFormatError,
    committed_batches,
    parse_header,
)
from storage.log.log_snapshot import LogSnapshot

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
    limits: DecodingLimits | None = None,
) -> ReadRecords:
    """Exactly the records of the range, decoded for JSON, as far as ``max_bytes`` and ``limits`` go; as
    ``record_texts``.

    Raises:
        CorruptionError: stored bytes are damaged.
        StorageError: as ``LogSnapshot.read``.
        NeedsRoomError, Problem: as ``decoding.records_of``.
    """
    data = read_slices(snapshot, wanted, request)
    end = _end_of_read(wanted, request)
    found = records_of(data, wanted.start, end, encoding=encoding, partition=partition, between=between, limits=limits)
    next_offset = found.next_offset if end is None else min(found.next_offset, max(end, wanted.start))
    return ReadRecords(found.documents, next_offset)


class ColumnRead(NamedTuple):
    """The records of a range, decoded piece by piece, and where the next fetch begins after all of them."""

    pieces: Iterator[DecodedPiece]
    next_offset: Offset


def read_columns(
    snapshot: LogSnapshot, wanted: FetchRange, request: FetchRequest, limits: DecodingLimits
) -> ColumnRead:
    """Exactly the records of the range, in columns, as far as ``max_bytes`` of stored bytes goes.

    Raises:
        StorageError: as ``LogSnapshot.read``; CorruptionError and NeedsRoomError also while pieces are taken.
    """
    data = read_slices(snapshot, wanted, request)
    end = _end_of_read(wanted, request)
    next_offset = data.next_offset if end is None else min(data.next_offset, max(end, wanted.start))
    pieces = (
        piece
        for batch in _visible(data)
        for piece in decoded_pieces(batch, wanted.start, end, limits, shows_headers=False)
    )
    return ColumnRead(pieces, next_offset)


def records_of(
    data: FetchData,
    start: Offset,
    end: Offset | None,
    *,
    encoding: Encoding,
    partition: int,
    between: bytes | None = None,
    limits: DecodingLimits | None = None,
    min_one: bool = True,
) -> DecodedRecords:
    """The records of ``[start, end)`` in ``data``, as many as ``limits`` allow; those of a large room if absent.

    Control records never; nor those of the transactions that ``data`` calls aborted. Raises as ``decoding.records_of``.
    """
    return decoding.records_of(
        _visible(data),
        start,
        end,
        data.next_offset,
        encoding=encoding,
        partition=partition,
        between=between,
        limits=limits or DecodingLimits(),
        min_one=min_one,
    )


def read_record(
    snapshot: LogSnapshot,
    offset: Offset,
    *,
    encoding: Encoding,
    partition: int,
    isolation: Isolation = Isolation.HIGH_WATERMARK,
    limits: DecodingLimits | None = None,
) -> bytes | None:
    """The JSON of the record with this offset; ``None`` when the log has none there, as truncation may leave it, or a
    marker, or one that ``isolation`` does not show.

    Raises:
        NeedsRoomError, Problem: as ``decoding.records_of``.
    """
    request = FetchRequest(offset=offset, max_bytes=0, max_records=1, isolation=isolation)
    wanted = FetchRange(offset, Offset(offset + 1))
    read = read_records(
        snapshot, wanted, request, encoding=encoding, partition=partition, between=IN_LIST, limits=limits
    )
    return b"".join(map(bytes, cast("list[msgspec.Raw]", read.documents))) if read.documents else None


def read_value(
    snapshot: LogSnapshot,
    offset: Offset,
    isolation: Isolation = Isolation.HIGH_WATERMARK,
    limits: DecodingLimits | None = None,
) -> tuple[bytes | None, int] | None:
    """A record's value, null or not, and its timestamp; ``None`` as for ``read_record``.

    Raises:
        NeedsRoomError: the batch that holds it, or the value, needs more room.
    """
    limits = limits or DecodingLimits()
    wanted = FetchRange(offset, Offset(offset + 1))
    request = FetchRequest(offset=offset, max_bytes=0, isolation=isolation)
    for batch in _visible(read_slices(snapshot, wanted, request)):
        for piece in decoded_pieces(batch, wanted.start, wanted.end, limits, shows_headers=False):
            if not limits.is_large and piece.columns.values.size_bytes > limits.first_bytes:
                raise NeedsRoomError
            return piece.columns.values[0], int(piece.columns.timestamps[0])
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
