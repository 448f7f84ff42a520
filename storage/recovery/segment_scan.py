"""The scan of a segment's log: its good batches, and the good batches behind damaged bytes.

Where everything was durable once, a bad batch is damage (disk rule 5), and the scan searches for batches behind it:
first at the end that the bad batch's length gives, then byte by byte. A header alone does not prove a batch. Its CRC,
its offsets, its leader epoch and the batches behind it must all fit, because a record's value may hold anything, also
whole batches.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from log_model.errors import CorruptionError
from log_model.offsets import ByteRange, Offset, Position
from rollway.records import HEADER_BYTES, BatchHeader, RecordBatch, RecordFormatError, parse_header
from storage.disk.file_system import File, FileSystem
from storage.index.batch_walk import StoredBatch
from storage.index.index_file import RELATIVE_OFFSET_MAX
from storage.index.offset_index import OffsetIndex
from storage.log.leader_epochs import LeaderEpochs
from storage.segment.old_messages import old_message_at
from storage.segment.segment import Segment

_BATCH_BYTES_MAX = 256 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_ZEROS = bytes(_PIECE_BYTES)
ZEROS_BYTES_MAX = 64 * 1024 * 1024
"""More than is usually written between two fsyncs: no crash leaves a torn write behind this many zeros."""
_MAGIC_AT = 16
_MAGIC = 2
_HIGH_BYTES = 4
_CONFIRMING_COUNT = 2
_SEARCH_FACTOR = 4
_PASS_BYTES = 1024 * 1024
_OFFSET_MAX = 2**63 - 1

# Fields of a batch header: base offset, length, leader epoch, magic, CRC, last offset delta, producer id.
_read_scanned = struct.Struct(">qiibI2xi16xq").unpack_from
_LENGTH_OVERHEAD_BYTES = 12
_CRC_FROM = 21


class Hole(NamedTuple):
    """Damaged bytes with good batches on both sides, and the offsets ``[start_offset, end_offset)`` lost with them."""

    place: ByteRange
    start_offset: Offset
    end_offset: Offset
    problem: str


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """The result of a scan: the log is good up to byte ``valid_bytes``, except ``holes``, and ``end_offset`` is its
    next offset. ``problem`` says why it ends there if more bytes follow; ``is_old_format``: they are intact messages of
    magic 0 or 1. Everything below byte ``durable_bytes`` lies below the recovery point."""

    valid_bytes: int
    end_offset: Offset
    problem: str | None
    holes: tuple[Hole, ...] = ()
    is_old_format: bool = False
    has_producers: bool = True
    durable_bytes: int = 0

    def runs(self, start: int = 0) -> Iterator[ByteRange]:
        """Yield the ranges of good bytes from ``start``, in order."""
        for hole in self.holes:
            if start < hole.place.start:
                yield ByteRange(Position(start), hole.place.start)
            start = max(start, hole.place.end)
        yield ByteRange(Position(start), Position(self.valid_bytes))


class SegmentScanner:
    """Scans one segment; used once.

    Args:
        epochs: the known leader epochs; ``None`` if they were lost.
        has_gaps: whether offsets may be missing between batches, as compaction leaves them.
        durable_end: everything below was durable once. A bad batch below is damage, one above ends the log.
        following: the base offset of the next segment, ``None`` for the last.
        recovery_point: everything below is on the disk.
        tell: called with the number of bytes scanned since its last call.
    """

    def __init__(
        self,
        segment: Segment,
        epochs: LeaderEpochs | None,
        *,
        has_gaps: bool,
        durable_end: Offset,
        following: Offset | None,
        recovery_point: Offset = Offset(0),
        tell: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._segment = segment
        self._recovery_point = recovery_point
        self._tell = tell
        self._told_bytes = 0
        self._has_producers = False
        self._durable_bytes = Position(0)
        self._epochs = epochs
        self._has_gaps = has_gaps
        self._durable_end = durable_end if following is None else following
        self._offset_max = Offset(segment.base_offset + RELATIVE_OFFSET_MAX) if following is None else following
        # A search behind damage reads some bytes repeatedly; this budget ends it for any content.
        self._search_bytes = _PIECE_BYTES + _SEARCH_FACTOR * segment.size_bytes
        self._rejected: set[int] = set()

    def scan(self) -> SegmentScan:
        """Check every batch.

        Raises:
            OSError: the disk refused.
        """
        holes: list[Hole] = []
        position, next_offset = Position(0), self._segment.base_offset
        while position < self._segment.size_bytes:
            self._has_come_to(position, next_offset)
            passed, next_offset = self._pass_good(position, next_offset)
            if passed > position:
                position = passed
                continue
            try:
                header = self._check_batch(position, next_offset)
            except (CorruptionError, RecordFormatError) as error:
                old = old_message_at(self._segment.file, position, self._segment.size_bytes)
                problem = f"no valid batch at byte {position}: {old or error}"
                found = self._find_behind(position, next_offset) if next_offset < self._durable_end else None
                if found is None:
                    self._has_come_to(Position(self._segment.size_bytes))
                    return self._result(position, next_offset, problem, holes, is_old_format=old is not None)
                end_offset = Offset(found.header.base_offset)
                holes.append(Hole(ByteRange(position, found.position), next_offset, end_offset, problem))
                position, next_offset = found.position, end_offset
                continue
            self._has_producers |= header.producer_id >= 0
            next_offset = Offset(header.last_offset + 1)
            position = Position(position + header.size_bytes)
        self._has_come_to(position)
        return self._result(position, next_offset, None, holes)

    def _result(
        self, end: Position, end_offset: Offset, problem: str | None, holes: list[Hole], *, is_old_format: bool = False
    ) -> SegmentScan:
        return SegmentScan(
            end, end_offset, problem, tuple(holes), is_old_format, self._has_producers, self._durable_bytes
        )

    def _has_come_to(self, position: Position, next_offset: Offset | None = None) -> None:
        if next_offset is not None and next_offset <= self._recovery_point:
            self._durable_bytes = position
        self._tell(position - self._told_bytes)
        self._told_bytes = position

    def _pass_good(self, position: Position, next_offset: Offset) -> tuple[Position, Offset]:
        """Pass the whole, good batches in the next piece of the file; return the next position and offset.

        It may stop anywhere, without a reason; ``_check_batch`` gives the reason. ``_check_batch`` would accept every
        batch that this method passes.
        """
        piece = self._segment.file.read(position, min(_PASS_BYTES, self._segment.size_bytes - position))
        view, size = memoryview(piece), len(piece)
        last_offset_max = self._segment.base_offset + RELATIVE_OFFSET_MAX
        has_gaps, expected_epoch, epoch_end = self._has_gaps, None, next_offset
        has_producers, at = False, 0
        while at + HEADER_BYTES <= size:
            base, length, epoch, magic, crc, delta, producer_id = _read_scanned(piece, at)
            end = at + _LENGTH_OVERHEAD_BYTES + length
            if magic != _MAGIC or end > size or end < at + HEADER_BYTES:
                break
            if base != next_offset and not (has_gaps and base > next_offset):
                break
            if delta < 0 or base + delta > last_offset_max:
                break
            if base >= epoch_end:
                expected_epoch, epoch_end = self._epoch_span(base)
            if expected_epoch is not None and epoch != expected_epoch:
                break
            if crc32c(view[at + _CRC_FROM : end]) != crc:
                break
            has_producers = has_producers or producer_id >= 0
            next_offset, at = Offset(base + delta + 1), end
        self._has_producers |= has_producers
        return Position(position + at), next_offset

    def _epoch_span(self, offset: int) -> tuple[int | None, Offset]:
        """Return the leader epoch that a batch at ``offset`` must have, if any, and the end offset of that epoch."""
        if self._epochs is None:
            return None, Offset(_OFFSET_MAX)
        expected = self._epochs.epoch_for_offset(Offset(offset))
        starts = (entry.start_offset for entry in self._epochs.entries if entry.start_offset > offset)
        return expected, next(starts, Offset(_OFFSET_MAX))

    def _check_batch(self, position: int, next_offset: Offset, *, may_skip: bool = False) -> BatchHeader:
        """Parse and check one batch. The CRC begins at byte 21: check offsets, length and epoch (disk rule 6)."""
        segment = self._segment
        header = parse_header(segment.file.read(position, min(HEADER_BYTES, segment.size_bytes - position)))
        if header.size_bytes > min(segment.size_bytes - position, _BATCH_BYTES_MAX):
            raise CorruptionError(
                f"it says it has {header.size_bytes} bytes, {segment.size_bytes - position} are there"
            )
        may_skip = may_skip or self._has_gaps
        is_next = header.base_offset == next_offset or (may_skip and header.base_offset > next_offset)
        if not is_next or header.last_offset_delta < 0:
            raise CorruptionError(f"its base offset is {header.base_offset}, but {next_offset} comes next")
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            raise CorruptionError(f"its last offset {header.last_offset} is too far from the segment's base")
        if self._epochs is not None:
            expected = self._epochs.epoch_for_offset(Offset(header.base_offset))
            if expected is not None and expected != header.partition_leader_epoch:
                raise CorruptionError(f"its leader epoch is {header.partition_leader_epoch}, not {expected}")
        RecordBatch(segment.file.read(position, header.size_bytes)).check_crc()
        return header

    # Behind damage

    def _find_behind(self, position: Position, next_offset: Offset) -> StoredBatch | None:
        """Return the first good batch behind the bad bytes at ``position``, which should have held ``next_offset``."""
        claimed = self._find_claimed(position, next_offset)
        if claimed is not None:
            return claimed
        for place in self._candidates(position + 1, next_offset):
            batch = self._batch_at(place, Offset(next_offset + 1))
            if batch is not None and self._is_confirmed(batch):
                return batch
            if self._search_bytes <= 0:
                break
        return None

    def _find_claimed(self, position: Position, next_offset: Offset) -> StoredBatch | None:
        """Return the batch behind the bad one, by the length in its header, if the number of offsets also fits."""
        try:
            bad = parse_header(self._segment.file.read(position, HEADER_BYTES))
        except RecordFormatError:
            return None
        following = self._batch_at(position + bad.size_bytes, Offset(next_offset + 1))
        if following is None or bad.last_offset_delta < 0:
            return None
        # The base offset may be the damaged field. Where offsets may be missing, it may be the only evidence.
        bases = {next_offset, bad.base_offset} if self._has_gaps else {next_offset}
        agrees = following.header.base_offset - bad.last_offset_delta - 1 in bases
        return following if agrees else None

    def _batch_at(self, position: int, lowest: Offset) -> StoredBatch | None:
        if position in self._rejected or position + HEADER_BYTES > self._segment.size_bytes:
            return None
        try:
            header = self._check_batch(position, lowest, may_skip=True)
        except (CorruptionError, RecordFormatError):
            return None
        self._search_bytes -= header.size_bytes
        return StoredBatch(Position(position), header) if header.last_offset < self._offset_max else None

    def _is_confirmed(self, batch: StoredBatch) -> bool:
        """Return whether good batches follow ``batch`` without a break to a possible end of the log.

        A single batch may be anything. It counts if it ends at the segment's known end; no CRC covers offsets.
        """
        if batch.header.base_offset > self._durable_end:
            return False
        seen: list[int] = []
        current: StoredBatch | None = batch
        position, next_offset = batch.position, Offset(batch.header.base_offset)
        while current is not None:
            seen.append(current.position)
            position, next_offset = current.end, Offset(current.header.last_offset + 1)
            current = self._batch_at(position, next_offset)
            if current is not None and not self._has_gaps and current.header.base_offset != next_offset:
                current = None
            if current is None and next_offset < self._durable_end:
                current = self._find_claimed(position, next_offset)
        ends_well = position == self._segment.size_bytes or next_offset >= self._durable_end
        if ends_well and (len(seen) >= _CONFIRMING_COUNT or next_offset == self._durable_end):
            return True
        self._rejected.update(seen)
        return False

    def _candidates(self, start: int, next_offset: Offset) -> Iterator[int]:
        """Yield positions from ``start`` where a header may begin: magic 2, and an offset of this segment."""
        high = (next_offset + 1).to_bytes(8, "big")[:_HIGH_BYTES]
        is_high_known = int(self._offset_max).to_bytes(8, "big")[:_HIGH_BYTES] == high
        end = self._segment.size_bytes
        for piece_at in range(start, end, _PIECE_BYTES):
            length = min(_PIECE_BYTES + HEADER_BYTES - 1, end - piece_at)
            content = np.frombuffer(self._segment.file.read(piece_at, length), np.uint8)
            count = len(content) - HEADER_BYTES + 1
            if count <= 0:
                return
            likely = content[_MAGIC_AT : _MAGIC_AT + count] == _MAGIC
            if is_high_known:
                for place, byte in enumerate(high):
                    likely &= content[place : place + count] == byte
            yield from (piece_at + int(found) for found in np.flatnonzero(likely))


def indexed_position(file_system: FileSystem, segment: Segment, offset: Offset | None = None) -> Position:
    """Return the position of the last index entry, or of the last at or below ``offset``, if the log confirms it;
    otherwise 0. The index is read as a plain file.

    Raises:
        OSError: the disk refused.
    """
    path = segment.offset_index.path
    if not file_system.exists(path):
        return Position(0)
    with contextlib.closing(file_system.open(path, writable=False)) as file:
        entry = _last_entry(file, RELATIVE_OFFSET_MAX if offset is None else offset - segment.base_offset)
    if entry is None or not 0 < entry[1] < segment.size_bytes:
        return Position(0)
    relative, position = entry
    try:
        batch = next(segment.walk(position, segment.size_bytes), None)
    except CorruptionError:
        return Position(0)
    known = batch is not None and batch.header.last_offset == segment.base_offset + relative
    return Position(position) if known else Position(0)


def _last_entry(file: File, relative_max: int) -> tuple[int, int] | None:
    """Return the last entry of an offset index with a relative offset of at most ``relative_max``."""

    def entry_at(number: int) -> tuple[int, int]:
        relative, position = OffsetIndex.ENTRY.unpack(
            file.read(number * OffsetIndex.ENTRY_BYTES, OffsetIndex.ENTRY_BYTES)
        )
        return relative, position

    count = file.size() // OffsetIndex.ENTRY_BYTES
    if count and entry_at(count - 1)[0] > relative_max:
        count = bisect_right(range(count), relative_max, key=lambda number: entry_at(number)[0])
    return entry_at(count - 1) if count else None


def leads_to(file_system: FileSystem, segment: Segment, offset: Offset) -> bool:
    """Return whether readers can reach ``offset``: by whole headers, from the index entry before it.

    The segment's first batch must also be readable, because rolling by time needs it.

    Raises:
        OSError: the disk refused.
    """
    try:
        next(segment.walk(0, segment.size_bytes), None)
        for batch in segment.walk(indexed_position(file_system, segment, offset), segment.size_bytes):
            if batch.header.last_offset >= offset:
                break
    except CorruptionError:
        return False
    return True


def written_bytes(file: File, position: int, length: int) -> int:
    """Return the length up to the last byte that is not zero, of ``length`` bytes from ``position``.

    The search ends behind ``ZEROS_BYTES_MAX`` of zeros, because a preallocated file may end with gigabytes of them.
    """
    end = position
    for start in range(position, position + length, _PIECE_BYTES):
        if start - end >= ZEROS_BYTES_MAX:
            break
        piece = file.read(start, min(_PIECE_BYTES, position + length - start))
        if piece != _ZEROS[: len(piece)]:
            end = start + len(piece.rstrip(b"\0"))
    return end - position
