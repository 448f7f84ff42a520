"""Search for records of one batch by their timestamps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from log_model.batches.batch_validation import DECOMPRESSED_BYTES_MAX
from log_model.offsets import NO_TIMESTAMP, Offset
from log_model.reads import TimestampedRecord
from rollway.records import BatchHeader, RecordColumns, TimestampType, decode_pieces, decompress_batch
from storage.disk.file_system import File
from storage.index.batch_walk import StoredBatch, read_batch


def find_largest(
    file: File, walk: Callable[[], Iterable[StoredBatch]], start_offset: Offset
) -> TimestampedRecord | None:
    """Return the first record with the largest timestamp at or above ``start_offset``; ``None`` without timestamps.

    ``walk`` yields the candidate batches, again at each call. The header alone does not decide. A batch that compaction
    emptied still has the timestamp of its removed records, and a batch may have its largest timestamp below
    ``start_offset``. Usually the first batch that is decoded has the record.

    Raises:
        CorruptionError: a batch is damaged.
    """
    best: TimestampedRecord | None = None
    looked_at: set[int] = set()
    while True:
        claiming: StoredBatch | None = None
        for batch in walk():
            header = batch.header
            if header.record_count <= 0 or header.last_offset < start_offset or batch.position in looked_at:
                continue
            if _may_beat(header, best) and (claiming is None or header.max_timestamp > claiming.header.max_timestamp):
                claiming = batch
        if claiming is None:
            return best
        looked_at.add(claiming.position)
        found = _largest_of(file, claiming, start_offset)
        if found is not None and (best is None or (found.timestamp, -found.offset) > (best.timestamp, -best.offset)):
            best = found
            if found.timestamp == claiming.header.max_timestamp:
                return best


def _may_beat(header: BatchHeader, best: TimestampedRecord | None) -> bool:
    """Return whether a batch's header has a larger timestamp than the best record, or the same at a lower offset."""
    if best is None:
        return header.max_timestamp > NO_TIMESTAMP
    return (header.max_timestamp, -header.base_offset) > (best.timestamp, -best.offset)


def _largest_of(file: File, batch: StoredBatch, start_offset: Offset) -> TimestampedRecord | None:
    found: TimestampedRecord | None = None
    for columns in _pieces(file, batch):
        timestamps = np.where(columns.offsets >= start_offset, columns.timestamps, NO_TIMESTAMP)
        place = int(timestamps.argmax())
        if timestamps[place] > (NO_TIMESTAMP if found is None else found.timestamp):
            found = _record_at(batch, int(columns.offsets[place]), int(timestamps[place]))
    return found


def first_timestamp(file: File, batches: Iterable[StoredBatch]) -> int:
    """Return the timestamp of the first record of these batches, ``NO_TIMESTAMP`` without records.

    Raises:
        CorruptionError: a batch is damaged.
    """
    first = next((batch for batch in batches if batch.header.record_count > 0), None)
    if first is None:
        return NO_TIMESTAMP
    header = first.header
    if header.has_delete_horizon:
        # The base timestamp holds that horizon.
        return int(next(_pieces(file, first)).timestamps[0])
    return header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else header.base_timestamp


def first_record(
    file: File, batch: StoredBatch, timestamp: int, start_offset: Offset, latest: int | None = None
) -> TimestampedRecord | None:
    """Return the first record at or above ``start_offset`` with a timestamp from ``timestamp`` to ``latest`` inclusive.

    Raises:
        CorruptionError: the batch is damaged.
    """
    for columns in _pieces(file, batch):
        hits = (columns.timestamps >= timestamp) & (columns.offsets >= start_offset)
        if latest is not None:
            hits &= columns.timestamps <= latest
        if hits.any():
            place = int(hits.argmax())
            return _record_at(batch, int(columns.offsets[place]), int(columns.timestamps[place]))
    return None


def _pieces(file: File, batch: StoredBatch) -> Iterator[RecordColumns]:
    """Decode the batch 256 KiB at a time: columns of the whole batch may be four times as large as the batch."""
    stored = read_batch(file, batch)
    section = decompress_batch(stored, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    return (columns for columns in decode_pieces(stored, section) if len(columns))


def _record_at(batch: StoredBatch, offset: int, timestamp: int) -> TimestampedRecord:
    return TimestampedRecord(Offset(offset), timestamp, batch.header.partition_leader_epoch)
