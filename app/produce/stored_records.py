"""The stored records of a request that a client sends again: whether they are the same, and their offsets.

Synchronous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.engine.reading import StoredBatches
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import StorageError
from log_model.offsets import Offset
from log_model.producers import SEQUENCE_COUNT
from log_model.reads import Isolation
from rollway.records import (
    RecordBatch,
    RecordColumns,
    TimestampType,
    decode_pieces,
    decompress_batch,
    split_batches,
)

READ_BYTES = 1024 * 1024
SEARCH_BYTES_MAX = 64 * 1024 * 1024
"""How far back the search for batches of a producer goes."""


class Rows(NamedTuple):
    """Records as rows, for comparison. ``timed`` says for each row whether its timestamp counts."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[tuple[tuple[str, bytes | None], ...]]
    timestamps: Sequence[int]
    timed: Sequence[bool]

    @classmethod
    def of(cls, columns: RecordColumns, timed: Sequence[bool] | None = None) -> Rows:
        """Return the rows of ``columns``. All timestamps count, unless ``timed`` says otherwise."""
        count = len(columns)
        return cls(
            columns.keys.to_list(),
            columns.values.to_list(),
            [()] * count if columns.headers is None else columns.headers.to_rows(),
            columns.timestamps.tolist(),
            [True] * count if timed is None else timed,
        )

    def slice(self, start: int, end: int) -> Rows:
        """Return the rows ``[start, end)``."""
        return Rows(
            self.keys[start:end],
            self.values[start:end],
            self.headers[start:end],
            self.timestamps[start:end],
            self.timed[start:end],
        )

    def is_same(self, row: int, other: Rows, other_row: int) -> bool:
        """Return whether a record is the same as one of ``other``. Timestamps matter if they count for both."""
        return (
            self.values[row] == other.values[other_row]
            and self.keys[row] == other.keys[other_row]
            and self.headers[row] == other.headers[other_row]
            and (
                not (self.timed[row] and other.timed[other_row]) or self.timestamps[row] == other.timestamps[other_row]
            )
        )


def holds_same_records(
    stored: StoredBatches, base_offset: Offset, batches: Sequence[ValidBatch], timed: Sequence[bool] | None
) -> bool:
    """Return whether the log has the records of ``batches`` from ``base_offset`` on. Deleted records are not compared.

    Timestamps count for records that came with one, unless the log stamps its own.
    """
    end = base_offset + sum(batch.header.record_count for batch in batches)
    wanted = _Wanted(batches, timed)
    try:
        for batch in _batches(stored, max(base_offset, stored.log_start_offset), end):
            for rows, columns in _pieces(batch):
                for place, offset in enumerate(columns.offsets.tolist()):
                    if base_offset <= offset < end and not wanted.is_same(offset - base_offset, rows, place):
                        return False
    except StorageError:
        # Damaged or deleted meanwhile: the sequences alone must decide.
        return True
    return True


class _Wanted:
    """The records of batches, a few at a time, read in rising order."""

    def __init__(self, batches: Sequence[ValidBatch], timed: Sequence[bool] | None) -> None:
        self._pieces = _pieces_of(batches, timed)
        self._first = 0
        self._rows: Rows | None = None

    def is_same(self, row: int, other: Rows, other_row: int) -> bool:
        """Return whether record ``row`` is the same as one of ``other``. Rows must rise from call to call."""
        while self._rows is None or row >= self._first + len(self._rows.values):
            self._first += 0 if self._rows is None else len(self._rows.values)
            self._rows = next(self._pieces)
        return self._rows.is_same(row - self._first, other, other_row)


def _pieces_of(batches: Sequence[ValidBatch], timed: Sequence[bool] | None) -> Iterator[Rows]:
    first = 0
    for batch in batches:
        whole = RecordBatch(bytes(batch.head) + bytes(batch.body))
        for columns in decode_pieces(whole, decompress_batch(whole)):
            yield Rows.of(columns, None if timed is None else timed[first : first + len(columns)])
            first += len(columns)


