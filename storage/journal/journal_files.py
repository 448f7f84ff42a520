"""The circle of files that the journal is written to.

The files are written with zeros before entries come, a step at a time, and used again and again. An fsync of bytes
that overwrite others needs no change of the file system's own journal: that is what makes it quick (ADR 23).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

from storage.disk.file_system import File, FileSystem, LocalFile
from storage.journal.entries import BLOCK_BYTES, ENTRY_BYTES_MAX
from storage.log.partition_log import PartitionLog
from storage.log.written_log import JournaledEnd

FILE_SUFFIX = ".journal"
_MIB = 1024 * 1024
_STEPS_MAX = 4


class JournalLimits(NamedTuple):
    """Limits on the files of the journal. No files: no journal."""

    file_count_max: int = 4
    file_bytes: int = 64 * _MIB
    step_bytes: int = _MIB
    """The length of a new file, which then grows by as much or by a few times as much."""

    @classmethod
    def of(cls, journal_bytes_max: int) -> JournalLimits:
        """Return the limits for all files together.

        There are at least three files of 1 MiB: fewer would often wait for each other, and less would hold no entry.
        """
        if journal_bytes_max <= 0:
            return cls(0)
        count = max(3, min(cls._field_defaults["file_count_max"], journal_bytes_max // (16 * _MIB)))
        return cls(count, max(_MIB, journal_bytes_max // count // _MIB * _MIB))


class NoRoomError(Exception):
    """Every file of the journal still has entries that a replay needs."""


class JournalFile:
    """One file, and the logs that need its entries.

    ``logs`` has for each log the end of its last piece in this ``use`` of the file. ``first`` is the sequence of the
    first entry. ``is_stuck``: a log that needs the file cannot be flushed before the next start.
    """

    __slots__ = ("file", "first", "is_stuck", "logs", "position", "use", "written_bytes")

    def __init__(self, file: File, written_bytes: int) -> None:
        self.file = file
        self.written_bytes = written_bytes
        self.position = 0
        self.first = 0
        self.is_stuck = False
        self.use = object()
        self.logs: WeakKeyDictionary[PartitionLog, JournaledEnd] = WeakKeyDictionary()


class JournalFiles:
    """The files of one journal. Thread: one at a time.

    Raises (from everything that touches the disk):
        OSError: the disk refused. A failed sync is never tried again, so the journal has to end.
    """

    def __init__(self, file_system: FileSystem, directory: Path, limits: JournalLimits) -> None:
        self.directory = directory
        self.current: JournalFile | None = None
        self.full: list[JournalFile] = []
        """Files without room whose entries are needed, in their order."""
        self.has_failed_sync = False
        self._limits = limits
        self._file_system = file_system
        self._free: list[JournalFile] = []
        self._count = 0

    @property
    def entry_bytes_max(self) -> int:
        """The largest entry: it fits into a file, with the one that closes the file."""
        return min(ENTRY_BYTES_MAX, self._limits.file_bytes - BLOCK_BYTES)

    @property
    def is_off(self) -> bool:
        """Whether there may be no files."""
        return self._limits.file_count_max <= 0

    def prepare(self) -> None:
        """Make the folder and the first file, or take those of an earlier journal, but not more than the limits allow.

        Durable: on return.
        """
        if not self._file_system.is_directory(self.directory):
            self._file_system.make_directory(self.directory)
        self._sync(lambda: self._file_system.sync_directory(self.directory.parent))
        for name in self._file_system.list_directory(self.directory):
            if name.endswith(FILE_SUFFIX) and self._count >= self._limits.file_count_max:
                self._file_system.unlink(self.directory / name)
            elif name.endswith(FILE_SUFFIX):
                file = self._file_system.open(self.directory / name)
                # A crash may have cut a step short, and what it wrote may not be durable.
                self._free.append(JournalFile(file, 0))
                self._count += 1
        if not self._free:
            self._free.append(self._make())
        self._sync_directory()
        self._use(self._free.pop(0))

    def prepare_again(self) -> None:
        """Give up all entries and prepare, if the disk has room for one more step.

        Raises:
            OSError: ENOSPC or EDQUOT: it has not, and ``prepare_again`` may be called later.
        """
        for file in filter(None, (self.current, *self.full, *self._free)):
            file.file.close()
        self.current, self.full, self._free, self._count = None, [], [], 0
        self.prepare()
        shortest = min((self._current(), *self._free), key=lambda each: each.file.size())
        size_bytes = shortest.file.size()
        missing_bytes = min(self._limits.step_bytes, self._limits.file_bytes - size_bytes)
        if missing_bytes > 0:
            try:
                shortest.file.write(size_bytes, [bytes(missing_bytes)])
            except OSError:
                # On a full disk a partial step takes space that appends need.
                shortest.file.truncate(size_bytes)
                raise
            self._sync(shortest.file.sync)

    def put(self, parts: Sequence[bytes], size_bytes: int) -> None:
        """Write the parts of an entry at the end of the current file. Durable: after ``sync``."""
        file = self._current()
        if file.position + size_bytes > file.written_bytes:
            self._grow(file, file.position + size_bytes)
        file.file.write(file.position, parts)

    def sync(self) -> None:
        """Make the entry at the end of the current file durable."""
        self._sync(self._current().file.sync)

    def descriptor_to_sync(self) -> int:
        """Return the descriptor of the current file if it is a local one, otherwise -1."""
        file = self._current().file
        return file.descriptor if isinstance(file, LocalFile) else -1

    def has_room(self, size_bytes: int) -> bool:
        """Return whether the current file has room for an entry, and for the one that closes the file.

        An empty file always has: no other would have more.
        """
        position = self._current().position
        return position == 0 or position + size_bytes + BLOCK_BYTES <= self._limits.file_bytes

    def takes_at_once(self, size_bytes: int) -> bool:
        """Return whether an entry needs no other file, and no more bytes in the current one: ``put`` makes no fsync."""
        file = self._current()
        return self.has_room(size_bytes) and file.position + size_bytes <= file.written_bytes

    def go_on(self, close: Callable[[], None]) -> None:
        """Let the next entry begin another file.

        ``close`` runs before a file is used again. It makes durable that nothing of that file is needed: the next entry
        could be torn, and its file would then lack entries that an earlier one still asks for.

        Raises:
            NoRoomError: there is none.
        """
        if self._free:
            following = self._free[0]
            close()
            self._free.pop(0)
        elif self._count < self._limits.file_count_max:
            following = self._make()
            self._sync_directory()
        else:
            raise NoRoomError
        self.full.append(self._current())
        self._use(following)

    def release(self, file: JournalFile) -> None:
        """Take a full file whose entries are needed no more."""
        self.full.remove(file)
        file.logs.clear()
        self._free.append(file)

    def oldest(self) -> JournalFile:
        """Return the oldest file that is needed."""
        return self.full[0] if self.full else self._current()

    def _current(self) -> JournalFile:
        assert self.current is not None
        return self.current

    def _use(self, file: JournalFile) -> None:
        file.position = file.first = 0
        file.use = object()
        file.logs.clear()
        self.current = file

    def _make(self) -> JournalFile:
        names = self._file_system.list_directory(self.directory)
        number = next(number for number in range(len(names) + 1) if f"{number}{FILE_SUFFIX}" not in names)
        file = JournalFile(self._file_system.open(self.directory / f"{number}{FILE_SUFFIX}", create=True), 0)
        self._count += 1
        self._grow(file, self._limits.step_bytes)
        return file

    def _grow(self, file: JournalFile, size_bytes: int) -> None:
        """Write zeros behind the end, at least up to ``size_bytes``. Durable: on return.

        A file that is filled quickly doubles at first: a service that writes little has a small journal.
        """
        start, step_bytes = file.written_bytes, self._limits.step_bytes
        wanted = max(size_bytes, start + min(max(start, step_bytes), _STEPS_MAX * step_bytes))
        end = max(size_bytes, min(wanted, self._limits.file_bytes))
        for position in range(start, end, _MIB):
            file.file.write(position, [bytes(min(_MIB, end - position))])
        self._sync(file.file.sync)
        file.written_bytes = end

    def _sync_directory(self) -> None:
        self._sync(lambda: self._file_system.sync_directory(self.directory))

    def _sync(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except OSError:
            self.has_failed_sync = True
            raise
