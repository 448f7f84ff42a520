"""Finding whole batches of a segment in a few looks, also without ever waiting for the disk.

The quick way of reading: it reads as few headers as the index allows, and where a memory of earlier reads tells where
to begin, not even the index. It knows only the plain case. Whatever is out of the ordinary, a garbled index, damage, a
gap where none may be, it leaves to the general way, which is ``Segment``'s, and to that one's errors; so both ways
give the same answers, or this one gives none.
"""

from __future__ import annotations

import struct
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple, Protocol, cast

import numpy as np

from log_model.offsets import Offset, Position
from rollway.records import HEADER_BYTES, LOG_OVERHEAD_BYTES
from rollway.records.batch import MAGIC
from rollway.records.compiled import load
from storage.disk.file_system import File, FileSystem, LocalFile
from storage.index.index_file import RELATIVE_OFFSET_MAX
from storage.index.lazy_index import LazyIndex
from storage.index.offset_index import OffsetIndex
from storage.segment.segment_file import SegmentFile

COPIED_INDEX_BYTES_MAX = 64 * 1024 * 1024
"""So much memory the copies of all indexes take together."""
MISSES_SECONDS = 10.0
"""An index that is missed twice in such a time is worth a copy."""

_HEAD_BYTES = 27
_PIECE_BYTES = 4096
_SHORT_BYTES = 1024
_STEPS_MAX = 512
"""Batches that are looked at in one search; the general way takes over where an index is so thin."""
_PLACES_MAX = 64
_UNINDEXED_BYTES_MAX = 64 * 1024
_THIN_STEPS = 64

# Of a batch's header: base offset, length, magic, last offset delta.
_read_head = struct.Struct(">qi4xb6xi").unpack_from
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES

_Reader = Callable[[int, int], bytes | bytearray | None]
"""Up to so many bytes from a position on; None when they are not in memory."""


class SegmentRead(NamedTuple):
    """Whole batches of one segment: where they begin, their length, and the offset after the last.

    ``content`` are their bytes, where finding them has read those already. ``is_cached``: both ends are in memory, and
    what lies between is not much.
    """

    position: Position
    size_bytes: int
    next_offset: Offset
    content: memoryview | None = None
    is_cached: bool = False


# As the tuples make themselves, without a function of theirs for each.
_new_tuple = tuple.__new__


class CompiledSearch(Protocol):
    """What ``batch_search_c.pyx`` has."""

    def find(
        self,
        descriptor: int,
        offsets: array[int],
        positions: array[int],
        segment_base: int,
        has_gaps: bool,
        interval_bytes: int,
        place: int,
        offset: int,
        limit: int,
        max_bytes: int,
        min_one: bool,
        content_bytes_max: int,
    ) -> tuple[int, int, int, memoryview | None, bool] | None:
        """What a ``SegmentRead`` has; ``None`` leaves it to the way in Python."""

    def read(
        self, snapshot: object, offset: int, max_bytes: int, content_bytes_max: int, is_stable: bool = False
    ) -> tuple[File, int, int, int, memoryview | None, bool, tuple[int, int, int]] | None:
        """What ``LogSnapshot.read_cached`` finds, where it is one slice of one segment and nothing was aborted.

        File, position, length, next offset, content, whether it is in memory, and log start, high watermark and last
        stable offset, the same tuple for each read of a snapshot; ``None`` leaves it to that.
        """

    def seems_cached(self, descriptor: int, position: int, length: int, apart: int) -> bool:
        """Whether a stretch is in memory at both ends and at places between; also yes where nobody can tell."""


search = cast("CompiledSearch | None", load("storage.segment.batch_search_c"))
"""The compiled way of ``BatchSearch.find_cached``, or ``None``; looked up here with every call."""


class _Unusual(Exception):  # noqa: N818 - a way out, caught in this module
    """Not in memory, or not plain: somebody else must look."""


