"""What the offset index and the time index share: a file of entries of one size, read through a mapping.

The file has no header, no checksum and no record of how much of it is used. While its segment is active it
is as long as the topic allows, the unused tail being zeros; when the segment is sealed it is cut to its
entries. A file found at start is taken to be full of valid entries, so one that a crash left uncut looks full
of zeros: whoever opens it after an unclean stop rebuilds it from the log (spec C2).

One writer and any number of readers share an index without a lock. The writer writes an entry, then raises
``entry_count``. A reader takes ``entry_count`` first and the mapping second, and reads below the count only.
Before a file shrinks, its mapping is replaced and the old one *released*: a late reader then gets an error,
takes both anew and looks again. Were the old mapping still readable, touching its cut part would kill the
process (architecture, invariant 5).
"""

from __future__ import annotations

import struct
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

from storage.errors import CorruptionError
from storage.file_system import File, FileSystem
from storage.offsets import Offset

WARM_BYTES = 8192
"""Newest part of an index, searched first. Two pages: every read at the log's end keeps them in memory."""

RELATIVE_OFFSET_MAX = 2**31 - 1
POSITION_MAX = 2**31 - 1

_RELEASE_TRIES_MAX = 1000
_GUESSES = 2
_NEAR = 8

EntryT = TypeVar("EntryT")
AnswerT = TypeVar("AnswerT")

KeyReader = Callable[[memoryview, int], tuple[int, ...]]
"""Reads the key at a byte position; ``struct.Struct.unpack_from``, or a test's counting stand-in."""


class CorruptIndexError(CorruptionError):
    """An index file cannot be what was written. The log is intact: rebuild the index from it."""


class IndexFullError(ValueError):
    """No slot is free. The writer rolls a segment before this happens; a caller who sees it has a bug."""


class InvalidEntryError(ValueError):
    """The entry would break the order of the index. A caller who sees it has a bug."""


