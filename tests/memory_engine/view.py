"""What one reader sees of a partition: its batches up to limits that never change."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from log_model.errors import OffsetOutOfRangeError
from log_model.offsets import NO_TIMESTAMP, Offset, Position
from log_model.reads import FetchData, FileSlice, Isolation, TimestampedRecord
from log_model.transactions import AbortedTransaction
from rollway.records import BatchHeader, RecordBatch, RecordColumns, decode_batch

_DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024


class StoredBatch(NamedTuple):
    """A batch as it is stored, with its offsets."""

    header: BatchHeader
    content: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def columns(self) -> RecordColumns:
        """Decode the records."""
        return decode_batch(RecordBatch(self.content), decompressed_bytes_max=_DECOMPRESSED_BYTES_MAX)


class MemoryLimits(NamedTuple):
    """The ends of a partition at one moment."""

    log_start_offset: Offset
    last_stable_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset

    def bound(self, isolation: Isolation) -> Offset:
        """Return the end of the records that readers of this isolation are shown."""
        if isolation is Isolation.LAST_STABLE:
            return self.last_stable_offset
        return self.high_watermark if isolation is Isolation.HIGH_WATERMARK else self.log_end_offset


class MemoryFile:
    """Bytes in memory in the place of a file. There is no descriptor."""

    path = Path("memory")

    def __init__(self, content: bytes) -> None:
        self._content = content

    def fileno(self) -> int:
        """Fail: no caller may want a descriptor of an answer that has its content."""
        raise AssertionError("these bytes are in no file")

    def read(self, position: int, length: int) -> bytes:
        return self._content[position : position + length]

    def read_cached(self, position: int, length: int) -> bytes:
        return self.read(position, length)


class View(NamedTuple):
    """Batches of a partition up to its limits. Thread: any."""

    batches: Sequence[StoredBatch]
    limits: MemoryLimits
    aborted: Sequence[AbortedTransaction]

    @property
    def log_start_offset(self) -> Offset:
        return self.limits.log_start_offset

    @property
    def last_stable_offset(self) -> Offset:
        return self.limits.last_stable_offset

    @property
    def high_watermark(self) -> Offset:
        return self.limits.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        return self.limits.log_end_offset

    def walk(self, offset: int, end: int) -> Iterator[StoredBatch]:
        """Yield the batches with an offset in ``[offset, end)``."""
        place = max(0, bisect_right(self.batches, offset, key=lambda batch: batch.header.base_offset) - 1)
        for number in range(place, len(self.batches)):
            batch = self.batches[number]
            if batch.header.base_offset >= end:
                return
            if batch.header.next_offset > offset:
                yield batch

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        isolation: Isolation,
        end: int | None = None,
        min_one: bool = True,
        aborted_count_max: int | None = None,
    ) -> FetchData:
        """Return whole batches from ``offset``: at most ``max_bytes``, but with ``min_one`` always the first one.

        The last batch is the one that holds the offset before ``end``. With more aborted transactions than
        ``aborted_count_max`` the data ends sooner, but never before its first batch ends.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start offset or above the log end offset.
        """
        limits = self.limits
        if not limits.log_start_offset <= offset <= limits.log_end_offset:
            side = "below the log start" if offset < limits.log_start_offset else "above the log end"
            raise OffsetOutOfRangeError(
                f"offset {offset} is {side}; offsets {limits.log_start_offset} to {limits.log_end_offset} can be "
                "asked for",
                offset=offset,
                log_start_offset=limits.log_start_offset,
                log_end_offset=limits.log_end_offset,
            )
        is_committed = isolation is Isolation.LAST_STABLE
        bound = limits.bound(isolation) if end is None else min(end, limits.bound(isolation))
        pieces: list[StoredBatch] = []
        aborted: tuple[AbortedTransaction, ...] = ()
        size_bytes, next_offset = 0, offset
        for batch in self.walk(offset, bound):
            is_free = min_one and not pieces
            if size_bytes + batch.size_bytes > max_bytes and not is_free:
                break
            hidden = self.aborted_between(offset, batch.header.next_offset) if is_committed else ()
            if aborted_count_max is not None and len(hidden) > aborted_count_max:
                if pieces:
                    break
                own = tuple(each for each in hidden if each.producer_id == batch.header.producer_id)
                return _data([batch], Offset(batch.header.next_offset), own[:aborted_count_max])
            aborted = hidden
            pieces.append(batch)
            size_bytes, next_offset = size_bytes + batch.size_bytes, Offset(batch.header.next_offset)
        return _data(pieces, next_offset, aborted if is_committed else None)

    def aborted_between(self, offset: int, end: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that have an offset in ``[offset, end)``."""
        return tuple(each for each in self.aborted if each.first_offset < end and each.last_offset >= offset)

    def available_bytes(self, offset: int, isolation: Isolation) -> int:
        """Return the bytes from the batch with ``offset`` to the end of what is shown."""
        return sum(batch.size_bytes for batch in self.walk(offset, self.limits.bound(isolation)))

    # By time

    def find_time(
        self,
        timestamp: int,
        isolation: Isolation,
        *,
        start: int = 0,
        latest: int | None = None,
        bytes_max: int | None = None,
    ) -> TimestampedRecord | None:
        """Return the first record in offset order at or after ``timestamp``, but not after ``latest``.

        Batches that begin more than ``bytes_max`` behind the first one are not looked at.
        """
        start = max(start, self.log_start_offset)
        passed_bytes = 0
        for batch in self.walk(start, self.limits.bound(isolation)):
            if bytes_max is not None and passed_bytes > bytes_max:
                return None
            passed_bytes += batch.size_bytes
            if batch.header.max_timestamp < timestamp:
                continue
            columns = batch.columns()
            hits = (columns.timestamps >= timestamp) & (columns.offsets >= start)
            if latest is not None:
                hits &= columns.timestamps <= latest
            if hits.any():
                return _record(batch, columns, int(hits.argmax()))
        return None

    def find_largest_time(self, isolation: Isolation) -> TimestampedRecord | None:
        """Return the first record with the largest timestamp; ``None`` if that one is not shown (case F-14b)."""
        best: TimestampedRecord | None = None
        is_committed = isolation is Isolation.LAST_STABLE
        looked_at = self.limits.bound(Isolation.HIGH_WATERMARK if is_committed else isolation)
        for batch in self.walk(self.log_start_offset, looked_at):
            if batch.header.max_timestamp <= (NO_TIMESTAMP if best is None else best.timestamp):
                continue
            columns = batch.columns()
            times = np.where(columns.offsets >= self.log_start_offset, columns.timestamps, NO_TIMESTAMP)
            found = _record(batch, columns, int(times.argmax()))
            if found.timestamp > (NO_TIMESTAMP if best is None else best.timestamp):
                best = found
        return best if best is not None and best.offset < self.limits.bound(isolation) else None

    def start_of_last(self, count: int, isolation: Isolation) -> Offset:
        """Return the offset at which the last ``count`` visible records begin, or the log start if there are fewer."""
        bound = self.limits.bound(isolation)
        if not count:
            return bound
        for batch in reversed(tuple(self.walk(self.log_start_offset, bound))):
            if not self._is_shown(batch.header, isolation):
                continue
            if batch.header.record_count >= count:
                return max(self.log_start_offset, Offset(int(batch.columns().offsets[-count])))
            count -= batch.header.record_count
        return self.log_start_offset

    def _is_shown(self, header: BatchHeader, isolation: Isolation) -> bool:
        if header.is_control:
            return False
        if not header.is_transactional or isolation is not Isolation.LAST_STABLE:
            return True
        return not any(
            each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.last_offset
            for each in self.aborted
        )


def _record(batch: StoredBatch, columns: RecordColumns, place: int) -> TimestampedRecord:
    return TimestampedRecord(
        Offset(int(columns.offsets[place])), int(columns.timestamps[place]), batch.header.partition_leader_epoch
    )


def _data(
    batches: Sequence[StoredBatch], next_offset: Offset, aborted: tuple[AbortedTransaction, ...] | None
) -> FetchData:
    if not batches:
        return FetchData((), next_offset, aborted)
    content = b"".join([batch.content for batch in batches])
    piece = FileSlice(MemoryFile(content), Position(0), len(content), memoryview(content))
    return FetchData((piece,), next_offset, aborted)
