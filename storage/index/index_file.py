"""The common base of the offset index and the time index: a file of entries of one size, and its entries in memory.

The file has no header, no checksum and no count of its used entries. While its segment is active, the file has the full
length that the topic sets, with zeros behind the entries. When the segment is sealed, it is cut to its entries. On
opening, every whole entry counts as valid. A file that a crash left uncut therefore looks full of zeros, and must be
rebuilt from the log after an unclean stop (spec C2).

Look-ups read private memory and never the file, because another process may cut the file at any time: a read behind the
end of a mapped file kills the process (ADR 1). The first look-up in a sealed index reads it into memory. All sealed
indexes together stay within ``LOADED_BYTES_MAX``; the one that was read first is dropped first.

One writer and any number of readers share an index without a lock. The writer writes an entry to the file and to
memory, then raises ``entry_count``. A reader takes ``entry_count`` first and the memory second, and reads only below
the count. Memory that is too small is replaced, never resized.
"""

from __future__ import annotations

import struct
import threading
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from storage.disk.file_system import File, FileSystem
from storage.errors import CorruptionError
from storage.index.key_samples import Memory
from storage.offsets import Offset

WARM_BYTES = 8192
"""The newest part of an index, searched first. Two pages: reads at the end of the log keep them in memory."""

RELATIVE_OFFSET_MAX = 2**31 - 1
POSITION_MAX = 2**31 - 1

LOADED_BYTES_MAX = 128 * 1024 * 1024
"""Limit of the memory of all sealed indexes together."""
_MEMORY_BYTES_MIN = 512
_GUESSES = 2
_NEAR = 8

EntryT = TypeVar("EntryT")
AnswerT = TypeVar("AnswerT")

KeyReader = Callable[[Memory, int], tuple[int, ...]]
"""Reads the key at a byte position: ``struct.Struct.unpack_from``, or a counting stand-in in tests."""


class CorruptIndexError(CorruptionError):
    """An index file is damaged, or a crash left it uncut. The log is intact: rebuild the index from it."""


class IndexFullError(ValueError):
    """No slot is free. The writer rolls a segment before this happens; reaching it is a bug of the caller."""


class InvalidEntryError(ValueError):
    """The entry would break the order of the index, which is a bug of the caller."""


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