def _pieces(batch: RecordBatch) -> Iterator[tuple[Rows, RecordColumns]]:
    """Yield the rows of a stored batch, 256 KiB at a time: as objects all of them may be gigabytes."""
    own_time = batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    for columns in decode_pieces(batch, decompress_batch(batch)):
        yield Rows.of(columns, [False] * len(columns) if own_time else None), columns


def _rows_between(batch: RecordBatch, start: int, end: int) -> Rows:
    """Return the rows ``[start, end)`` of a stored batch."""
    cuts: list[Rows] = []
    first = 0
    for rows, columns in _pieces(batch):
        if first >= end:
            break
        cuts.append(rows.slice(max(0, start - first), end - first))
        first += len(columns)
    return Rows(
        [key for cut in cuts for key in cut.keys],
        [value for cut in cuts for value in cut.values],
        [headers for cut in cuts for headers in cut.headers],
        [timestamp for cut in cuts for timestamp in cut.timestamps],
        [is_timed for cut in cuts for is_timed in cut.timed],
    )


def _batches(stored: StoredBatches, start: int, end: int) -> Iterator[RecordBatch]:
    """Yield the batches that hold the offsets ``[start, end)``."""
    offset = Offset(start)
    while offset < end:
        data = stored.read(offset, READ_BYTES, isolation=Isolation.LOG_END)
        for piece in data.slices:
            for batch in split_batches(piece.read()):
                if batch.header.base_offset >= end:
                    return
                yield batch
        if not data.slices or data.next_offset <= offset:
            return
        offset = data.next_offset


class StoredPiece(NamedTuple):
    """Consecutive records of a producer. ``first_row`` counts from the sequence that the search began with."""

    first_row: int
    base_offset: int
    rows: Rows
    log_append_time: int

    @property
    def record_count(self) -> int:
        return len(self.rows.values)


class KnownPlace(NamedTuple):
    """The offset of a batch of a producer."""

    first_sequence: int
    first_offset: int


def find_stored(
    stored: StoredBatches,
    producer: tuple[int, int],
    known: Sequence[KnownPlace],
    first_sequence: int,
    count: int,
) -> list[StoredPiece] | None:
    """Return the ``count`` records of a producer, id and epoch, from ``first_sequence`` on. It has written all of them.

    ``known`` are places of its batches, oldest first, one at least. The search for batches before them reads at most
    ``SEARCH_BYTES_MAX``. ``None`` if some records are not there any more, or too far back.
    """
    try:
        start = _start_of(stored, producer, known, first_sequence)
        if start is None:
            return None
        pieces: list[StoredPiece] = []
        found = 0
        for batch in _batches(stored, start, stored.log_end_offset):
            header = batch.header
            if (header.producer_id, header.producer_epoch) != producer or header.is_control:
                continue
            before = _ahead(first_sequence + found, header.base_sequence)
            if before >= SEQUENCE_COUNT // 2:
                return None
            if before > header.last_offset_delta:
                continue
            end = min(header.last_offset_delta + 1, before + count - found)
            cut = _rows_between(batch, before, end)
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
    """Return how far ``sequence`` is behind ``base``, counting through 0."""
    return (sequence - base) % SEQUENCE_COUNT


def _start_of(
    stored: StoredBatches, producer: tuple[int, int], known: Sequence[KnownPlace], first_sequence: int
) -> int | None:
    """Return an offset at or before the batch that holds ``first_sequence``; ``None`` if it is gone or too far back."""
    for place in reversed(known):
        if _ahead(first_sequence, place.first_sequence) < SEQUENCE_COUNT // 2:
            return place.first_offset if place.first_offset >= stored.log_start_offset else None
    end = known[0].first_offset
    step, read_bytes = 1024, 0
    while end > stored.log_start_offset and read_bytes <= SEARCH_BYTES_MAX:
        start = max(stored.log_start_offset, end - step)
        for batch in _batches(stored, start, end):
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
