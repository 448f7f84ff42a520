"""The common base of the offset index and the time index: entries of one size in rising order, and their search."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

from log_model.offsets import Offset
from storage.disk.file_system import FileSystem
from storage.index.index_file import RELATIVE_OFFSET_MAX, CorruptIndexError, IndexFile, open_or_make
from storage.index.key_samples import Memory

WARM_BYTES = 8192
"""The newest part of an index, searched first. Two pages: reads at the end of the log keep them in memory."""

_GUESSES = 2
_NEAR = 8

EntryT = TypeVar("EntryT")

KeyReader = Callable[[Memory, int], tuple[int, ...]]
"""Reads the key at a byte position: ``struct.Struct.unpack_from``, or a counting stand-in in tests."""


def floor_slot(
    read_key: KeyReader, memory: Memory, count: int, entry_bytes: int, key_position: int, target: int
) -> int:
    """Return the slot of the greatest key not above ``target`` among the first ``count``, or -1 (spec C3).

    Keys rise strictly. The newest ``WARM_BYTES`` of entries are tried first, so that a read near the end touches few
    pages and no cold ones in the middle. Keys of most logs rise evenly, so two interpolated guesses save most steps of
    the bisection, and pages with them.
    """
    if count == 0:
        return -1
    low = max(0, count - 1 - WARM_BYTES // entry_bytes)
    high = count
    low_key = read_key(memory, low * entry_bytes + key_position)[0]
    if low_key > target:
        low, high, high_key = 0, low, low_key
        low_key = read_key(memory, key_position)[0]
        if low_key > target:
            return -1
    elif low_key == target:
        return low
    else:
        high_key = read_key(memory, (count - 1) * entry_bytes + key_position)[0]
        if high_key <= target:
            return count - 1
        high = count - 1
    # From here on the key at ``low`` is not above the target, and the key at ``high`` is.
    for _ in range(_GUESSES):
        if high - low <= 2 * _NEAR:
            break
        guess = low + (target - low_key) * (high - low) // (high_key - low_key)
        near = guess - _NEAR
        if near > low:
            key = read_key(memory, near * entry_bytes + key_position)[0]
            if key > target:
                high, high_key = near, key
                continue
            low, low_key = near, key
        near = guess + _NEAR
        if near < high:
            key = read_key(memory, near * entry_bytes + key_position)[0]
            if key > target:
                high, high_key = near, key
            else:
                low, low_key = near, key
    while high - low > 1:
        middle = (low + high) >> 1
        if read_key(memory, middle * entry_bytes + key_position)[0] <= target:
            low = middle
        else:
            high = middle
    return low


class SparseIndex(ABC, Generic[EntryT]):
    """One open index of a segment: entries in rising order in an ``IndexFile``. See ``OffsetIndex`` and ``TimeIndex``.

    Thread: ``truncate_to`` belongs to the partition's writer. Lookups, ``entries`` and the attributes are for any
    thread. A look-up during a truncation may see entries that are being replaced.
    """

    ENTRY: ClassVar[struct.Struct]
    """Layout of one entry in the file."""
    ENTRY_BYTES: ClassVar[int]

    def __init__(self, file: IndexFile, base_offset: Offset) -> None:
        """Use ``open``."""
        self.file = file
        """The file with the entries in memory, for everything but their meaning: growing, trimming, durability."""
        self.base_offset = base_offset
        """The segment's base offset, from which relative offsets count."""
        self._count_changed()

    @classmethod
    def open(cls, file_system: FileSystem, path: Path, base_offset: Offset, *, max_bytes: int, writable: bool) -> Self:
        """Open the index of the segment with this base offset; all whole entries count as valid.

        Writable, for the active segment and for rebuilding: the file is made if absent, then grown to ``max_bytes``
        rounded down to whole entries. Read-only, for sealed segments: the file keeps its length.

        Raises:
            FileNotFoundError: not writable, and absent.
            ValueError: ``max_bytes`` is smaller than one entry.
        """
        size_bytes_max = max_bytes - max_bytes % cls.ENTRY_BYTES
        if size_bytes_max <= 0:
            raise ValueError(f"an index needs at least {cls.ENTRY_BYTES} bytes, not {max_bytes}")
        file = open_or_make(file_system, path) if writable else file_system.open(path, writable=False)
        try:
            entries = IndexFile(
                file_system, path, file, cls.ENTRY_BYTES, size_bytes_max=size_bytes_max, writable=writable
            )
            return cls(entries, base_offset)
        except BaseException:
            file.close()
            raise

    @property
    def path(self) -> Path:
        """The current path of the file."""
        return self.file.path

    def moved(self, path: Path) -> None:
        """Record that the file was renamed to ``path``. Look-ups may run."""
        self.file.path = path

    @property
    def entry_count(self) -> int:
        """Number of valid entries."""
        return self.file.entry_count

    def close(self) -> None:
        """Drop the file and the memory, without trim or flush; later look-ups raise ``ValueError``."""
        self.file.close()

    def entries(self) -> Iterator[EntryT]:
        """Iterate over the entries that exist when the first is taken; end early if a truncation removes them."""
        for slot in range(self.entry_count):
            entry = self._find_entry(slot)
            if entry is None:
                return
            yield entry

    @abstractmethod
    def _parse(self, memory: Memory, slot: int) -> EntryT: ...

    @abstractmethod
    def _offset_at(self, slot: int) -> Offset: ...

    @abstractmethod
    def _count_changed(self) -> None:
        """Read the remembered last entry from the file, after opening and truncation."""

    def _find_entry(self, slot: int) -> EntryT | None:
        return self.file.read(lambda memory, count: self._parse(memory, slot) if slot < count else None)

    def _entry(self, slot: int) -> EntryT:
        piece = self.file.read_unloaded(slot)
        if piece is not None:
            return self._parse(piece, 0)
        return self.file.read(lambda memory, _count: self._parse(memory, slot))

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            raise OverflowError(f"offset {offset} is not within {RELATIVE_OFFSET_MAX} of base {self.base_offset}")
        return relative

    def truncate_to(self, offset: Offset) -> None:
        """Remove the entries for ``offset`` and above. The file keeps its length."""
        count_before = self.entry_count
        count = bisect_left(range(count_before), offset, key=self._offset_at)
        self.file.keep(count)
        if count < count_before:
            self._count_changed()

    def sanity_check(self) -> None:
        """Check in a few reads that the file can be an index: its length, its first and its last entry (spec C7, C8).

        Stricter than Kafka's check: the last entry must also be above the first, which rules out a tail of zeros.

        Raises:
            CorruptIndexError: it cannot be one.
        """
        if self.file.odd_bytes:
            raise CorruptIndexError(f"{self.path}: {self.file.odd_bytes} bytes behind the last whole entry")
        if self.entry_count:
            last = self.entry_count - 1
            self._check_entry(last, None)
            if last:
                self._check_entry(last, self._entry(0))

    def verify_entries(self) -> None:
        """Check every entry against its predecessor, after ``sanity_check``.

        Raises:
            CorruptIndexError: naming the first entry out of order.
        """
        self.sanity_check()
        previous: EntryT | None = None
        for slot, entry in enumerate(self.entries()):
            self._check_entry(slot, previous)
            previous = entry

    @abstractmethod
    def _check_entry(self, slot: int, earlier: EntryT | None) -> None:
        """Raise ``CorruptIndexError`` unless the entry is possible and may follow ``earlier``."""

    def _corrupt_entry(self, slot: int, why: str) -> CorruptIndexError:
        return CorruptIndexError(f"{self.path}: entry {slot} at byte {slot * self.ENTRY_BYTES}: {why}")