class IndexFile(ABC, Generic[EntryT]):
    """One open index file. See ``OffsetIndex`` and ``TimeIndex``, and the module for sharing between threads.

    Thread: methods that change the file belong to the partition's writer. Lookups, ``entries`` and the attributes are
    for any thread. A look-up during a truncation may see entries that are being replaced.
    Durable: nothing before ``flush`` returns.
    """

    ENTRY: ClassVar[struct.Struct]
    """Layout of one entry in the file."""
    ENTRY_BYTES: ClassVar[int]

    path: Path
    """The current path of the file."""
    base_offset: Offset
    """The segment's base offset, from which relative offsets count."""
    entry_count: int
    """Number of valid entries. Raised after an entry is written, so all entries below it can be read."""
    max_entry_count: int
    """Number of entries that fit into the file at its current length."""

    def __init__(self, file_system: FileSystem, path: Path, base_offset: Offset, size_bytes_max: int) -> None:
        """Use ``open``."""
        self.path = path
        self.base_offset = base_offset
        self._file_system = file_system
        self._size_bytes_max = size_bytes_max
        self._file: File | None = None
        self._is_writable = False
        self._memory: bytes | bytearray | None = None
        self._loading = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, file_system: FileSystem, path: Path, base_offset: Offset, *, max_bytes: int, writable: bool) -> Self:
        """Open the index of the segment with this base offset; all whole entries count as valid.

        Writable, for the active segment and for rebuilding: the file is made if absent, then grown to ``max_bytes``
        rounded down to whole entries, as a hole of zeros (never below its entries). Read-only, for sealed segments: the
        file keeps its length, and stays open until the first look-up reads it.

        Raises:
            FileNotFoundError: not writable, and absent.
            ValueError: ``max_bytes`` is smaller than one entry.
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
        return index

    def _attach(self, file: File, *, writable: bool) -> None:
        length = file.size()
        count = length // self.ENTRY_BYTES
        size = count * self.ENTRY_BYTES
        self._file = file
        self._is_writable = writable
        self._odd_bytes = length % self.ENTRY_BYTES
        self.entry_count = count
        if writable:
            size = max(size, self._size_bytes_max)
            if length != size:
                file.truncate(size)
            self._memory = _with_room(file.read(0, self.size_bytes), self.size_bytes)
        self.max_entry_count = size // self.ENTRY_BYTES
        self._count_changed()

    def _load(self) -> bytes | bytearray:
        """Return the entries in memory; the first look-up reads them from the file.

        A file that was cut meanwhile has fewer entries. Walks through the log are then longer; results stay right.
        """
        with self._loading:
            memory = self._memory
            if memory is not None:
                return memory
            if self._closed:
                return b""
            file = self._file or self._file_system.open(self.path, writable=False)
            memory = file.read(0, self.size_bytes)
            if len(memory) < self.size_bytes:
                memory = memory[: len(memory) - len(memory) % self.ENTRY_BYTES]
                self.entry_count = len(memory) // self.ENTRY_BYTES
            self._memory = memory
            if not self._is_writable:
                self._file = None
                file.close()
        _LOADED.add(self, len(memory))
        return memory

    def unload(self) -> None:
        """Drop the memory until the next look-up; not while entries are added."""
        with self._loading:
            if not self._is_writable or self.entry_count >= self.max_entry_count:
                self._memory = None

    def make_writable(self) -> None:
        """Turn an index that was opened for reading into a writable one of full length, also during look-ups.

        For a segment that becomes active again after a truncation.
        """
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if not self._is_writable:
            self._load()
            with self._loading:
                self._file = self._file_system.open(self.path)
                self._is_writable = True
            self.resize_to_max()

    @property
    def size_bytes(self) -> int:
        """Length of the valid entries."""
        return self.entry_count * self.ENTRY_BYTES

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
        return self._read(lambda memory, count: self._parse(memory, slot) if slot < count else None)

    def _entry(self, slot: int) -> EntryT:
        if self._memory is None:
            # Retention reads the last entry of thousands of indexes, which must not load them. Under the lock: loading
            # closes the file, and another file may get its descriptor at once.
            with self._loading:
                file = self._file if self._memory is None else None
                piece = b"" if file is None else file.read(slot * self.ENTRY_BYTES, self.ENTRY_BYTES)
            if len(piece) == self.ENTRY_BYTES:
                return self._parse(piece, 0)
        return self._read(lambda memory, _count: self._parse(memory, slot))

    def _read(self, look: Callable[[Memory, int], AnswerT]) -> AnswerT:
        """Run ``look(memory, count)``, and repeat it if the file was cut meanwhile (see the module)."""
        while True:
            count = self.entry_count
            memory = self._memory
            if memory is None:
                memory = self._load()
            try:
                return look(memory, count)
            except (ValueError, struct.error):
                if not self._was_cut(memory, count):
                    raise

    def _was_cut(self, memory: Memory, count: int) -> bool:
        """Return whether a look at ``count`` entries in ``memory`` failed because the file was cut: repeat it then.

        Raises:
            ValueError: it failed because the index is closed.
        """
        if self._closed:
            raise ValueError(f"{self.path} is closed") from None
        return memory is not self._memory or count != self.entry_count

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            raise OverflowError(f"offset {offset} is not within {RELATIVE_OFFSET_MAX} of base {self.base_offset}")
        return relative

    def _append(self, entry: bytes) -> None:
        """Write one entry behind the last. The caller raises ``entry_count``."""
        if self.entry_count >= self.max_entry_count:
            raise IndexFullError(f"{self.path} is full with {self.entry_count} entries")
        position, end = self.size_bytes, self.size_bytes + self.ENTRY_BYTES
        self._writable_file().write(position, [entry])
        memory = self._memory
        if not isinstance(memory, bytearray) or len(memory) < end:
            memory = self._memory = _with_room(self._load(), position)
        memory[position:end] = entry

    def truncate_to(self, offset: Offset) -> None:
        """Remove the entries for ``offset`` and above. The file keeps its length."""
        self._writable_file()
        count = bisect_left(range(self.entry_count), offset, key=self._offset_at)
        if count < self.entry_count:
            self.entry_count = count
            self._count_changed()

    def truncate_fully(self) -> None:
        """Remove all entries. The file keeps its length."""
        self._writable_file()
        self._odd_bytes = 0
        self.entry_count = 0
        self._count_changed()

    def trim(self) -> None:
        """Cut the file to its entries, so that it counts as full. Look-ups may run."""
        self._set_size(self.size_bytes)
        _LOADED.add(self, self.size_bytes)

    def resize_to_max(self) -> None:
        """Restore the full length of the file, with zeros behind the entries. Look-ups may run."""
        file = self._writable_file()
        self._load()
        _LOADED.forget(self)
        if file.size() > self.size_bytes:
            file.truncate(self.size_bytes)
        self._set_size(max(self._size_bytes_max, self.size_bytes))
        self._memory = _with_room(self._load(), self.size_bytes)

    def mend(self) -> bool:
        """Repair the file if another process cut or removed it; return whether it had to. Thread: the writer.

        Raises:
            OSError: the disk refused.
        """
        # The length counts even if entries were added since: a writable index has its full length.
        file, size = self._file, self.max_entry_count * self.ENTRY_BYTES
        if file is None or not self._is_writable or (file.is_at(self.path) and file.size() >= size):
            return False
        if not file.is_at(self.path):
            self._file = file = _open_or_make(self._file_system, self.path)
            self._file_system.sync_directory(self.path.parent)
        file.truncate(size)
        if self.entry_count:
            file.write(0, [memoryview(self._load())[: self.size_bytes]])
        return True

    def flush(self) -> None:
        """Return when the entries and the length would survive a power cut. Does nothing if read-only."""
        if self._is_writable and self._file is not None:
            self._file.sync()

    def sanity_check(self) -> None:
        """Check in a few reads that the file can be an index: its length, its first and its last entry (spec C7, C8).

        Stricter than Kafka's check: the last entry must also be above the first, which rules out a tail of zeros.

        Raises:
            CorruptIndexError: it cannot be one.
        """
        if self._odd_bytes:
            raise CorruptIndexError(f"{self.path}: {self._odd_bytes} bytes behind the last whole entry")
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

    def rename(self, path: Path) -> None:
        """Move the file. Look-ups may run. The caller syncs the directory."""
        self._file_system.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        """Drop the file and the memory, without trim or flush; later look-ups raise ``ValueError``."""
        with self._loading:
            if self._closed:
                return
            self._closed = True
            self._memory = b""
            file, self._file = self._file, None
        _LOADED.forget(self)
        if file is not None:
            file.close()

    def _writable_file(self) -> File:
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if self._file is None or not self._is_writable:
            raise ValueError(f"{self.path} is open for reading only")
        return self._file

    def _set_size(self, size: int) -> None:
        file = self._writable_file()
        if file.size() != size:
            file.truncate(size)
            self._odd_bytes = 0
        self.max_entry_count = size // self.ENTRY_BYTES


class _Loaded:
    """The sealed indexes in memory, up to a limit; the first one read is dropped first. Thread: any."""

    def __init__(self, size_bytes_max: int) -> None:
        self._lock = threading.Lock()
        self._left_bytes = size_bytes_max
        self._indexes: dict[int, tuple[weakref.ref[Any], int]] = {}
        # Indexes that were dropped without ``close``. Finalizers add to it in any thread, without a lock.
        self._gone: deque[int] = deque()

    def add(self, index: IndexFile[Any], size_bytes: int) -> None:
        """Count ``index``, and unload the oldest ones above the limit."""
        key, gone = id(index), self._gone
        reference = weakref.ref(index, lambda _: gone.append(key))
        doomed = []
        with self._lock:
            self._forget_gone()
            self._forget(key)
            self._indexes[key] = (reference, size_bytes)
            self._left_bytes -= size_bytes
            while self._left_bytes < 0 and len(self._indexes) > 1:
                oldest = next(iter(self._indexes))
                doomed.append(self._indexes[oldest][0]())
                self._forget(oldest)
        for other in doomed:
            if other is not None:
                other.unload()

    def forget(self, index: IndexFile[Any]) -> None:
        """Stop counting ``index``."""
        with self._lock:
            self._forget_gone()
            self._forget(id(index))

    def _forget_gone(self) -> None:
        while self._gone:
            key = self._gone.popleft()
            # Another index may have got the same id since.
            if key in self._indexes and self._indexes[key][0]() is None:
                self._forget(key)

    def _forget(self, key: int) -> None:
        found = self._indexes.pop(key, None)
        if found is not None:
            self._left_bytes += found[1]


_LOADED = _Loaded(LOADED_BYTES_MAX)


def _open_or_make(file_system: FileSystem, path: Path) -> File:
    try:
        return file_system.open(path)
    except FileNotFoundError:
        return file_system.open(path, create=True)


def _with_room(memory: bytes | bytearray, size_bytes: int) -> bytearray:
    """Return a copy of the first ``size_bytes``, with space for as many bytes more."""
    room = bytearray(max(_MEMORY_BYTES_MIN, 2 * size_bytes))
    room[:size_bytes] = memoryview(memory)[:size_bytes]
    return room
