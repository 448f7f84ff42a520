"""Finding whole batches of a segment in a few looks, also without ever waiting for the disk.

The search reads as few headers as the index allows. Where it remembers the end of an earlier read, it does not even
need the index. It knows only the plain case, and leaves everything else to the general search of ``Segment``. Both
searches give the same results, or this one gives none.

``batch_search_c`` searches in C where it was compiled and the batches are in memory. Otherwise, or where that finds
nothing, ``batch_search_py`` searches in Python.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable
from time import monotonic
from typing import Protocol, cast

from log_model.offsets import Offset
from rollway.records.compiled import load
from storage.disk.file_system import File, FileSystem, LocalFile
from storage.index.lazy_index import LazyIndex
from storage.index.offset_index import OffsetIndex
from storage.segment import batch_search_py
from storage.segment.batch_search_py import IndexNeededError, IndexTable, Reader, SegmentRead, UnusualError
from storage.segment.index_copies import COPIES, NO_ENTRIES, IndexCopy, IndexLookups
from storage.segment.segment_file import SegmentFile

MISSES_SECONDS = 10.0
"""An index that is missed twice in this time is worth a copy."""

_PLACES_MAX = 64

# A tuple as its class makes it, without a call of a Python function.
_new_tuple = tuple.__new__


class CompiledSearch(Protocol):
    """The functions of ``batch_search_c.pyx``."""

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
        """Return the fields of a ``SegmentRead``; ``None`` leaves the search to ``batch_search_py.find``."""

    def read(
        self, snapshot: object, offset: int, max_bytes: int, content_bytes_max: int, is_stable: bool = False
    ) -> tuple[File, int, int, int, memoryview | None, bool, tuple[int, int, int]] | None:
        """Return the result of ``LogSnapshot.read_cached``, if it is one slice of one segment and nothing was aborted.

        It has the file, the position, the length, the next offset, the content, whether it is in memory, and the log
        start, the high watermark and the last stable offset: the same tuple for each read of a snapshot. ``None``
        leaves the read to that method.
        """

    def seems_cached(self, descriptor: int, position: int, length: int, apart: int) -> bool:
        """Return whether both ends of a stretch and places between are in memory; true if the kernel cannot tell."""


compiled = cast("CompiledSearch | None", load("storage.segment.batch_search_c"))
"""The compiled module, or ``None``; looked up here with every call. Tests set it to ``None``."""


class BatchSearch:
    """The search in one segment. It remembers places, so a segment that was cut needs a new one.

    ``batch_search_c`` reads these attributes, which only this class changes:

    Attributes:
        log: the log file of the segment.
        has_gaps: whether offsets may be missing between batches.
        interval_bytes: the bytes between two entries of the index.
        places: offsets that reads ended before, with the position of the next batch: consumers continue there.
        copies: the copies of all indexes, by ``key``.
        key: the key of the copy of this segment's index.
        facts: kept here by ``batch_search_c`` for its next call; ``None`` before the first one.

    Thread: any.
    """

    __slots__ = (
        "_clock",
        "_file_system",
        "_index",
        "_is_copy_wanted",
        "_missed_at",
        "copies",
        "facts",
        "has_gaps",
        "interval_bytes",
        "key",
        "log",
        "places",
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
        self._index = index
        self._clock = clock
        self._missed_at = float("-inf")
        self._is_copy_wanted = False
        self.log = log
        self.interval_bytes = interval_bytes
        self.has_gaps = has_gaps
        self.places: dict[int, int] = {}
        self.key = object()
        self.copies = COPIES.by_key
        self.facts: object = None

    def find(
        self, offset: Offset, limit: int, max_bytes: int, *, min_one: bool, content_bytes_max: int
    ) -> SegmentRead | None:
        """Return the result of ``Segment.read``; ``None`` if only the general search knows; may wait for the disk."""
        if self.log.holes or not self._index.is_open:
            return None
        index = self._index.get()
        if self._is_copy_wanted:
            self._is_copy_wanted = False
            self._copy(index)
        table = COPIES.get(self.key) or IndexLookups(index)
        try:
            return self._find_plain(self.log.file.read, table, offset, limit, max_bytes, min_one, content_bytes_max)
        except UnusualError:
            return None

    def find_cached(
        self, offset: Offset, limit: int, max_bytes: int, *, min_one: bool, content_bytes_max: int
    ) -> SegmentRead | None:
        """Return the result of ``find``; also ``None`` if the search would or may have to wait for the disk."""
        log = self.log
        if log.holes or not log.is_open:
            return None
        file, table = log.file, COPIES.get(self.key)
        try:
            if compiled is not None and file.__class__ is LocalFile:
                found = self._find_compiled(compiled, file, table, offset, limit, max_bytes, min_one, content_bytes_max)
                if found is not None:
                    return found
            return self._find_plain(file.read_cached, table, offset, limit, max_bytes, min_one, content_bytes_max)
        except (UnusualError, OSError, ValueError):
            # ``find`` raises the errors; its callers may wait for the disk.
            return None

    def _find_compiled(
        self,
        search: CompiledSearch,
        file: File,
        table: IndexCopy | None,
        offset: Offset,
        limit: int,
        max_bytes: int,
        min_one: bool,
        content_bytes_max: int,
    ) -> SegmentRead | None:
        base_offset = self.log.base_offset
        place = 0 if offset == base_offset else self.places.get(offset, -1)
        if table is None:
            if place < 0:
                return None
            table = NO_ENTRIES
        found = search.find(
            file.fileno(),
            table.offsets,
            table.positions,
            base_offset,
            self.has_gaps,
            self.interval_bytes,
            place,
            offset,
            limit,
            max_bytes,
            min_one,
            content_bytes_max,
        )
        if found is None:
            return None
        self._remember(found[2], found[0], found[1])
        return _new_tuple(SegmentRead, found)

    def _find_plain(
        self,
        read: Reader,
        table: IndexTable | None,
        offset: Offset,
        limit: int,
        max_bytes: int,
        min_one: bool,
        content_bytes_max: int,
    ) -> SegmentRead:
        base_offset = self.log.base_offset
        place = 0 if offset == base_offset else self.places.get(offset, -1)
        try:
            found = batch_search_py.find(
                read,
                table,
                base_offset,
                self.has_gaps,
                self.interval_bytes,
                place,
                offset,
                limit,
                max_bytes,
                min_one,
                content_bytes_max,
            )
        except IndexNeededError:
            self._note_miss()
            raise
        self._remember(found.next_offset, found.position, found.size_bytes)
        return found

    def _remember(self, next_offset: int, position: int, size_bytes: int) -> None:
        if size_bytes:
            if len(self.places) >= _PLACES_MAX:
                self.places.clear()
            self.places[next_offset] = position + size_bytes

    def _note_miss(self) -> None:
        """Record that the index was needed. After two misses in a short time, the next ``find`` copies the index."""
        now = self._clock()
        if now - self._missed_at < MISSES_SECONDS:
            self._is_copy_wanted = True
        self._missed_at = now

    def _copy(self, index: OffsetIndex) -> None:
        """Copy the index, or the entries since the last copy, from its file.

        A thread that waits for a page of a mapping holds up all other threads, unlike one that reads.
        """
        before = COPIES.get(self.key)
        position = 0 if before is None else before.size_bytes
        size_bytes = index.file.size_bytes
        try:
            file = self._file_system.open(index.path, writable=False)
        except OSError:
            # The index may have been renamed just now.
            return
        with contextlib.closing(file):
            content = file.read(position, size_bytes - position) if position < size_bytes else b""
        if content and len(content) % OffsetIndex.ENTRY_BYTES == 0:
            COPIES.put(self.key, IndexCopy(self.log.base_offset, content, before))
