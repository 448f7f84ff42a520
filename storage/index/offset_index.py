"""The offset index of a segment: for an offset, the position in the log file at which a search begins."""

from __future__ import annotations

import struct

from log_model.offsets import Offset, OffsetPosition, Position
from storage.index.index_file import POSITION_MAX, InvalidEntryError
from storage.index.key_samples import Memory
from storage.index.sparse_index import SparseIndex, floor_slot

_ENTRY = struct.Struct(">ii")
_read_entry = _ENTRY.unpack_from
_read_field = struct.Struct(">i").unpack_from
_POSITION_FIELD = 4


class OffsetIndex(SparseIndex[OffsetPosition]):
    """Maps some offsets of a segment to byte positions in its log file (spec A19, C5, C7).

    File: ``<base offset in 20 digits>.index``, entries of 8 bytes, big-endian, both fields strictly rising:

        relative offset  i32   last offset of a batch, minus the segment's base offset
        position         i32   byte position at which that batch begins

    The index is sparse: about one entry for every ``index.interval.bytes`` of log, so the first batch, at position 0,
    has none. It is derived data, rebuilt by reading the log. Base offset 50: offset 55 is stored as 5.
    """

    ENTRY = _ENTRY
    ENTRY_BYTES = _ENTRY.size

    last_entry: OffsetPosition | None
    """The entry with the greatest offset; ``None`` if the index is empty."""

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll before the next entry (spec E6)."""
        return self.file.entry_count >= self.file.max_entry_count

    def append(self, offset: Offset, position: Position) -> None:
        """Add the batch that ends with ``offset`` and begins at ``position``.

        Thread: the writer only. Readers find the entry at once. Durable: after ``IndexFile.flush``.

        Raises:
            IndexFullError: no space; roll first.
            InvalidEntryError: the offset or the position is not above the last one.
            OverflowError: the offset is not within 2^31-1 of the base offset, or the position not below 2^31.
            OSError: the disk refused; the index is as before.
        """
        last = self.last_entry
        if last is not None and (offset <= last.offset or position <= last.position):
            raise InvalidEntryError(f"{self.path}: offset {offset} at {position} cannot follow {last}")
        if not 0 <= position <= POSITION_MAX:
            raise OverflowError(f"position {position} does not fit into an index entry")
        self.file.append(_ENTRY.pack(self._relative(offset), position))
        self.last_entry = OffsetPosition(offset, position)

    def lookup(self, target: Offset) -> OffsetPosition:
        """Return the entry with the greatest offset not above ``target``.

        The index is sparse: walk batches forward from the entry. Below the first entry, and for an empty index, the
        result is (base offset, 0). The last 8 KiB of entries are searched first: reads cluster at the end of the log,
        so those pages stay in memory (spec C3).

        Thread: any; takes no lock.
        """
        return self._lookup(0, target - self.base_offset)

    def lookup_position(self, position: Position) -> OffsetPosition:
        """Return the entry with the greatest position not above ``position``, or (base offset, 0). Thread: any."""
        return self._lookup(_POSITION_FIELD, position)

    def _lookup(self, field: int, target: int) -> OffsetPosition:
        # The loop of ``IndexFile.read``, without a call of a closure: every read of a log runs it.
        file = self.file
        while True:
            count = file.entry_count
            memory = file.memory
            if memory is None:
                memory = file.load()
            try:
                slot = floor_slot(_read_field, memory, count, 8, field, target)
                if slot < 0:
                    return OffsetPosition(self.base_offset, Position(0))
                relative, position = _read_entry(memory, slot * 8)
                return OffsetPosition(Offset(self.base_offset + relative), position)
            except (ValueError, struct.error):
                if not file.was_cut(memory, count):
                    raise

    def _parse(self, memory: Memory, slot: int) -> OffsetPosition:
        relative, position = _read_entry(memory, slot * self.ENTRY_BYTES)
        return OffsetPosition(Offset(self.base_offset + relative), Position(position))

    def _offset_at(self, slot: int) -> Offset:
        return self._entry(slot).offset

    def _count_changed(self) -> None:
        self.last_entry = self._entry(self.entry_count - 1) if self.entry_count else None

    def _check_entry(self, slot: int, earlier: OffsetPosition | None) -> None:
        entry = self._entry(slot)
        if entry.offset < self.base_offset or entry.position < 0:
            raise self._corrupt_entry(slot, f"{entry} lies before the segment's base offset or its first byte")
        if earlier is not None and (entry.offset <= earlier.offset or entry.position <= earlier.position):
            raise self._corrupt_entry(slot, f"{entry} is not above {earlier}")
