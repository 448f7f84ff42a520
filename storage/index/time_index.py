"""The time index of a segment: for a timestamp, the offset up to which all records are at or before it."""

from __future__ import annotations

import struct

from log_model.offsets import NO_TIMESTAMP, Offset, TimestampOffset
from storage.index.index_file import IndexFullError, InvalidEntryError
from storage.index.key_samples import KeyLayout, KeySamples, Memory
from storage.index.sparse_index import SparseIndex, floor_slot

SAMPLED_ENTRIES_MIN = 2048
SAMPLED_ASKED_MIN = 16
"""Number of look-ups after which an index gets samples, which take a pass over all of it. Small ones need none."""

_ENTRY = struct.Struct(">qi")
_KEYS = KeyLayout("q", _ENTRY.size)
_read_entry = _ENTRY.unpack_from
_read_timestamp = struct.Struct(">q").unpack_from
_TIMESTAMP_MAX = 2**63 - 1


class TimeIndex(SparseIndex[TimestampOffset]):
    """Maps some timestamps of a segment to offsets (spec C5, C8).

    File: ``<base offset in 20 digits>.timeindex``, entries of 12 bytes, big-endian, timestamps strictly rising:

        timestamp        i64   greatest timestamp of the segment so far, ms
        relative offset  i32   last offset of the batch that has it, minus the segment's base offset

    An entry (T, O) means: no record at or before O is later than T. Records may be out of order in time. Entries are
    not, because each holds the greatest timestamp so far. Base offset 50: an entry for offset 55 is stored as (T, 5).
    """

    ENTRY = _ENTRY
    ENTRY_BYTES = _ENTRY.size

    last_entry: TimestampOffset
    """The entry with the greatest timestamp; (-1, base offset) if the index is empty."""
    _samples: KeySamples | None = None
    _asked_count = 0
    _version = 0
    """Counts truncations. Samples of an earlier version may hold entries that were removed."""

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll before the next entry. The last slot is reserved for the roll (spec C8)."""
        return self.file.entry_count >= self.file.max_entry_count - 1

    def maybe_append(self, timestamp: int, offset: Offset, *, skip_full_check: bool = False) -> None:
        """Add an entry if ``timestamp`` is later than the last one; ignore the same timestamp.

        ``skip_full_check`` lets the roll use the last slot.

        Thread: the writer only. Readers find the entry at once. Durable: after ``IndexFile.flush``.

        Raises:
            IndexFullError: no space; roll first. Raised even if there is nothing to add.
            InvalidEntryError: the offset or the timestamp is below the last one.
            OverflowError: the offset is not within 2^31-1 of the base offset, or the timestamp not within an i64.
            OSError: the disk refused; the index is as before.
        """
        if not skip_full_check and self.is_full:
            raise IndexFullError(f"{self.path} is full with {self.entry_count} entries")
        last = self.last_entry
        if self.entry_count and (offset < last.offset or timestamp < last.timestamp):
            raise InvalidEntryError(f"{self.path}: timestamp {timestamp} at offset {offset} cannot follow {last}")
        if timestamp <= last.timestamp:
            return
        if timestamp > _TIMESTAMP_MAX:
            raise OverflowError(f"timestamp {timestamp} does not fit into an index entry")
        self.file.append(_ENTRY.pack(timestamp, self._relative(offset)))
        self.last_entry = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the entry with the greatest timestamp not above ``timestamp``.

        The first record at or after ``timestamp`` lies in the batch that ends with the entry's offset, or behind it.
        Below the first entry, and for an empty index, the result is (-1, base offset).

        Thread: any; takes no lock.
        """

        # The loop of ``IndexFile.read``, without a call of a closure.
        file = self.file
        while True:
            count = file.entry_count
            memory = file.memory
            if memory is None:
                memory = file.load()
            try:
                slot = self._floor_slot(memory, count, timestamp)
                return self._parse(memory, slot) if slot >= 0 else self._none()
            except (ValueError, struct.error):
                if not file.was_cut(memory, count):
                    raise

    def _floor_slot(self, memory: Memory, count: int, timestamp: int) -> int:
        """Return the slot of the entry with the greatest timestamp not above ``timestamp``, or -1.

        Timestamps come in bursts, so an interpolated guess is poor, and a bisection of a million entries is slow.
        """
        samples = self._samples
        if samples is not None and samples.version == self._version and samples.count <= count:
            slot = samples.floor_slot(memory, count, timestamp)
            if slot is not None:
                return slot
            self._samples = None
        if count >= SAMPLED_ENTRIES_MIN:
            self._asked_count += 1
            if self._asked_count >= SAMPLED_ASKED_MIN:
                version = self._version
                # After the version was read: a later truncation makes these samples outdated.
                self._samples = KeySamples(_KEYS, memory, min(count, self.entry_count), version)
        return floor_slot(_read_timestamp, memory, count, 12, 0, timestamp)

    def _none(self) -> TimestampOffset:
        return TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def _parse(self, memory: Memory, slot: int) -> TimestampOffset:
        timestamp, relative = _read_entry(memory, slot * self.ENTRY_BYTES)
        return TimestampOffset(timestamp, Offset(self.base_offset + relative))

    def _offset_at(self, slot: int) -> Offset:
        return self._entry(slot).offset

    def _count_changed(self) -> None:
        self._samples = None
        # Last, and after the count changed: samples of the new version hold only remaining entries.
        self._version += 1
        self.last_entry = self._entry(self.entry_count - 1) if self.entry_count else self._none()

    def _check_entry(self, slot: int, earlier: TimestampOffset | None) -> None:
        entry = self._entry(slot)
        if entry.offset < self.base_offset or entry.timestamp < 0:
            raise self._corrupt_entry(slot, f"{entry} lies before the segment's base offset or before time began")
        if earlier is not None and (entry.timestamp <= earlier.timestamp or entry.offset < earlier.offset):
            raise self._corrupt_entry(slot, f"{entry} is not above {earlier}")