class _Walk:
    """Stands on one batch after the other: from ``position`` to ``end``, offsets ``base_offset`` to ``last_offset``.

    It reads the heads alone, unless batches are so short that one read brings several.
    """

    __slots__ = (
        *("_has_gaps", "_limit", "_piece", "_piece_at", "_read", "_segment_base", "_steps"),
        *("base_offset", "end", "last_offset", "position"),
    )

    def __init__(self, read: _Reader, segment_base: Offset, limit: int, *, has_gaps: bool) -> None:
        self._read = read
        self._segment_base = segment_base
        self._limit = limit
        self._has_gaps = has_gaps
        self._steps = 0
        self._piece: bytes | bytearray = b""
        self._piece_at = self.position = self.end = self.base_offset = self.last_offset = 0

    def load(self, position: int, length: int) -> None:
        """Have ``length`` bytes from ``position`` on at hand, fewer where the limit comes before."""
        if not 0 <= position < self._limit:
            raise _Unusual
        length = min(length, self._limit - position)
        piece = self._read(position, length)
        if piece is None or len(piece) != length:
            raise _Unusual
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
                raise _Unusual
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
            raise _Unusual
        self.position, self.end, self.base_offset, self.last_offset = position, end, base_offset, last_offset

    def content(self, start: int, end: int) -> memoryview:
        """The bytes from ``start`` to ``end``, which are at hand."""
        return memoryview(self._piece)[start - self._piece_at : end - self._piece_at]

    def has(self, start: int, end: int) -> bool:
        """Whether those bytes are at hand."""
        return self._piece_at <= start and end <= self._piece_at + len(self._piece)


