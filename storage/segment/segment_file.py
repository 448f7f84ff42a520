"""The log file of a segment: record batches back to back, and nothing else (docs/reference/on-disk-format.md)."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from log_model.errors import CorruptionError
from log_model.offsets import ByteRange, Offset, OffsetPosition
from storage.disk.file_system import File, FileSystem
from storage.index.batch_walk import StoredBatch, walk_batches


class SegmentFile:
    """A log file, opened at first use, with its written length and whether it is sealed.

    With ``has_gaps`` offsets may be missing between its batches. ``holes`` are damaged bytes between good batches,
    which recovery found; walks skip them. ``opened`` is the open file, ``None`` before the first use of ``file``;
    compiled code reads it.

    Thread: only the writer changes ``size_bytes`` and ``sealed``; any thread reads.
    """

    __slots__ = (
        "_file_system",
        "_has_gaps",
        "_opening",
        "_path",
        "base_offset",
        "holes",
        "opened",
        "sealed",
        "size_bytes",
    )

    def __init__(
        self,
        file_system: FileSystem,
        path: Path,
        base_offset: Offset,
        *,
        size_bytes: int,
        sealed: bool,
        has_gaps: bool,
    ) -> None:
        self._file_system = file_system
        self._opening = threading.Lock()
        self.opened: File | None = None
        self._path = str(path)
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.sealed = sealed
        self._has_gaps = has_gaps
        self.holes: tuple[ByteRange, ...] = ()

    @property
    def path(self) -> Path:
        """The current path of the file."""
        return Path(self._path)

    @property
    def file(self) -> File:
        """The open file. It stays readable for its holders after it was renamed and unlinked.

        Raises:
            OSError: it cannot be opened.
        """
        file = self.opened
        if file is None:
            with self._opening:
                if self.opened is None:
                    self.opened = self._file_system.open(self.path)
                file = self.opened
        return file

    @property
    def is_open(self) -> bool:
        """Whether ``file`` has been opened."""
        return self.opened is not None

    def create(self, preallocated_bytes: int) -> None:
        """Make the file, empty or a hole of ``preallocated_bytes``."""
        self.opened = self._file_system.open(self.path, create=True)
        if preallocated_bytes:
            self.opened.truncate(preallocated_bytes)

    def close(self) -> None:
        """Drop the file until its next use. Holders of it read on."""
        self.opened = None

    def rename(self, target: Path) -> None:
        """Move the file; holders of the segment read on."""
        with self._opening:
            self._file_system.rename(self.path, target)
            self._path = str(target)

    def moved_to(self, directory: Path) -> None:
        """Record that the file's directory was renamed."""
        with self._opening:
            self._path = str(directory / self.path.name)

    def check(self, size_bytes: int) -> None:
        """Check that the file is at its path and has ``size_bytes``, which were written and will not be undone.

        Thread: any.

        Raises:
            OSError: another process has cut, moved or removed it.
        """
        if not self.file.is_at(self.path):
            raise OSError(errno.EIO, f"{self._path} was removed or moved by another process")
        self.check_size(size_bytes)

    def check_size(self, size_bytes: int) -> None:
        """Check only the length, as ``check``. A write behind the end of a cut file would hide the cut."""
        found_bytes = self.file.size()
        if found_bytes < size_bytes:
            raise OSError(errno.EIO, f"{self._path} was cut by another process: it has {found_bytes} bytes")

    def modified_ms(self) -> int:
        """Return the time of the last write to the file."""
        return self._file_system.modified_ms(self.path)

    def walk(self, position: int, limit: int) -> Iterator[StoredBatch]:
        """Yield the batches in ``[position, limit)``, by their headers.

        Raises:
            CorruptionError: the bytes there are no batches.
        """
        return walk_batches(self.file, position, limit, self.base_offset, has_gaps=self._has_gaps, holes=self.holes)

    def run_end(self, position: int, limit: int) -> int:
        """Return the end of the good bytes around ``position``: the next hole, or ``limit``."""
        return min((hole.start for hole in self.holes if position < hole.start < limit), default=limit)

    def find_batch(self, entry: OffsetPosition, limit: int) -> StoredBatch | None:
        """Return the batch of an offset index entry; ``None`` if there is no such batch below byte ``limit``."""
        if not 0 <= entry.position < limit:
            return None
        try:
            batch = next(self.walk(entry.position, limit), None)
        except CorruptionError:
            return None
        return batch if batch is not None and batch.header.last_offset == entry.offset else None


def fsync(sync: Callable[[], None]) -> None:
    """Call ``sync``. A failure never looks like a full disk, which would invite a second try (disk rule 3)."""
    try:
        sync()
    except OSError as error:
        raise OSError(errno.EIO, f"fsync failed: {error.strerror or error}") from error
