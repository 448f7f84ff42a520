"""Records of one batch by their timestamps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rollway.records import RecordColumns, decode_pieces, decompress_batch
from storage.batch_validation import DECOMPRESSED_BYTES_MAX
from storage.batch_walk import StoredBatch, read_batch
from storage.file_system import File
from storage.offsets import NO_TIMESTAMP, Offset


class TimestampedRecord(NamedTuple):
    """A record found by time."""

    offset: Offset
    timestamp: int
    leader_epoch: int


def largest_record(file: File, batch: StoredBatch, start_offset: Offset) -> TimestampedRecord:
    """The first record with the largest timestamp of those at or above ``start_offset``.

    Raises:
        CorruptionError: the batch is damaged.
    """
    found: TimestampedRecord | None = None
    for columns in _pieces(file, batch):
        timestamps = np.where(columns.offsets >= start_offset, columns.timestamps, NO_TIMESTAMP)
        place = int(timestamps.argmax())
        if found is None or timestamps[place] > found.timestamp:
            found = _record_at(batch, int(columns.offsets[place]), int(timestamps[place]))
    assert found is not None, "a batch has a record"
    return found


def first_record(file: File, batch: StoredBatch, timestamp: int, start_offset: Offset) -> TimestampedRecord | None:
    """The first record at or after ``timestamp`` and at or above ``start_offset``.

    Raises:
        CorruptionError: the batch is damaged.
    """
    for columns in _pieces(file, batch):
        hits = (columns.timestamps >= timestamp) & (columns.offsets >= start_offset)
        if hits.any():
            place = int(hits.argmax())
            return _record_at(batch, int(columns.offsets[place]), int(columns.timestamps[place]))
    return None


def _pieces(file: File, batch: StoredBatch) -> Iterator[RecordColumns]:
    """The batch's records, 256 KiB at a time: columns of all of them may be four times as large as the batch."""
    stored = read_batch(file, batch)
    section = decompress_batch(stored, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    return (columns for columns in decode_pieces(stored, section) if len(columns))


def _record_at(batch: StoredBatch, offset: int, timestamp: int) -> TimestampedRecord:
    return TimestampedRecord(Offset(offset), timestamp, batch.header.partition_leader_epoch)
