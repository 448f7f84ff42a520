"""Ranges of logs, cut into splits of about equal bytes, between batches, by indexes and headers alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from log_model.offsets import Offset, Position
from log_model.reads import Isolation
from log_model.splits import Split, TooManySplitsError
from storage.index.batch_walk import StoredBatch
from storage.log.log_snapshot import LogSnapshot
from storage.segment.segment import Segment


class _Piece(NamedTuple):
    """One segment's part of the range: bytes ``[first, last)`` of its file, after ``bytes_before`` of the range."""

    segment: Segment
    first: int
    last: int
    bytes_before: int

    @property
    def bytes_end(self) -> int:
        return self.bytes_before + self.last - self.first


class _Cut(NamedTuple):
    """A position between two batches: the number of the range's bytes before it, and the first offset behind it."""

    bytes_before: int
    offset: Offset


class SplittableRange:
    """The offsets ``[start, end)`` of one log as its reader sees them, and the positions of possible cuts.

    A range may begin and end inside a batch. Such a batch counts whole, as a fetch returns it whole.

    Thread: any; reads indexes and headers from the disk, no records.
    """

    def __init__(
        self, snapshot: LogSnapshot, start: int, end: int, isolation: Isolation = Isolation.HIGH_WATERMARK
    ) -> None:
        """Measure the range. ``log start <= start <= end``, and ``end`` is at most the isolation's bound.

        Raises:
            CorruptionError: stored bytes are damaged.
        """
        bound = snapshot.bound(isolation)
        if not snapshot.log_start_offset <= start <= end <= bound.offset:
            raise ValueError(f"[{start}, {end}) is not inside [{snapshot.log_start_offset}, {bound.offset})")
        self.start = Offset(start)
        self.end = Offset(end)
        self._pieces: list[_Piece] = []
        if start < end:
            self._measure(snapshot, isolation)

    def _measure(self, snapshot: LogSnapshot, isolation: Isolation) -> None:
        bound = snapshot.bound(isolation)
        size_bytes = 0
        for segment in snapshot.segments[max(0, bisect_right(snapshot.base_offsets, self.start) - 1) :]:
            if segment.base_offset >= self.end or segment.base_offset > bound.segment_base_offset:
                break
            limit = bound.position if segment.base_offset == bound.segment_base_offset else segment.size_bytes
            first = 0
            if segment.base_offset < self.start:
                batch = segment.locate(self.start, limit)
                first = limit if batch is None else batch.position
            last = limit if self.end == bound.offset else _end_position(segment, self.end, limit)
            if first < last:
                self._pieces.append(_Piece(segment, first, last, size_bytes))
                size_bytes += last - first

    @property
    def size_bytes(self) -> int:
        """Bytes of the batches that hold the range."""
        return self._pieces[-1].bytes_end if self._pieces else 0

    def split(self, count: int, record_count_max: int | None = None, *, count_max: int = 10_000) -> list[Split]:
        """Cut into at most ``count`` ranges of about equal bytes, and cut each range again if it has more offsets than
        ``record_count_max``. A batch is never cut. The splits cover each offset of the range once. An empty range has
        none.

        Raises:
            TooManySplitsError: there would be more than ``count_max``.
            CorruptionError: stored bytes are damaged.
        """
        if self.start == self.end:
            return []
        first, last = _Cut(0, self.start), _Cut(self.size_bytes, self.end)
        cuts = [first]
        for number in range(1, count):
            cut = self._nearest_cut(number * self.size_bytes // count)
            if cut is not None and cut.bytes_before > cuts[-1].bytes_before and self.start < cut.offset < self.end:
                cuts.append(cut)
        cuts.append(last)
        if record_count_max is not None:
            cuts = self._with_fewer_records(cuts, record_count_max, count_max)
        if len(cuts) - 1 > count_max:
            raise TooManySplitsError(f"there would be more than {count_max} splits")
        return [Split(a.offset, b.offset, b.bytes_before - a.bytes_before) for a, b in pairwise(cuts)]

    def _with_fewer_records(self, cuts: Sequence[_Cut], record_count_max: int, count_max: int) -> list[_Cut]:
        cut, *others = cuts
        finer = [cut]
        for following in others:
            while following.offset - finer[-1].offset > record_count_max:
                between = self._cut_before(finer[-1].offset, Offset(finer[-1].offset + record_count_max))
                if between is None or between.offset >= following.offset:
                    break
                finer.append(between)
                if len(finer) > count_max:
                    raise TooManySplitsError(f"there would be more than {count_max} splits")
            finer.append(following)
        return finer

    def _nearest_cut(self, bytes_before: int) -> _Cut | None:
        """Return the position between batches that is nearest to this byte of the range."""
        place = bisect_right(self._pieces, bytes_before, key=lambda piece: piece.bytes_before) - 1
        piece = self._pieces[place]
        target = piece.first + bytes_before - piece.bytes_before
        below: StoredBatch | None = None
        for batch in _walk_near(piece, target):
            if batch.position >= target:
                is_nearer = below is None or batch.position - target < target - below.position
                return _cut_at(piece, batch if below is None or is_nearer else below)
            below = batch
        # The last batch of its segment: the position behind it is the beginning of the next segment.
        if below is not None and target - below.position <= piece.last - target:
            return _cut_at(piece, below)
        return self._beginning_of(place + 1)

    def _cut_before(self, after: Offset, offset: Offset) -> _Cut | None:
        """Return the position before the batch with ``offset``, or behind it if it begins at or below ``after``."""
        place = max(0, bisect_right(self._pieces, offset, key=lambda piece: piece.segment.base_offset) - 1)
        piece = self._pieces[place]
        for batch in piece.segment.walk(_position_of(piece, offset), piece.last):
            if batch.header.last_offset >= offset and batch.header.base_offset > after:
                return _cut_at(piece, batch)
        return self._beginning_of(place + 1)

    def _beginning_of(self, place: int) -> _Cut | None:
        if place >= len(self._pieces):
            return None
        piece = self._pieces[place]
        first = next(piece.segment.walk(piece.first, piece.last), None)
        return None if first is None else _cut_at(piece, first)


def _end_position(segment: Segment, end: Offset, limit: int) -> int:
    """Return the end of the last batch with an offset below ``end``."""
    batch = segment.locate(end, limit)
    if batch is None:
        return limit
    return batch.position if batch.header.base_offset >= end else batch.end


def _position_of(piece: _Piece, offset: Offset) -> int:
    batch = piece.segment.locate(offset, piece.last)
    return piece.last if batch is None else max(piece.first, batch.position)


def _walk_near(piece: _Piece, target: int) -> list[StoredBatch]:
    """Return the batches around byte ``target``: the last one before it and the first one at or behind it."""
    segment = piece.segment
    try:
        entry = segment.offset_index.get().lookup_position(Position(target))
        batch = segment.locate(entry.offset, piece.last)
    except OSError:
        # A disk that cannot open the index makes the walk longer; the result is the same.
        batch = None
    start = piece.first if batch is None or batch.position > target else max(piece.first, batch.position)
    around: list[StoredBatch] = []
    for found in segment.walk(start, piece.last):
        around = [*around[-1:], found]
        if found.position >= target:
            break
    return around


def _cut_at(piece: _Piece, batch: StoredBatch) -> _Cut:
    return _Cut(piece.bytes_before + batch.position - piece.first, Offset(batch.header.base_offset))
