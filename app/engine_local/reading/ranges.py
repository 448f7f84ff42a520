"""The range of offsets that a read means, and its batches, from one snapshot. Synchronous: it may touch the disk.

Everything here works on one snapshot, so all values of an outcome stay true together.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import NamedTuple

from app.engine.reading import Read, ReadOutcome
from app.engine_local.reading.last_records import start_of_last
from log_model.offsets import LogOffsetMetadata, Offset, Position
from log_model.reads import FetchData, Isolation
from rollway.records import HEADER_BYTES, parse_header
from storage.log.log_snapshot import LogSnapshot


class ReadRange(NamedTuple):
    """The offsets ``[start, end)``; ``end`` is ``None`` while the log may still grow into the range."""

    start: Offset
    end: Offset | None


def start_of(snapshot: LogSnapshot, request: Read) -> Offset:
    """Return the first offset that the request means, which may lie outside the log.

    A timestamp later than every record means the end of the visible records.
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


def range_of(snapshot: LogSnapshot, request: Read, start: Offset) -> ReadRange:
    """Return the range from ``start`` to the nearest end that is known and visible.

    ``until`` ends the range at its first record at or after that time, once there is one. It is not searched for behind
    the records that one response holds. A record before ``start`` that is ahead of its time does not end the range: the
    range would be empty for as long as the log has that record.
    """
    end = request.end_offset
    if request.until is not None:
        found = snapshot.offset_for_timestamp(
            request.until,
            request.isolation,
            start_offset=start,
            latest=request.latest_ms,
            bytes_max=request.max_bytes,
        )
        if found is not None:
            end = found.offset if end is None else min(found.offset, end)
    return range_between(snapshot, request.isolation, start, end)


def range_between(snapshot: LogSnapshot, isolation: Isolation, start: Offset, end: int | None) -> ReadRange:
    """Return the range from ``start`` to ``end``, if the log has grown that far."""
    if end is None or end > snapshot.bound(isolation).offset:
        return ReadRange(start, None)
    return ReadRange(start, Offset(max(start, end)))


def read_range(snapshot: LogSnapshot, request: Read, start: Offset, max_bytes: int | None = None) -> ReadOutcome:
    """Find the range from ``start`` and read its batches; ``max_bytes`` limits them beside the limit of ``request``.

    Raises:
        StorageError: as ``LogSnapshot.read``.
    """
    return read_batches(snapshot, request, range_of(snapshot, request, start), max_bytes)


def read_offsets(snapshot: LogSnapshot, request: Read, start: Offset) -> ReadOutcome:
    """Do as ``read_range`` for a range that no time ends.

    Raises:
        StorageError: as ``LogSnapshot.read``.
    """
    return read_batches(snapshot, request, range_between(snapshot, request.isolation, start, request.end_offset))


def read_batches(snapshot: LogSnapshot, request: Read, wanted: ReadRange, max_bytes: int | None = None) -> ReadOutcome:
    """Read the batches of ``wanted``, the range of ``request``; see ``read_range``.

    Raises:
        StorageError: as ``LogSnapshot.read``.
    """
    start, end = wanted
    read_end = end
    if request.max_records is not None:
        # From one record to the next the offset rises by one at least.
        counted = Offset(start + request.max_records)
        read_end = counted if end is None else min(counted, end)
    if read_end is not None and read_end <= start:
        return ReadOutcome(start, end, read_end, snapshot, FetchData((), start))
    bytes_max = request.max_bytes if max_bytes is None else min(request.max_bytes, max_bytes)
    bounded = _bounded(snapshot, read_end, request.isolation)
    data = read_listable(bounded, start, bytes_max, request.isolation, request.aborted_count_max)
    return ReadOutcome(start, end, read_end, snapshot, data)


def read_listable(
    snapshot: LogSnapshot,
    offset: Offset,
    max_bytes: int,
    isolation: Isolation,
    aborted_count_max: int | None = None,
    *,
    min_one: bool = True,
) -> FetchData:
    """Read as ``LogSnapshot.read``, but fewer batches if more than ``aborted_count_max`` transactions were aborted.

    For a single batch only the aborted transactions of its own producer are listed.

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


def _bounded(snapshot: LogSnapshot, end: Offset | None, isolation: Isolation) -> LogSnapshot:
    """Return a snapshot that ends, for this isolation, with the batch that holds the record before ``end``."""
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
