"""Records of one batch by their timestamps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rollway.records import decode_batch
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
    columns = decode_batch(read_batch(file, batch), decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    timestamps = np.where(columns.offsets >= start_offset, columns.timestamps, NO_TIMESTAMP)
    place = int(timestamps.argmax())
    return TimestampedRecord(
        Offset(int(columns.offsets[place])), int(timestamps[place]), batch.header.partition_leader_epoch
    )


def first_record(file: File, batch: StoredBatch, timestamp: int, start_offset: Offset) -> TimestampedRecord | None:
    """The first record at or after ``timestamp`` and at or above ``start_offset``.

    Raises:
        CorruptionError: the batch is damaged.
    """
    columns = decode_batch(read_batch(file, batch), decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    hits = (columns.timestamps >= timestamp) & (columns.offsets >= start_offset)
    if not hits.any():
        return None
    place = int(hits.argmax())
    return TimestampedRecord(
        Offset(int(columns.offsets[place])), int(columns.timestamps[place]), batch.header.partition_leader_epoch
    )