class _IndexCopy:
    """The entries of an offset index in two native arrays, so that looking into them needs no page of the file.

    ``confirmed`` has a bit for each, lowest first, which the compiled way sets where the log has confirmed the entry.
    """

    __slots__ = ("_base_offset", "confirmed", "offsets", "positions")

    def __init__(self, base_offset: Offset, content: bytes, before: _IndexCopy | None = None) -> None:
        """``content`` are the entries behind those of ``before``."""
        entries = np.frombuffer(content, ">i4").astype("=i4")
        self._base_offset = base_offset
        self.offsets = array("i", entries[0::2].tobytes())
        self.positions = array("i", entries[1::2].tobytes())
        self.confirmed = bytearray()
        if before is not None:
            self.offsets = before.offsets + self.offsets
            self.positions = before.positions + self.positions
            self.confirmed += before.confirmed
        self.confirmed += bytes(-(-len(self.offsets) // 8) - len(self.confirmed))

    @property
    def entry_count(self) -> int:
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        return self.entry_count * OffsetIndex.ENTRY_BYTES

    def slot_of(self, offset: int) -> int:
        """The slot of the greatest offset not above ``offset``, or -1."""
        return bisect_right(self.offsets, offset - self._base_offset) - 1

    def slot_at(self, position: int) -> int:
        """The slot of the greatest position not above ``position``, or -1."""
        return bisect_right(self.positions, position) - 1

    def entry(self, slot: int) -> tuple[int, int]:
        """Offset and position; of slot -1 the segment's beginning."""
        if slot < 0:
            return self._base_offset, 0
        return self._base_offset + self.offsets[slot], self.positions[slot]


_NO_ENTRIES = _IndexCopy(Offset(0), b"")


class _IndexLookups:
    """An open index asked as a copy is, for threads; it knows of no entry but the one below."""

    __slots__ = ("_found", "_index", "entry_count")

    def __init__(self, index: OffsetIndex) -> None:
        self._index = index
        self._found: tuple[int, int] = (index.base_offset, 0)
        self.entry_count = -1

    def slot_of(self, offset: int) -> int:
        """Look up; ``entry`` tells what was found."""
        self._found = self._index.lookup(Offset(offset))
        return -1

    def slot_at(self, position: int) -> int:
        """As ``slot_of``, by position."""
        self._found = self._index.lookup_position(Position(position))
        return -1

    def entry(self, _: int) -> tuple[int, int]:
        """What the last look-up found."""
        return self._found


class _Copies:
    """All copies of indexes in memory: within a limit, the oldest go first. Thread: any."""

    def __init__(self, size_bytes_max: int) -> None:
        self._lock = threading.Lock()
        self._left_bytes = size_bytes_max
        self.by_key: dict[object, _IndexCopy] = {}

    def get(self, key: object) -> _IndexCopy | None:
        return self.by_key.get(key)

    def put(self, key: object, copy: _IndexCopy) -> None:
        """Keep ``copy``; others may have to go for it."""
        with self._lock:
            before = self.by_key.pop(key, None)
            self._left_bytes += (0 if before is None else before.size_bytes) - copy.size_bytes
            self.by_key[key] = copy
            while self._left_bytes < 0:
                self._left_bytes += self.by_key.pop(next(iter(self.by_key))).size_bytes


_COPIES = _Copies(COPIED_INDEX_BYTES_MAX)


class BatchSearch:
    """The quick way of reading one segment. Make a new one when the segment was cut: places are remembered.

    Thread: any.
    """

    __slots__ = (
        *("_clock", "_copies", "_file_system", "_has_gaps", "_index", "_interval_bytes", "_is_copy_wanted", "_key"),
        *("_log", "_missed_at", "_places", "facts"),
    )

    def __init__(
        self,
        file_system: FileSystem,
        log: SegmentFile,
        index: LazyIndex[OffsetIndex],
        interval_bytes: int,
        *,
        has_gaps: bool,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._file_system = file_system
        self._log = log
        self._index = index
        self._interval_bytes = interval_bytes
        self._has_gaps = has_gaps
        self._clock = clock
        # Offsets that reads ended before, and where the next batch begins: consumers go on there.
        self._places: dict[int, int] = {}
        self._key = object()
        self.facts: object = None
        """What the compiled way remembers of this one."""
        # All of them, where the compiled way looks.
        self._copies = _COPIES.by_key
        self._missed_at = float("-inf")
        self._is_copy_wanted = False

    def find(
        self, offset: Offset, limit: int, max_bytes: int, *, min_one: bool, content_bytes_max: int
    ) -> SegmentRead | None:
        """What ``Segment.read`` says, or None when only the general way can tell. May wait for the disk."""
        if self._log.holes or not self._index.is_open:
            return None
        index = self._index.get()
        if self._is_copy_wanted:
            self._is_copy_wanted = False
            self._copy(index)
        table = _COPIES.get(self._key) or _IndexLookups(index)
        try:
            return self._find(self._log.file.read, table, offset, limit, max_bytes, min_one, content_bytes_max)
        except _Unusual:
            return None

    def find_cached(
        self, offset: Offset, limit: int, max_bytes: int, *, min_one: bool, content_bytes_max: int
    ) -> SegmentRead | None:
        """As ``find``, but None also when the disk would have to be waited for, or may have to be."""
        log = self._log
        if log.holes or not log.is_open:
            return None
        file, table = log.file, _COPIES.get(self._key)
        try:
            if search is not None and file.__class__ is LocalFile:
                found = self._find_compiled(search, file, table, offset, limit, max_bytes, min_one, content_bytes_max)
                if found is not None:
                    return found
            return self._find(file.read_cached, table, offset, limit, max_bytes, min_one, content_bytes_max)
        except (_Unusual, OSError, ValueError):
            # Errors are told by who may wait for the disk.
            return None

    def _find_compiled(
        self,
        way: CompiledSearch,
        file: File,
        table: _IndexCopy | None,
        offset: Offset,
        limit: int,
        max_bytes: int,
        min_one: bool,
        content_bytes_max: int,
    ) -> SegmentRead | None:
        base_offset, places = self._log.base_offset, self._places
        place = 0 if offset == base_offset else places.get(offset, -1)
        if table is None:
            if place < 0:
                return None
            table = _NO_ENTRIES
        found = way.find(
            file.fileno(),
            table.offsets,
            table.positions,
            base_offset,
            self._has_gaps,
            self._interval_bytes,
            place,
            offset,
            limit,
            max_bytes,
            min_one,
            content_bytes_max,
        )
        if found is None:
            return None
        position, size_bytes, next_offset, _, _ = found
        if size_bytes:
            if len(places) >= _PLACES_MAX:
                places.clear()
            places[next_offset] = position + size_bytes
        return _new_tuple(SegmentRead, found)

    def _miss(self) -> _Unusual:
        """The index is needed: who needs it twice in a while gets a copy, which a thread makes."""
        now = self._clock()
        if now - self._missed_at < MISSES_SECONDS:
            self._is_copy_wanted = True
        self._missed_at = now
        return _Unusual()

    def _copy(self, index: OffsetIndex) -> None:
        """Copy the index, or what was added since, from its file: a thread that waits for a page of a mapping holds up
        all others, unlike one that reads.
        """
        before = _COPIES.get(self._key)
        position = 0 if before is None else before.size_bytes
        size_bytes = index.file.size_bytes
        try:
            file = self._file_system.open(index.path, writable=False)
        except OSError:
            # Renamed just now, say.
            return
        try:
            content = file.read(position, size_bytes - position) if position < size_bytes else b""
        finally:
            file.close()
        if content and len(content) % OffsetIndex.ENTRY_BYTES == 0:
            _COPIES.put(self._key, _IndexCopy(self._log.base_offset, content, before))

    def _find(
        self,
        read: _Reader,
        table: _IndexCopy | _IndexLookups | None,
        offset: Offset,
        limit: int,
        max_bytes: int,
        min_one: bool,
        content_bytes_max: int,
    ) -> SegmentRead:
        walk = _Walk(read, self._log.base_offset, limit, has_gaps=self._has_gaps)
        self._go_to_first(walk, table, offset, limit, max_bytes if max_bytes <= content_bytes_max else _HEAD_BYTES)
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
        elif stop - first > 2 * self._interval_bytes:
            end, next_offset = self._go_near_end(walk, table, stop, end_max)
        while end < stop and (stop == limit or stop - end >= HEADER_BYTES):
            walk.go_on()
            if walk.end > end_max:
                break
            end, next_offset = walk.end, walk.last_offset + 1
        places = self._places
        if len(places) >= _PLACES_MAX:
            places.clear()
        places[next_offset] = end
        content = walk.content(first, end) if is_content_wanted else None
        return SegmentRead(Position(first), end - first, Offset(next_offset), content)

    def _go_to_first(
        self, walk: _Walk, table: _IndexCopy | _IndexLookups | None, offset: Offset, limit: int, load_bytes: int
    ) -> None:
        """Stand on the first batch that ends at or above ``offset``; perhaps with ``load_bytes`` of it at hand."""
        place = 0 if offset == self._log.base_offset else self._places.get(offset)
        if place is not None and place < limit:
            walk.load(place, load_bytes)
            walk.begin(place)
            if walk.base_offset < offset:
                raise _Unusual
            return
        if table is None:
            raise self._miss()
        slot = table.slot_of(offset)
        # An index carries no checksum: the log must confirm what it says.
        if slot + 1 < table.entry_count:
            entry_offset, position = table.entry(slot + 1)
            if position < limit:
                # Most often the batch of the next entry is the one; its head tells.
                walk.load(position, load_bytes)
                walk.begin(position)
                if walk.last_offset != entry_offset:
                    raise _Unusual
                if walk.base_offset <= offset <= entry_offset:
                    return
        entry_offset, position = table.entry(slot)
        walk.begin(position)
        if position and walk.last_offset != entry_offset:
            raise _Unusual
        steps = 0
        while walk.last_offset < offset:
            steps += 1
            if walk.end >= limit:
                raise _Unusual
            if steps == _THIN_STEPS and slot + 1 == table.entry_count:
                # The copy may be old.
                raise self._miss()
            walk.go_on()

    def _go_near_end(
        self, walk: _Walk, table: _IndexCopy | _IndexLookups | None, stop: int, end_max: int
    ) -> tuple[int, int]:
        """Stand near the last batch that ends at or below ``end_max``. Up to where it is sure that all fits, then."""
        here = walk.end, walk.last_offset + 1
        if table is None:
            if stop - walk.position <= _UNINDEXED_BYTES_MAX:
                return here
            raise self._miss()
        slot = table.slot_at(stop - 1)
        entry_offset, position = table.entry(slot)
        if slot + 1 == table.entry_count and stop - max(position, walk.end) > _UNINDEXED_BYTES_MAX:
            raise self._miss()
        if position <= walk.end:
            return here
        walk.begin(position)
        if walk.last_offset != entry_offset or walk.base_offset < here[1]:
            raise _Unusual
        if walk.end > end_max:
            # It reaches beyond; all before it fits.
            walk.end, walk.last_offset = position, walk.base_offset - 1
        return walk.end, walk.last_offset + 1