def floor_slot(
    read_key: KeyReader, mapping: memoryview, count: int, entry_bytes: int, key_position: int, target: int
) -> int:
    """Return the slot of the greatest key not above ``target`` among the first ``count``, or -1 (spec C3).

    Keys rise strictly. The newest ``WARM_BYTES`` of entries are tried first, so that a read near the end touches
    pages that are in memory anyway and never walks through cold ones in the middle of the file. Keys of most logs rise
    evenly: two guesses by proportion spare most steps of the bisection, and pages with them.
    """
    if count == 0:
        return -1
    low = max(0, count - 1 - WARM_BYTES // entry_bytes)
    high = count
    low_key = read_key(mapping, low * entry_bytes + key_position)[0]
    if low_key > target:
        low, high, high_key = 0, low, low_key
        low_key = read_key(mapping, key_position)[0]
        if low_key > target:
            return -1
    elif low_key == target:
        return low
    else:
        high_key = read_key(mapping, (count - 1) * entry_bytes + key_position)[0]
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
            key = read_key(mapping, near * entry_bytes + key_position)[0]
            if key > target:
                high, high_key = near, key
                continue
            low, low_key = near, key
        near = guess + _NEAR
        if near < high:
            key = read_key(mapping, near * entry_bytes + key_position)[0]
            if key > target:
                high, high_key = near, key
            else:
                low, low_key = near, key
    while high - low > 1:
        middle = (low + high) >> 1
        if read_key(mapping, middle * entry_bytes + key_position)[0] <= target:
            low = middle
        else:
            high = middle
    return low


class IndexFile(ABC, Generic[EntryT]):
    """One index file, open. See ``OffsetIndex`` and ``TimeIndex``, and the module for how threads share it.

    Thread: what changes the file belongs to the partition's writer; lookups, ``entries`` and the attributes
    are for any thread. Readers that look while the writer truncates may see entries that are being replaced.
    Durable: nothing before ``flush`` returns.
    """

    ENTRY: ClassVar[struct.Struct]
    """Layout of one entry in the file."""
    ENTRY_BYTES: ClassVar[int]

    path: Path
    """Where the file is now."""
    base_offset: Offset
    """What relative offsets are relative to: the segment's base offset."""
    entry_count: int
    """Valid entries. Raised after an entry is written, so everything below it can be read."""
    max_entry_count: int
    """Entries the file has room for as it is now."""

    def __init__(self, file_system: FileSystem, path: Path, base_offset: Offset, size_bytes_max: int) -> None:
        """Use ``open``."""
        self.path = path
        self.base_offset = base_offset
        self._file_system = file_system
        self._size_bytes_max = size_bytes_max
        self._file: File | None = None
        self._closed = False

    @classmethod
    def open(cls, file_system: FileSystem, path: Path, base_offset: Offset, *, max_bytes: int, writable: bool) -> Self:
        """Open the index of the segment that starts at ``base_offset``; all of its whole entries count as valid.

        Writable, for the active segment and for rebuilding: made when absent, then grown to ``max_bytes``
        rounded down to whole entries, as a hole of zeros (never below its entries). Not writable, for sealed
        segments: taken as it is, and only the mapping keeps it open.

        Raises:
            FileNotFoundError: not writable, and absent.
            ValueError: ``max_bytes`` has no room for one entry.
        """
        size_bytes_max = max_bytes - max_bytes % cls.ENTRY_BYTES
        if size_bytes_max <= 0:
            raise ValueError(f"an index needs at least {cls.ENTRY_BYTES} bytes, not {max_bytes}")
        index = cls(file_system, path, base_offset, size_bytes_max)
        file = _open_or_make(file_system, path) if writable else file_system.open(path, writable=False)
        try:
            index._attach(file, writable=writable)
        except BaseException:
            file.close()
            raise
        if not writable:
            file.close()
        return index

    def _attach(self, file: File, *, writable: bool) -> None:
        length = file.size()
        count = length // self.ENTRY_BYTES
        size = count * self.ENTRY_BYTES
        if writable:
            size = max(size, self._size_bytes_max)
            if length != size:
                file.truncate(size)
            self._file = file
        self._odd_bytes = length % self.ENTRY_BYTES
        self._mapping = file.map(size)
        self.max_entry_count = size // self.ENTRY_BYTES
        self.entry_count = count
        self._count_changed()

    def make_writable(self) -> None:
        """Turn an index that was opened for reading into a writable one of full length; readers may be looking.

        For a segment that becomes active again after a truncation. Opening the file a second time instead would
        leave readers with a mapping that nobody replaces when this one is trimmed.
        """
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if self._file is None:
            self._file = self._file_system.open(self.path)
            self.resize_to_max()

    @property
    def size_bytes(self) -> int:
        """Length of the valid part."""
        return self.entry_count * self.ENTRY_BYTES

    def entries(self) -> Iterator[EntryT]:
        """All entries there are when the first is asked for, in order; ends early when they are truncated meanwhile."""
        for slot in range(self.entry_count):
            entry = self._find_entry(slot)
            if entry is None:
                return
            yield entry

    @abstractmethod
    def _parse(self, mapping: memoryview, slot: int) -> EntryT: ...

    @abstractmethod
    def _offset_at(self, slot: int) -> Offset: ...

    @abstractmethod
    def _count_changed(self) -> None:
        """Take what is remembered of the last entry from the file, after opening and truncation."""

    def _find_entry(self, slot: int) -> EntryT | None:
        return self._read(lambda mapping, count: self._parse(mapping, slot) if slot < count else None)

    def _entry(self, slot: int) -> EntryT:
        return self._read(lambda mapping, _count: self._parse(mapping, slot))

    def _read(self, look: Callable[[memoryview, int], AnswerT]) -> AnswerT:
        """Run ``look(mapping, count)``, again when the file was cut meanwhile (see the module)."""
        while True:
            count = self.entry_count
            mapping = self._mapping
            try:
                return look(mapping, count)
            except (ValueError, struct.error):
                if not self._was_cut(mapping, count):
                    raise

    def _was_cut(self, mapping: memoryview, count: int) -> bool:
        """Whether a look at ``count`` entries in ``mapping`` failed because the file was cut meanwhile: look again.

        Raises:
            ValueError: it failed because the index is closed.
        """
        if self._closed:
            raise ValueError(f"{self.path} is closed") from None
        return mapping is not self._mapping or count != self.entry_count

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            raise OverflowError(f"offset {offset} is not within {RELATIVE_OFFSET_MAX} of base {self.base_offset}")
        return relative

    def _append(self, entry: bytes) -> None:
        """Write one entry behind the last. The caller raises ``entry_count``."""
        if self.entry_count >= self.max_entry_count:
            raise IndexFullError(f"{self.path} is full with {self.entry_count} entries")
        self._writable_file().write(self.entry_count * self.ENTRY_BYTES, [entry])

    def truncate_to(self, offset: Offset) -> None:
        """Forget the entries for ``offset`` and above. The file's length stays."""
        self._writable_file()
        count = bisect_left(range(self.entry_count), offset, key=self._offset_at)
        if count < self.entry_count:
            self.entry_count = count
            self._count_changed()

    def truncate_fully(self) -> None:
        """Forget all entries. The file's length stays."""
        self._writable_file()
        self._odd_bytes = 0
        self.entry_count = 0
        self._count_changed()

    def trim(self) -> None:
        """Cut the file to its entries; it is full from then on. Readers may be looking."""
        self._shrink(self._writable_file())

    def resize_to_max(self) -> None:
        """Give the file its full length again, zeros behind the entries. Readers may be looking."""
        file = self._writable_file()
        self._shrink(file)
        size = max(self._size_bytes_max, self.size_bytes)
        file.truncate(size)
        self._replace_mapping(file, size)

    def flush(self) -> None:
        """Return when the entries and the length would survive a power cut. Nothing to do when not writable."""
        if self._file is not None:
            self._file.sync()

    def sanity_check(self) -> None:
        """Check in a few reads that the file can be an index: its length, its first and its last entry (spec C7, C8).

        Stricter than Kafka's check: the last entry must also be above the first, which a tail of zeros is not.

        Raises:
            CorruptIndexError: it cannot.
        """
        if self._odd_bytes:
            raise CorruptIndexError(f"{self.path}: {self._odd_bytes} bytes behind the last whole entry")
        if self.entry_count:
            last = self.entry_count - 1
            self._check_entry(last, None)
            if last:
                self._check_entry(last, self._entry(0))

    def verify_entries(self) -> None:
        """Check every entry against the one before it, on top of ``sanity_check``.

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
        """Raise ``CorruptIndexError`` unless the entry is possible and may stand behind ``earlier``."""

    def _corrupt_entry(self, slot: int, why: str) -> CorruptIndexError:
        return CorruptIndexError(f"{self.path}: entry {slot} at byte {slot * self.ENTRY_BYTES}: {why}")

    def rename(self, path: Path) -> None:
        """Move the file. Readers may be looking. The caller syncs the directory."""
        self._file_system.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        """Let the file and the mapping go; lookups raise ``ValueError`` from then on. Does not trim or flush."""
        if self._closed:
            return
        self._closed = True
        mapping, self._mapping = self._mapping, memoryview(b"")
        _release(mapping)
        if self._file is not None:
            self._file.close()

    def _writable_file(self) -> File:
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if self._file is None:
            raise ValueError(f"{self.path} is open for reading only")
        return self._file

    def _shrink(self, file: File) -> None:
        size = self.size_bytes
        if file.size() == size:
            return
        self._replace_mapping(file, size)
        file.truncate(size)
        self._odd_bytes = 0

    def _replace_mapping(self, file: File, size: int) -> None:
        mapping, self._mapping = self._mapping, file.map(size)
        self.max_entry_count = size // self.ENTRY_BYTES
        _release(mapping)


def _open_or_make(file_system: FileSystem, path: Path) -> File:
    try:
        return file_system.open(path)
    except FileNotFoundError:
        return file_system.open(path, create=True)


def _release(mapping: memoryview) -> None:
    """Make ``mapping`` unreadable for all who hold it.

    It refuses while another thread is inside the one call that reads an entry, so this asks again.
    """
    for _ in range(_RELEASE_TRIES_MAX):
        try:
            return mapping.release()
        except BufferError:
            time.sleep(0.001)
    return mapping.release()
