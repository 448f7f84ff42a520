"""Offset indexes as searches of batches look into them: copies in memory, or the open index itself."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right

import numpy as np

from log_model.offsets import Offset, Position
from storage.index.offset_index import OffsetIndex

COPIED_INDEX_BYTES_MAX = 64 * 1024 * 1024
"""The limit of the memory of all copies together."""


class IndexCopy:
    """The entries of an offset index in two native arrays, so that a look-up needs no page of the file.

    ``confirmed`` has a bit for each entry, lowest first. The compiled search sets it once the log has confirmed the
    entry.
    """

    __slots__ = ("_base_offset", "confirmed", "offsets", "positions")

    def __init__(self, base_offset: Offset, content: bytes, before: IndexCopy | None = None) -> None:
        """Copy ``content``, the entries behind those of ``before``."""
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
        """The number of entries."""
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """The size of the entries in the file."""
        return self.entry_count * OffsetIndex.ENTRY_BYTES

    def slot_of(self, offset: int) -> int:
        """Return the slot of the greatest offset not above ``offset``, or -1."""
        return bisect_right(self.offsets, offset - self._base_offset) - 1

    def slot_at(self, position: int) -> int:
        """Return the slot of the greatest position not above ``position``, or -1."""
        return bisect_right(self.positions, position) - 1

    def entry(self, slot: int) -> tuple[int, int]:
        """Return offset and position; of slot -1 the beginning of the segment."""
        if slot < 0:
            return self._base_offset, 0
        return self._base_offset + self.offsets[slot], self.positions[slot]


NO_ENTRIES = IndexCopy(Offset(0), b"")


class IndexLookups:
    """An open index with the methods of a copy, for threads. It knows only the entry that the last look-up found."""

    __slots__ = ("_found", "_index", "entry_count")

    def __init__(self, index: OffsetIndex) -> None:
        self._index = index
        self._found: tuple[int, int] = (index.base_offset, 0)
        self.entry_count = -1

    def slot_of(self, offset: int) -> int:
        """Look up an offset; ``entry`` returns the result."""
        self._found = self._index.lookup(Offset(offset))
        return -1

    def slot_at(self, position: int) -> int:
        """Look up a position; ``entry`` returns the result."""
        self._found = self._index.lookup_position(Position(position))
        return -1

    def entry(self, _: int) -> tuple[int, int]:
        """Return the result of the last look-up."""
        return self._found


class IndexCopies:
    """All copies of indexes in memory, within a limit: the oldest copy is dropped first. Thread: any."""

    def __init__(self, size_bytes_max: int) -> None:
        self._lock = threading.Lock()
        self._left_bytes = size_bytes_max
        self.by_key: dict[object, IndexCopy] = {}
        """The copies; compiled code looks into the dictionary itself."""

    def get(self, key: object) -> IndexCopy | None:
        """Return the copy with this key, if there is one."""
        return self.by_key.get(key)

    def put(self, key: object, copy: IndexCopy) -> None:
        """Keep ``copy``, and drop the oldest copies if it needs their memory."""
        with self._lock:
            before = self.by_key.pop(key, None)
            self._left_bytes += (0 if before is None else before.size_bytes) - copy.size_bytes
            self.by_key[key] = copy
            while self._left_bytes < 0:
                self._left_bytes += self.by_key.pop(next(iter(self.by_key))).size_bytes


COPIES = IndexCopies(COPIED_INDEX_BYTES_MAX)
