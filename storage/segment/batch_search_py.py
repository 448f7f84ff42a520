"""Finding whole batches of a segment by few looks at their headers, in plain Python.

The search knows only the plain case. It leaves everything else to the general search of ``Segment``, and to the errors
of that search: a garbled index, damage, or a gap where there may be none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from log_model.offsets import Offset, Position
from rollway.records import HEADER_BYTES, LOG_OVERHEAD_BYTES
from rollway.records.batch import MAGIC
from storage.index.index_file import RELATIVE_OFFSET_MAX
from storage.segment.index_copies import IndexCopy, IndexLookups

_HEAD_BYTES = 27
_PIECE_BYTES = 4096
_SHORT_BYTES = 1024
_STEPS_MAX = 512
"""Batches that one search looks at; the general search takes over where an index is thinner."""
_UNINDEXED_BYTES_MAX = 64 * 1024
_THIN_STEPS = 64

# Of a batch's header: base offset, length, magic, last offset delta.
_read_head = struct.Struct(">qi4xb6xi").unpack_from
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES

IndexTable = IndexCopy | IndexLookups
Reader = Callable[[int, int], bytes | bytearray | None]
"""Returns up to this many bytes (second) from a position on (first); ``None`` if they are not in memory."""


class SegmentRead(NamedTuple):
    """Whole batches of one segment: where they begin, their length, and the offset after the last.

    ``content`` are their bytes, if the search has read them already. ``is_cached``: both ends are in memory, with
    little between them.
    """

    position: Position
    size_bytes: int
    next_offset: Offset
    content: memoryview | None = None
    is_cached: bool = False


class UnusualError(Exception):
    """The batches are not in memory, or the case is not plain: the general search must decide."""


class IndexNeededError(UnusualError):
    """The search needs the index, or a newer copy of it."""


class _Walk:
    """Stands on one batch after the other: from ``position`` to ``end``, offsets ``base_offset`` to ``last_offset``.

    It reads the heads alone, unless batches are so short that one read brings several.
    """

    __slots__ = (
        *("_has_gaps", "_limit", "_piece", "_piece_at", "_read", "_segment_base", "_steps"),
        *("base_offset", "end", "last_offset", "position"),
    )

    def __init__(self, read: Reader, segment_base: Offset, limit: int, *, has_gaps: bool) -> None:
        self._read = read
        self._segment_base = segment_base
        self._limit = limit
        self._has_gaps = has_gaps
        self._steps = 0
        self._piece: bytes | bytearray = b""
        self._piece_at = self.position = self.end = self.base_offset = self.last_offset = 0

    def load(self, position: int, length: int) -> None:
        """Load ``length`` bytes from ``position`` on, fewer where the limit comes before."""
        if not 0 <= position < self._limit:
            raise UnusualError
        length = min(length, self._limit - position)
        piece = self._read(position, length)
        if piece is None or len(piece) != length:
            raise UnusualError
        self._piece, self._piece_at = piece, position

    def begin(self, position: int) -> None:
        """Stand on the batch at ``position``, whatever lies before it."""
        self.end, self.last_offset = position, self._segment_base - 1
        self._go_on(may_skip=position > 0)

    def go_on(self) -> None:
        """Stand on the next batch."""
        self._go_on(may_skip=self._has_gaps)

    def _go_on(self, *, may_skip: bool) -> None:
        position, limit = self.end, self._limit
        at = position - self._piece_at
        if not 0 <= at <= len(self._piece) - _HEAD_BYTES:
            is_short = position - self.position < _SHORT_BYTES and self._steps
            self.load(position, _PIECE_BYTES if is_short else _HEAD_BYTES)
            at = 0
            if limit - position < HEADER_BYTES:
                raise UnusualError
        base_offset, length, magic, delta = _read_head(self._piece, at)
        expected = self.last_offset + 1
        last_offset = base_offset + delta
        end = position + length + LOG_OVERHEAD_BYTES
        self._steps += 1
        if (
            magic != MAGIC
            or length < _LENGTH_MIN
            or end > limit
            or delta < 0
            or not (base_offset == expected or (may_skip and base_offset > expected))
            or last_offset - self._segment_base > RELATIVE_OFFSET_MAX
            or self._steps > _STEPS_MAX
        ):
            raise UnusualError
        self.position, self.end, self.base_offset, self.last_offset = position, end, base_offset, last_offset

    def content(self, start: int, end: int) -> memoryview:
        """Return the bytes from ``start`` to ``end``, which were loaded."""
        return memoryview(self._piece)[start - self._piece_at : end - self._piece_at]

    def has(self, start: int, end: int) -> bool:
        """Return whether the bytes from ``start`` to ``end`` are loaded."""
        return self._piece_at <= start and end <= self._piece_at + len(self._piece)


def find(
    read: Reader,
    table: IndexTable | None,
    segment_base: Offset,
    has_gaps: bool,
    interval_bytes: int,
    place: int,
    offset: Offset,
    limit: int,
    max_bytes: int,
    min_one: bool,
    content_bytes_max: int,
) -> SegmentRead:
    """Find whole batches from the one that holds ``offset`` on, as ``Segment.read``.

    ``place`` is the position of the batch with ``offset`` if it is known, else -1. Without ``table`` nothing is known
    of the index. ``interval_bytes`` is the setting that the index was written with.

    Raises:
        UnusualError: the case is not plain, or ``read`` returned ``None``; the general search must decide.
        IndexNeededError: a copy of the index is missing or too old.
    """
    walk = _Walk(read, segment_base, limit, has_gaps=has_gaps)
    load_bytes = max_bytes if max_bytes <= content_bytes_max else _HEAD_BYTES
    if 0 <= place < limit:
        walk.load(place, load_bytes)
        walk.begin(place)
        # A remembered place has no batch before it that the next one must follow: without gaps it begins at ``offset``.
        if walk.base_offset < offset or (walk.base_offset > offset and not has_gaps):
            raise UnusualError
    else:
        _go_to_first(walk, table, offset, limit, load_bytes)
    first, end, next_offset = walk.position, walk.end, walk.last_offset + 1
    end_max = first + max_bytes
    if end > end_max:
        if not min_one:
            return SegmentRead(Position(first), 0, offset)
        return SegmentRead(Position(first), end - first, Offset(next_offset))
    stop = min(end_max, limit)
    is_content_wanted = stop - first <= content_bytes_max
    if is_content_wanted:
        if not walk.has(first, stop):
            walk.load(first, stop - first)
    elif stop - first > 2 * interval_bytes:
        end, next_offset = _go_near_end(walk, table, stop, end_max)
    while end < stop and (stop == limit or stop - end >= HEADER_BYTES):
        walk.go_on()
        if walk.end > end_max:
            break
        end, next_offset = walk.end, walk.last_offset + 1
    content = walk.content(first, end) if is_content_wanted else None
    return SegmentRead(Position(first), end - first, Offset(next_offset), content)


def _go_to_first(walk: _Walk, table: IndexTable | None, offset: Offset, limit: int, load_bytes: int) -> None:
    """Stand on the first batch that ends at or above ``offset``; perhaps with ``load_bytes`` of it loaded."""
    if table is None:
        raise IndexNeededError
    slot = table.slot_of(offset)
    # An index carries no checksum: the log must confirm what it says.
    if slot + 1 < table.entry_count:
        entry_offset, position = table.entry(slot + 1)
        if position < limit:
            # Most often the batch of the next entry is the one; its head tells.
            walk.load(position, load_bytes)
            walk.begin(position)
            if walk.last_offset != entry_offset:
                raise UnusualError
            if walk.base_offset <= offset <= entry_offset:
                return
    entry_offset, position = table.entry(slot)
    walk.begin(position)
    if position and walk.last_offset != entry_offset:
        raise UnusualError
    steps = 0
    while walk.last_offset < offset:
        steps += 1
        if walk.end >= limit:
            raise UnusualError
        if steps == _THIN_STEPS and slot + 1 == table.entry_count:
            # The copy may be old.
            raise IndexNeededError
        walk.go_on()


def _go_near_end(walk: _Walk, table: IndexTable | None, stop: int, end_max: int) -> tuple[int, int]:
    """Stand near the last batch that ends at or below ``end_max``.

    Return the end of the batches that fit for certain, and the offset after them.
    """
    here = walk.end, walk.last_offset + 1
    if table is None:
        if stop - walk.position <= _UNINDEXED_BYTES_MAX:
            return here
        raise IndexNeededError
    slot = table.slot_at(stop - 1)
    entry_offset, position = table.entry(slot)
    if slot + 1 == table.entry_count and stop - max(position, walk.end) > _UNINDEXED_BYTES_MAX:
        raise IndexNeededError
    if position <= walk.end:
        return here
    walk.begin(position)
    if walk.last_offset != entry_offset or walk.base_offset < here[1]:
        raise UnusualError
    if walk.end > end_max:
        # This batch reaches beyond. All batches before it fit.
        walk.end, walk.last_offset = position, walk.base_offset - 1
    return walk.end, walk.last_offset + 1
