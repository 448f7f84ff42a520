"""The file of an index: entries of one size, on the disk and in memory.

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
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from log_model.errors import CorruptionError
from storage.disk.file_system import File, FileSystem
from storage.index.key_samples import Memory

RELATIVE_OFFSET_MAX = 2**31 - 1
POSITION_MAX = 2**31 - 1

LOADED_BYTES_MAX = 128 * 1024 * 1024
"""Limit of the memory of all sealed indexes together."""
_MEMORY_BYTES_MIN = 512

AnswerT = TypeVar("AnswerT")


class CorruptIndexError(CorruptionError):
    """An index file is damaged, or a crash left it uncut. The log is intact: rebuild the index from it."""


class IndexFullError(ValueError):
    """No slot is free. The writer rolls a segment before this happens; reaching it is a bug of the caller."""


class InvalidEntryError(ValueError):
    """The entry would break the order of the index, which is a bug of the caller."""


class IndexFile:
    """The open file of one index, and its entries in memory. See the module for sharing between threads.

    The file knows the size of an entry, and no meaning: that is ``SparseIndex``'s.

    Thread: methods that change the file belong to the partition's writer. The others, and the attributes, are for any
    thread.
    Durable: nothing before ``flush`` returns.
    """

    def __init__(
        self, file_system: FileSystem, path: Path, file: File, entry_bytes: int, *, size_bytes_max: int, writable: bool
    ) -> None:
        """Take over ``file``, which was opened at ``path``; all whole entries count as valid.

        A writable file grows to ``size_bytes_max``, as a hole of zeros (never below its entries). One for reading keeps
        its length, and stays open until the first look-up reads it.

        Raises:
            OSError: the disk refused.
        """
        self.path = path
        """The current path of the file."""
        self.entry_bytes = entry_bytes
        self.memory: bytes | bytearray | None = None
        """The entries as in the file, maybe with space behind them; ``None`` until ``load``. Not for change."""
        self._file_system = file_system
        self.opened: File | None = file
        """The open file; ``None`` once the entries of a sealed index are in memory. Compiled code reads it."""
        self._size_bytes_max = size_bytes_max
        self._is_writable = writable
        self._loading = threading.Lock()
        self.is_closed = False
        """Whether ``close`` was called. Compiled code reads it."""
        length = file.size()
        self.entry_count = length // entry_bytes
        """Number of valid entries. Raised after an entry is written, so all entries below it can be read."""
        self.odd_bytes = length % entry_bytes
        """Number of bytes behind the last whole entry, as it was when the file was opened."""
        size = self.size_bytes
        if writable:
            size = max(size, size_bytes_max)
            if length != size:
                file.truncate(size)
            self.memory = _with_room(file.read(0, self.size_bytes), self.size_bytes)
        self.max_entry_count = size // entry_bytes
        """Number of entries that fit into the file at its current length."""

    @property
    def size_bytes(self) -> int:
        """Length of the valid entries."""
        return self.entry_count * self.entry_bytes

    # Reading: any thread

    def read(self, look: Callable[[Memory, int], AnswerT]) -> AnswerT:
        """Run ``look(memory, entry_count)``, and repeat it if the file was cut meanwhile (see the module).

        Raises:
            ValueError: the index is closed.
        """
        while True:
            count = self.entry_count
            memory = self.memory
            if memory is None:
                memory = self.load()
            try:
                return look(memory, count)
            except (ValueError, struct.error):
                if not self.was_cut(memory, count):
                    raise

    def was_cut(self, memory: Memory, count: int) -> bool:
        """Return whether a look at ``count`` entries in ``memory`` failed because the file was cut: repeat it then.

        Raises:
            ValueError: it failed because the index is closed.
        """
        if self.is_closed:
            raise ValueError(f"{self.path} is closed") from None
        return memory is not self.memory or count != self.entry_count

    def read_unloaded(self, slot: int) -> bytes | None:
        """Return one entry from the file; ``None`` if the entries are in memory, or the file is too short.

        Retention reads the last entry of thousands of indexes, which must not load them.
        """
        if self.memory is not None:
            return None
        # Under the lock: loading closes the file, and another file may get its descriptor at once.
        with self._loading:
            file = self.opened if self.memory is None else None
            piece = b"" if file is None else file.read(slot * self.entry_bytes, self.entry_bytes)
        return piece if len(piece) == self.entry_bytes else None

    def load(self) -> bytes | bytearray:
        """Return the entries in memory; the first look-up reads them from the file.

        A file that was cut meanwhile has fewer entries. Walks through the log are then longer; results stay right.
        """
        with self._loading:
            memory = self.memory
            if memory is not None:
                return memory
            if self.is_closed:
                return b""
            file = self.opened or self._file_system.open(self.path, writable=False)
            memory = file.read(0, self.size_bytes)
            if len(memory) < self.size_bytes:
                memory = memory[: len(memory) - len(memory) % self.entry_bytes]
                self.entry_count = len(memory) // self.entry_bytes
            self.memory = memory
            if not self._is_writable:
                self.opened = None
                file.close()
        _LOADED.add(self, len(memory))
        return memory

    def unload(self) -> None:
        """Drop the memory until the next look-up; not while entries are added."""
        with self._loading:
            if not self._is_writable or self.entry_count >= self.max_entry_count:
                self.memory = None

    # Changing: the writer

    def make_writable(self) -> None:
        """Turn an index that was opened for reading into a writable one of full length, also during look-ups.

        For a segment that becomes active again after a truncation.
        """
        if self.is_closed:
            raise ValueError(f"{self.path} is closed")
        if not self._is_writable:
            self.load()
            with self._loading:
                self.opened = self._file_system.open(self.path)
                self._is_writable = True
            self.resize_to_max()

    def append(self, entry: bytes) -> None:
        """Write one entry behind the last. Look-ups find it at once.

        Raises:
            IndexFullError: no slot is free.
            OSError: the disk refused; the entries are as before.
        """
        if self.entry_count >= self.max_entry_count:
            raise IndexFullError(f"{self.path} is full with {self.entry_count} entries")
        position, end = self.size_bytes, self.size_bytes + self.entry_bytes
        self._writable_file().write(position, [entry])
        memory = self.memory
        if not isinstance(memory, bytearray) or len(memory) < end:
            memory = self.memory = _with_room(self.load(), position)
        memory[position:end] = entry
        self.entry_count += 1

    def keep(self, count: int) -> None:
        """Remove the entries behind the first ``count``. The file keeps its length."""
        self._writable_file()
        self.entry_count = min(self.entry_count, count)

    def trim(self) -> None:
        """Cut the file to its entries, so that it counts as full. Look-ups may run."""
        self._set_size(self.size_bytes)
        _LOADED.add(self, self.size_bytes)

    def resize_to_max(self) -> None:
        """Restore the full length of the file, with zeros behind the entries. Look-ups may run."""
        file = self._writable_file()
        self.load()
        _LOADED.forget(self)
        if file.size() > self.size_bytes:
            file.truncate(self.size_bytes)
        self._set_size(max(self._size_bytes_max, self.size_bytes))
        self.memory = _with_room(self.load(), self.size_bytes)

    @property
    def is_whole(self) -> bool:
        """Whether ``mend`` has nothing to do. Thread: any; beside a writer that cuts the file it may be false."""
        # The length counts even if entries were added since: a writable index has its full length.
        file, size = self.opened, self.max_entry_count * self.entry_bytes
        return file is None or not self._is_writable or (file.is_at(self.path) and file.size() >= size)

    def mend(self) -> bool:
        """Repair the file if another process cut or removed it; return whether it had to. Thread: the writer.

        Raises:
            OSError: the disk refused.
        """
        file, size = self.opened, self.max_entry_count * self.entry_bytes
        if file is None or self.is_whole:
            return False
        if not file.is_at(self.path):
            self.opened = file = open_or_make(self._file_system, self.path)
            self._file_system.sync_directory(self.path.parent)
        file.truncate(size)
        if self.entry_count:
            file.write(0, [memoryview(self.load())[: self.size_bytes]])
        return True

    def flush(self) -> None:
        """Return when the entries and the length would survive a power cut. Does nothing if read-only."""
        if self._is_writable and self.opened is not None:
            self.opened.sync()

    def close(self) -> None:
        """Drop the file and the memory, without trim or flush; later look-ups raise ``ValueError``."""
        with self._loading:
            if self.is_closed:
                return
            self.is_closed = True
            self.memory = b""
            file, self.opened = self.opened, None
        _LOADED.forget(self)
        if file is not None:
            file.close()

    def _writable_file(self) -> File:
        if self.is_closed:
            raise ValueError(f"{self.path} is closed")
        if self.opened is None or not self._is_writable:
            raise ValueError(f"{self.path} is open for reading only")
        return self.opened

    def _set_size(self, size: int) -> None:
        file = self._writable_file()
        if file.size() != size:
            file.truncate(size)
            self.odd_bytes = 0
        self.max_entry_count = size // self.entry_bytes


class _Loaded:
    """The sealed indexes in memory, up to a limit; the first one read is dropped first. Thread: any."""

    def __init__(self, size_bytes_max: int) -> None:
        self._lock = threading.Lock()
        self._left_bytes = size_bytes_max
        self._indexes: dict[int, tuple[weakref.ref[IndexFile], int]] = {}
        # Indexes that were dropped without ``close``. Finalizers add to it in any thread, without a lock.
        self._gone: deque[int] = deque()

    def add(self, index: IndexFile, size_bytes: int) -> None:
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

    def forget(self, index: IndexFile) -> None:
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


def open_or_make(file_system: FileSystem, path: Path) -> File:
    """Open an index file for writing; make it if there is none."""
    try:
        return file_system.open(path)
    except FileNotFoundError:
        return file_system.open(path, create=True)


def _with_room(memory: bytes | bytearray, size_bytes: int) -> bytearray:
    """Return a copy of the first ``size_bytes``, with space for as many bytes more."""
    room = bytearray(max(_MEMORY_BYTES_MIN, 2 * size_bytes))
    room[:size_bytes] = memoryview(memory)[:size_bytes]
    return room
