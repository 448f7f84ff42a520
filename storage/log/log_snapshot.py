"""The view that one reader has of a log, and reads from it."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from log_model.errors import CorruptionError, OffsetOutOfRangeError
from log_model.offsets import NO_TIMESTAMP, LogOffsetMetadata, Offset
from log_model.reads import FetchData, FileSlice, Isolation, OffsetRange, SegmentInfo, TimestampedRecord
from log_model.transactions import AbortedTransaction
from rollway.records import BatchHeader
from storage.segment import batch_search
from storage.segment.segment import Segment

# Slices up to this size whose first and last headers were in memory count as cached as a whole.
_CACHED_BYTES_MAX = 128 * 1024
_ASKED_SEGMENTS_MAX = 16


# An enumeration looks its members up in its class; these names save that on every read.
_LAST_STABLE = Isolation.LAST_STABLE
_HIGH_WATERMARK = Isolation.HIGH_WATERMARK
# The constructor that tuples use themselves: a NamedTuple's own is a Python function.
_new_tuple = tuple.__new__


@dataclass(init=False, eq=False, slots=True)
class LogSnapshot:
    """The immutable view of one reader: some segments, up to one bound, for any time.

    Nothing below the bound changes: the log only grows, retention only forgets. Retention may unlink a segment while a
    snapshot holds it; the bytes stay readable until the snapshot is dropped.
    ``log start <= last stable offset <= high watermark <= log end`` holds (invariant 6).

    Thread: share freely. Take it from ``PartitionLog.snapshot`` once per request.
    """

    segments: tuple[Segment, ...]
    base_offsets: tuple[Offset, ...]
    log_start_offset: Offset
    last_stable_metadata: LogOffsetMetadata
    high_watermark_metadata: LogOffsetMetadata
    log_end_metadata: LogOffsetMetadata
    damage: tuple[OffsetRange, ...]
    last_stable_offset: Offset = field(init=False)
    """Everything below belongs to no transaction, or to one whose marker is below the high watermark (spec E22).

    It is the log start if a transaction that began below the log start is still open.
    """
    high_watermark: Offset = field(init=False)
    log_end_offset: Offset = field(init=False)
    facts: object = field(init=False, repr=False)
    """Values that the compiled search keeps about this snapshot."""

    def __init__(
        self,
        segments: tuple[Segment, ...],
        base_offsets: tuple[Offset, ...],
        log_start_offset: Offset,
        last_stable_metadata: LogOffsetMetadata,
        high_watermark_metadata: LogOffsetMetadata,
        log_end_metadata: LogOffsetMetadata,
        damage: tuple[OffsetRange, ...] = (),
    ) -> None:
        # Not a generated one: each append makes a snapshot, and the generated code of a frozen dataclass is slower.
        self.segments = segments
        self.base_offsets = base_offsets
        self.log_start_offset = log_start_offset
        self.last_stable_metadata = last_stable_metadata
        self.high_watermark_metadata = high_watermark_metadata
        self.log_end_metadata = log_end_metadata
        self.damage = damage
        self.facts = None
        self.last_stable_offset = stable = last_stable_metadata[0]
        self.high_watermark = high_watermark = high_watermark_metadata[0]
        self.log_end_offset = log_end = log_end_metadata[0]
        if not log_start_offset <= stable <= high_watermark <= log_end:
            raise AssertionError(
                f"log start {log_start_offset}, last stable offset {stable}, high watermark {high_watermark}, "
                f"log end {log_end} are not in order"
            )

    @property
    def size_bytes(self) -> int:
        """Bytes of all log files, up to the log end."""
        return sum(segment.size_bytes for segment in self.segments[:-1]) + self.log_end_metadata.position

    def bound(self, isolation: Isolation) -> LogOffsetMetadata:
        """Return the end of a read with this isolation."""
        if isolation is Isolation.LAST_STABLE:
            return self.last_stable_metadata
        return self.high_watermark_metadata if isolation is Isolation.HIGH_WATERMARK else self.log_end_metadata

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one: bool = True,
        content_bytes_max: int = 0,
    ) -> FetchData:
        """Find the batches from ``offset``: at most ``max_bytes``, but with ``min_one`` always the whole first batch.

        Continues through gaps and from segment to segment (spec B6, D13, D14). Empty if ``offset`` is at or above the
        isolation's bound. A slice of ``content_bytes_max`` or less may come with its content.

        Raises:
            ValueError: ``max_bytes`` is negative.
            OffsetOutOfRangeError: ``offset`` is below the log start or above the log end.
            CorruptionError: ``offset`` lies in a damaged range, or stored bytes are damaged.
        """
        if max_bytes < 0:
            raise ValueError(f"a read of {max_bytes} bytes is not possible")
        self._check_range(offset)
        bound = self.bound(isolation)
        slices: list[FileSlice] = []
        next_offset = offset
        remaining = max_bytes
        for segment, limit in self._segments_from(offset, bound):
            self._check_damage(next_offset, keep_what_was_read=bool(slices))
            if self._damaged(next_offset):
                break
            found = segment.read(
                next_offset,
                limit,
                remaining,
                min_one=min_one and not slices,
                content_bytes_max=content_bytes_max,
            )
            if found is None:
                next_offset = max(next_offset, self._end_of(segment, bound))
                continue
            if found.size_bytes == 0:
                break
            slices.append(FileSlice(segment.file, found.position, found.size_bytes, found.content))
            remaining = max(0, remaining - found.size_bytes)
            next_offset = found.next_offset
            if found.position + found.size_bytes < limit:
                break
        if isolation is not Isolation.LAST_STABLE:
            return FetchData(tuple(slices), next_offset)
        return FetchData(tuple(slices), next_offset, self._aborted(offset, next_offset) if slices else ())

    def read_cached(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one: bool = True,
        content_bytes_max: int = 0,
    ) -> FetchData | None:
        """Read as ``read``, but only from memory: for the event loop. ``None`` if it would or may wait for the disk.

        Also ``None`` outside the log, near damage, and where only the general search can decide. Then ``read`` decides,
        in a thread.
        """
        is_stable = isolation is _LAST_STABLE
        search = batch_search.compiled
        if search is not None and min_one and (is_stable or isolation is _HIGH_WATERMARK):
            found = search.read(self, offset, max_bytes, content_bytes_max, is_stable)
            if found is not None:
                file, position, size_bytes, next_offset, content, is_cached, _limits = found
                piece = _new_tuple(FileSlice, (file, position, size_bytes, content, is_cached))
                return _new_tuple(FetchData, ((piece,), next_offset, () if is_stable else None))
        if not self.log_start_offset <= offset <= self.log_end_offset:
            return None
        bound = self.high_watermark_metadata if isolation is _HIGH_WATERMARK else self.bound(isolation)
        if offset >= bound[0]:
            return FetchData((), offset, () if is_stable else None)
        if self.damage or max_bytes < 0 or bound[1] < 0 or (is_stable and not self.has_none_aborted(offset)):
            return None
        segments = self.segments
        place = max(0, bisect_right(self.base_offsets, offset) - 1)
        slices: list[FileSlice] = []
        next_offset = offset
        remaining = max_bytes
        while place < len(segments):
            segment = segments[place]
            on_bound = segment.base_offset == bound[1]
            limit = bound[2] if on_bound else segment.size_bytes
            read = segment.batch_search.find_cached(
                next_offset, limit, remaining, min_one=min_one and not slices, content_bytes_max=content_bytes_max
            )
            if read is None:
                return None
            position, size_bytes, next_offset, content, is_cached = read
            if size_bytes == 0:
                break
            is_cached = is_cached or size_bytes <= _CACHED_BYTES_MAX
            slices.append(_new_tuple(FileSlice, (segment.file, position, size_bytes, content, is_cached)))
            remaining -= size_bytes
            if on_bound or position + size_bytes < limit:
                break
            # The whole first batch may be larger than ``max_bytes``.
            remaining = max(0, remaining)
            place += 1
        return _new_tuple(FetchData, (tuple(slices), next_offset, () if is_stable else None))

    def headers_from(self, offset: Offset, isolation: Isolation = Isolation.HIGH_WATERMARK) -> Iterator[BatchHeader]:
        """Yield the headers of all visible batches from the one with ``offset``, including control batches.

        Raises:
            CorruptionError: stored bytes are damaged.
        """
        for segment, limit in self._segments_from(offset, self.bound(isolation)):
            first = segment.locate(offset, limit)
            if first is not None:
                for batch in segment.walk(first.position, limit):
                    yield batch.header

    def has_none_aborted(self, offset: Offset) -> bool:
        """Return whether memory tells that no transaction with records at or above ``offset`` was aborted.

        Each segment from the one with ``offset`` on counts: a marker may be in a later segment than its records.
        """
        segments = self.segments[max(0, bisect_right(self.base_offsets, offset) - 1) :]
        return len(segments) <= _ASKED_SEGMENTS_MAX and all(
            segment.transactions.are_known_to_be_none for segment in segments
        )

    def aborted_between(self, offset: Offset, end: Offset) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that overlap ``[offset, end)``, up to the last stable offset."""
        return self._aborted(offset, min(end, self.last_stable_offset))

    def _aborted(self, offset: Offset, end: Offset) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that overlap ``[offset, end)``, below the last stable offset (spec E23).

        Their entries were written before the last stable offset passed them, in the segments of their markers.
        """
        found: list[AbortedTransaction] = []
        for segment in self.segments[max(0, bisect_right(self.base_offsets, offset) - 1) :]:
            here = segment.transactions.collect(offset, end)
            found += here.transactions
            if here.is_complete:
                break
        return tuple(found)

    def available_bytes(self, offset: Offset, isolation: Isolation = Isolation.HIGH_WATERMARK) -> int:
        """Return the bytes from the batch with ``offset`` to the bound, for ``min_bytes`` (spec D6).

        Raises:
            OffsetOutOfRangeError: as ``read``.
        """
        self._check_range(offset)
        bound = self.bound(isolation)
        if offset >= bound.offset:
            return 0
        total = 0
        for segment, limit in self._segments_from(offset, bound):
            if segment.base_offset >= offset:
                total += limit
            elif (batch := segment.locate(offset, limit)) is not None:
                total += limit - batch.position
        return total

    def place_of(self, offset: Offset) -> LogOffsetMetadata:
        """Return the position of the batch with ``offset``, or of the next one after a gap; at most the log end.

        Raises:
            CorruptionError: stored bytes are damaged.
        """
        for segment, limit in self._segments_from(offset, self.log_end_metadata):
            batch = segment.locate(offset, limit)
            if batch is not None:
                return LogOffsetMetadata(offset, segment.base_offset, batch.position)
        return LogOffsetMetadata(offset, self.log_end_metadata.segment_base_offset, self.log_end_metadata.position)

    def offset_for_timestamp(
        self,
        timestamp: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        *,
        start_offset: Offset | None = None,
        latest: int | None = None,
        bytes_max: int | None = None,
    ) -> TimestampedRecord | None:
        """Return the first visible record, in offset order, at or after ``timestamp`` (spec ListOffsets).

        Records below ``start_offset`` or after ``latest`` do not count. With ``bytes_max`` a record that lies further
        behind the start may be missed: a fetch of this many bytes would not return it.
        """
        bound, start = self.bound(isolation), self.log_start_offset
        if start_offset is not None and start_offset > start:
            start = start_offset
        if start >= bound.offset:
            return None
        place = max(0, bisect_right(self.base_offsets, start) - 1)
        if start_offset is None:
            place += bisect_left(self._maxima_from(place), timestamp)
        for segment, limit in self._segments_at(place, bound):
            if segment.largest_timestamp.timestamp < timestamp:
                continue
            found = segment.find_timestamp(timestamp, start, limit, latest=latest, bytes_max=bytes_max)
            if found is not None:
                return found if found.offset < bound.offset else None
        return None

    def _maxima_from(self, first: int) -> Sequence[int]:
        """Return the running maximum of timestamps for each segment from ``first`` on, except the active one.

        The active segment keeps it: the segments before it are sealed, and stay the same until the active segment or
        the log start changes.
        """
        active, base_offset = self.segments[-1], self.base_offsets[first]
        known = active.maxima_before
        if known is None or known[0] != base_offset:
            largest = (segment.largest_timestamp.timestamp for segment in self.segments[first:-1])
            known = active.maxima_before = (base_offset, array("q", accumulate(largest, max)))
        return known[1]

    def max_timestamp(self, isolation: Isolation = Isolation.HIGH_WATERMARK) -> TimestampedRecord | None:
        """Return the first record with the largest timestamp, if it is visible (spec ListOffsets, -3).

        With isolation ``LAST_STABLE`` records up to the high watermark count. If the largest lies at or above the last
        stable offset, there is no result, as on a broker: never a record with a smaller timestamp (case F-14b).
        """
        bound = self.bound(isolation)
        looked_at = self.high_watermark_metadata if isolation is _LAST_STABLE else bound
        best: TimestampedRecord | None = None
        for segment, limit in self._segments_from(self.log_start_offset, looked_at):
            if best is not None and segment.largest_timestamp.timestamp <= best.timestamp:
                continue
            found = self._max_timestamp_of(segment, limit)
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
        return best if best is not None and best.offset < bound.offset else None

    def _max_timestamp_of(self, segment: Segment, limit: int) -> TimestampedRecord | None:
        if segment.base_offset < self.log_start_offset or limit != segment.size_bytes:
            return segment.find_max_timestamp(self.log_start_offset, limit)
        largest = segment.largest_timestamp
        if largest.timestamp == NO_TIMESTAMP:
            return None
        found = segment.find_timestamp(largest.timestamp, self.log_start_offset, limit)
        # The writer may be ahead of this snapshot: then search for the largest that the snapshot shows.
        return found or segment.find_max_timestamp(self.log_start_offset, limit)

    def segment_infos(self) -> list[SegmentInfo]:
        """Return every segment, oldest first."""
        infos = []
        for place, segment in enumerate(self.segments):
            last = place == len(self.segments) - 1
            infos.append(
                SegmentInfo(
                    base_offset=segment.base_offset,
                    next_offset=self.log_end_offset if last else self.base_offsets[place + 1],
                    size_bytes=self.log_end_metadata.position if last else segment.size_bytes,
                    first_timestamp=segment.first_record_timestamp(),
                    largest_timestamp=segment.largest_timestamp.timestamp,
                    offset_index_entries=segment.offset_index.ask(lambda index: index.entry_count),
                    time_index_entries=segment.time_index.ask(lambda index: index.entry_count),
                    state="active" if last else "sealed",
                )
            )
        return infos

    def _check_range(self, offset: Offset) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            side = "below the log start" if offset < self.log_start_offset else "above the log end"
            raise OffsetOutOfRangeError(
                f"offset {offset} is {side}; offsets {self.log_start_offset} to {self.log_end_offset} can be asked for",
                offset=offset,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
            )

    def _segments_from(self, offset: Offset, bound: LogOffsetMetadata) -> Iterator[tuple[Segment, int]]:
        """Yield the segments from the one with ``offset``, each with the end of its readable bytes (spec D13)."""
        if offset >= bound.offset:
            return iter(())
        return self._segments_at(max(0, bisect_right(self.base_offsets, offset) - 1), bound)

    def _segments_at(self, place: int, bound: LogOffsetMetadata) -> Iterator[tuple[Segment, int]]:
        """Yield as ``_segments_from``, from the segment with this index in the snapshot."""
        for segment in self.segments[place:]:
            if segment.base_offset > bound.segment_base_offset:
                return
            on_bound = segment.base_offset == bound.segment_base_offset
            yield segment, bound.position if on_bound else segment.size_bytes

    def _end_of(self, segment: Segment, bound: LogOffsetMetadata) -> Offset:
        place = bisect_right(self.base_offsets, segment.base_offset)
        return min(bound.offset, self.base_offsets[place] if place < len(self.base_offsets) else bound.offset)

    def _damaged(self, offset: Offset) -> bool:
        return any(damaged.start <= offset < damaged.end for damaged in self.damage)

    def _check_damage(self, offset: Offset, *, keep_what_was_read: bool) -> None:
        if self._damaged(offset) and not keep_what_was_read:
            damaged = next(entry for entry in self.damage if entry.start <= offset < entry.end)
            raise CorruptionError(
                f"offsets {damaged.start} to {damaged.end} are damaged on disk; offsets below and above can be read"
            )
