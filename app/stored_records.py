"""What the log has of the records a client sends again: are they the same, and where are they. Synchronous."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rollway.records import (
    RecordBatch,
    RecordColumns,
    TimestampType,
    decode_batch,
    split_batches,
)
from storage.batch_validation import ValidBatch
from storage.errors import StorageError
from storage.log_snapshot import Isolation, LogSnapshot
from storage.offsets import Offset
from storage.producer_entry import SEQUENCE_COUNT

READ_BYTES = 1024 * 1024
SEARCH_BYTES_MAX = 64 * 1024 * 1024
"""How far back the batches of a producer are looked for."""


class Rows(NamedTuple):
    """Records as rows, to be compared. ``timed`` says whose timestamp counts."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[tuple[tuple[str, bytes | None], ...]]
    timestamps: Sequence[int]
    timed: Sequence[bool]

    @classmethod
    def of(cls, columns: RecordColumns, timed: Sequence[bool] | None = None) -> Rows:
        """The rows of ``columns``; all timestamps count unless ``timed`` says otherwise."""
        count = len(columns)
        return cls(
            columns.keys.to_list(),
            columns.values.to_list(),
            [()] * count if columns.headers is None else columns.headers.to_rows(),
            columns.timestamps.tolist(),
            [True] * count if timed is None else timed,
        )

    def slice(self, start: int, end: int) -> Rows:
        """The rows ``[start, end)``."""
        return Rows(
            self.keys[start:end],
            self.values[start:end],
            self.headers[start:end],
            self.timestamps[start:end],
            self.timed[start:end],
        )

    def is_same(self, row: int, other: Rows, other_row: int) -> bool:
        """Whether a record is the same as one of ``other``, as far as both count."""
        return (
            self.values[row] == other.values[other_row]
            and self.keys[row] == other.keys[other_row]
            and self.headers[row] == other.headers[other_row]
            and (
                not (self.timed[row] and other.timed[other_row]) or self.timestamps[row] == other.timestamps[other_row]
            )
        )


def holds_same_records(
    snapshot: LogSnapshot, base_offset: Offset, batches: Sequence[ValidBatch], timed: Sequence[bool] | None
) -> bool:
    """Whether the log has the records of ``batches`` from ``base_offset`` on; those that are gone do not count.

    Timestamps count for records that came with one, and not where the log stamps its own.
    """
    asked = [decode_batch(RecordBatch(bytes(batch.head) + bytes(batch.body))) for batch in batches]
    wanted = Rows.of(RecordColumns.concatenate(asked), timed)
    end = base_offset + len(wanted.values)
    try:
        for batch in _batches(snapshot, max(base_offset, snapshot.log_start_offset), end):
            stored, columns = _decoded(batch)
            for place, offset in enumerate(columns.offsets.tolist()):
                if base_offset <= offset < end and not wanted.is_same(offset - base_offset, stored, place):
                    return False
    except StorageError:
        # Damaged or deleted meanwhile: the sequences alone must do.
        return True
    return True


def _decoded(batch: RecordBatch) -> tuple[Rows, RecordColumns]:
    columns = decode_batch(batch)
    own_time = batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return Rows.of(columns, [False] * len(columns) if own_time else None), columns


def _batches(snapshot: LogSnapshot, start: int, end: int) -> Iterator[RecordBatch]:
    """The batches that hold the offsets ``[start, end)``."""
    offset = Offset(start)
    while offset < end:
        data = snapshot.read(offset, READ_BYTES, isolation=Isolation.LOG_END)
        for piece in data.slices:
            for batch in split_batches(piece.read()):
                if batch.header.base_offset >= end:
                    return
                yield batch
        if not data.slices or data.next_offset <= offset:
            return
        offset = data.next_offset


class StoredPiece(NamedTuple):
    """Records of a producer that lie one behind the other. ``first_row`` counts from the sequence asked for."""

    first_row: int
    base_offset: int
    rows: Rows
    log_append_time: int

    @property
    def record_count(self) -> int:
        return len(self.rows.values)


class KnownPlace(NamedTuple):
    """Where a batch of a producer is known to be."""

    first_sequence: int
    first_offset: int


def find_stored(
    snapshot: LogSnapshot,
    producer: tuple[int, int],
    known: Sequence[KnownPlace],
    first_sequence: int,
    count: int,
) -> list[StoredPiece] | None:
    """The ``count`` records of a producer, id and epoch, from ``first_sequence`` on, all of which it once wrote.

    ``known`` are places of its batches, oldest first, one at least; what lies before them is looked for within
    ``SEARCH_BYTES_MAX``. ``None`` when some are not there any more, or too far back.
    """
    try:
        start = _start_of(snapshot, producer, known, first_sequence)
        if start is None:
            return None
        pieces: list[StoredPiece] = []
        found = 0
        for batch in _batches(snapshot, start, snapshot.log_end_offset):
            header = batch.header
            if (header.producer_id, header.producer_epoch) != producer or header.is_control:
                continue
            before = _ahead(first_sequence + found, header.base_sequence)
            if before >= SEQUENCE_COUNT // 2:
                return None
            if before > header.last_offset_delta:
                continue
            stored, _ = _decoded(batch)
            end = min(header.last_offset_delta + 1, before + count - found)
            cut = stored.slice(before, end)
            is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            pieces.append(
                StoredPiece(found, header.base_offset + before, cut, header.max_timestamp if is_stamped else -1)
            )
            found += end - before
            if found == count:
                return pieces
    except StorageError:
        return None
    return None


def _ahead(sequence: int, base: int) -> int:
    """How far ``sequence`` is behind ``base``, counting through 0."""
    return (sequence - base) % SEQUENCE_COUNT


def _start_of(
    snapshot: LogSnapshot, producer: tuple[int, int], known: Sequence[KnownPlace], first_sequence: int
) -> int | None:
    """An offset at or before the batch that holds ``first_sequence``, none of which is before the log start."""
    for place in reversed(known):
        if _ahead(first_sequence, place.first_sequence) < SEQUENCE_COUNT // 2:
            return place.first_offset if place.first_offset >= snapshot.log_start_offset else None
    end = known[0].first_offset
    step, read_bytes = 1024, 0
    while end > snapshot.log_start_offset and read_bytes <= SEARCH_BYTES_MAX:
        start = max(snapshot.log_start_offset, end - step)
        for batch in _batches(snapshot, start, end):
            read_bytes += len(batch.buffer)
            header = batch.header
            if (header.producer_id, header.producer_epoch) == producer and not header.is_control:
                if _ahead(first_sequence, header.base_sequence) < SEQUENCE_COUNT // 2:
                    return start
                break
            if read_bytes > SEARCH_BYTES_MAX:
                break
        end, step = start, 2 * step
    return None
