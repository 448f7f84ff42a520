"""The one door to the disk. No other module imports ``os`` file calls, ``mmap`` or ``fcntl``, except ``file_lock``
and ``whole_sync``, which are parts of it.

Every disk access of the log is one of the operations below. A test can replace them by a simulated disk, crash before
any of them, and decide which unsynced bytes survive (disk rules 1 and 2).

Nothing is written or read through a mapping. A full disk, or a file that another process cut, is therefore an
``OSError`` or a short read, and never a SIGBUS (disk rule 9).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from storage.disk.file_lock import FILE_MODE, LocalLock, is_locked, leads_to, lock_whole
from storage.disk.whole_sync import LocalWholeSync, system_call

_WRITE_VECTOR_MAX = 1024

# For the same reason as ``FILE_MODE``.
_DIRECTORY_MODE = 0o700

# Files above this size reserve disk space behind their end: an eighth of their size, within these limits.
RESERVED_FROM_BYTES = 8 * 1024 * 1024
_RESERVED_SHARE = 8
_RESERVED_BYTES_MIN = 1024 * 1024
_RESERVED_BYTES_MAX = 8 * 1024 * 1024
_KEEP_SIZE = 1
# SYNC_FILE_RANGE_WRITE alone: it does not wait, and leaves the report of a failed write to fsync.
_BEGIN_WRITING = 2


class Lock(Protocol):
    """A held lock on a file."""

    def renew(self) -> bool:
        """Hold the file of this name even if another process removed or replaced it; return whether that had happened.

        Raises:
            BlockingIOError: a third process holds the file that is there now. Later changes of names fail with EROFS.
            OSError: the disk refused.
        """

    def release(self) -> None: ...


class File(Protocol):
    """One open file. Positions are absolute: no operation depends on an earlier one."""

    @property
    def path(self) -> Path:
        """The path at which the file was opened; a later rename does not change it."""

    def fileno(self) -> int:
        """Return the descriptor, for sendfile. Valid until ``close``."""

    def size(self) -> int:
        """Return the length in bytes, read from the file system at each call."""

    def is_at(self, path: Path) -> bool:
        """Return whether ``path`` still leads to this file. False if another process removed or moved it or a directory
        above it, or put another file in its place."""

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes; fewer only where the file ends."""

    def read_cached(self, position: int, length: int) -> bytes | bytearray | None:
        """Return the bytes from memory; ``None`` if the read would wait for the disk, or if the system cannot tell."""

    def write(self, position: int, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write the parts one behind the other. On ``OSError`` some of them may be written."""

    def truncate(self, size: int) -> None:
        """Set the length. Growing leaves a hole that reads as zeros. Space reserved behind the end is released."""

    def begin_writeback(self, position: int, length: int) -> None:
        """Start writeback of these bytes, so that ``sync`` has less to do. Promises nothing and never fails."""

    def sync(self) -> None:
        """Return when all written bytes, and the length, would survive a power cut."""

    def close(self) -> None: ...


class WholeSync(Protocol):
    """One sync for many new files. Make it before the first of them is written: it reports only later errors."""

    def sync(self) -> None:
        """Return when all bytes, lengths and names that the file system has by now would survive a power cut.

        Raises:
            OSError: some of them may be lost, also such of other files, which their own syncs report as well. A second
                call may hide that.
        """

    def close(self) -> None: ...


class FileSystem(Protocol):
    """The disk operations that the log needs."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        """Open an existing file, or with ``create`` make an empty one.

        Raises:
            FileNotFoundError: it does not exist and ``create`` is false.
            FileExistsError: it exists and ``create`` is true.
        """

    def make_directory(self, path: Path) -> None:
        """Make ``path`` if it does not exist. Its parent must exist."""

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in ``path``, sorted."""

    def exists(self, path: Path) -> bool: ...

    def is_directory(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int: ...

    def modified_ms(self, path: Path) -> int: ...

    def rename(self, source: Path, target: Path) -> None:
        """Move atomically, replacing ``target``. Durable: after ``sync_directory``."""

    def unlink(self, path: Path) -> None: ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory, or a link to a directory."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in ``path`` would survive a power cut."""

    def whole_sync(self, path: Path) -> WholeSync | None:
        """Return a sync of the whole file system of ``path``; ``None`` if it may miss an error of the disk."""

    def lock(self, path: Path) -> Lock:
        """Lock ``path`` (made if absent) against every other holder, in this and in other processes.

        Raises:
            BlockingIOError: another holder has the lock.
        """

    def before_writing(self, work: Callable[[], None]) -> None:
        """Call ``work`` before the first change, if the disk was read-only when the directory was locked.

        If ``work`` fails, the change fails as well, and the next change tries again.
        """

    def is_locked(self, path: Path) -> bool:
        """Return whether ``path`` is locked, without taking the lock or making a file."""


# Python offers only the variant that changes the file's length.
_fallocate = system_call("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_sync_file_range = system_call("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the file's path to errors of calls that take only a descriptor."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


class LocalFile:
    """A file on the machine's disk. The descriptor closes with ``close``, or when the last holder drops the object.

    While a large file grows, it reserves disk space behind its end, at least 1 MiB at a time. Allocating space for each
    write separately would be a third of its cost. The length never includes the reserve; ``truncate`` releases it.
    Compiled code reads ``descriptor`` (-1: closed) and ``reserve_at``, where the reserve ends.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        *,
        on_read_only_disk: bool = False,
        may_write: Callable[[], None] | None = None,
    ) -> None:
        """Take over ``descriptor``. On a read-only disk, ``may_write`` is called before the first write."""
        self.path = path
        self.descriptor = descriptor
        self._on_read_only_disk = on_read_only_disk
        self._may_write = may_write
        self.reserve_at = RESERVED_FROM_BYTES

    def fileno(self) -> int:
        if self.descriptor < 0:
            raise ValueError(f"{self.path} is closed")
        return self.descriptor

    def size(self) -> int:
        # Called before each write; lseek takes a quarter of the time of fstat. All reads and writes give positions.
        return os.lseek(self.fileno(), 0, os.SEEK_END)

    def is_at(self, path: Path) -> bool:
        # A link count cannot tell: a moved file, or one with a second name, still has a link.
        return leads_to(path, self.fileno())

    def read(self, position: int, length: int) -> bytes:
        with _naming(self.path):
            piece = os.pread(self.fileno(), length, position)
            if len(piece) == length or not piece:
                return piece
            pieces = [piece]
            done = len(piece)
            while done < length:
                piece = os.pread(self.fileno(), length - done, position + done)
                if not piece:
                    break
                pieces.append(piece)
                done += len(piece)
        return b"".join(pieces)

    def read_cached(self, position: int, length: int) -> bytearray | None:
        piece = bytearray(length)
        try:
            count = os.preadv(self.fileno(), (piece,), position, os.RWF_NOWAIT)
        except OSError:
            # It would wait, or the file system cannot tell. A broken disk fails the read that waits.
            return None
        # Fewer bytes: the file ends here, or the next bytes are not in memory.
        return piece if count == length else None

    def write(self, position: int, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        written = 0
        if self._on_read_only_disk:
            self._make_writable()
        if position >= self.reserve_at:
            self.reserve(position)
        try:
            if 0 < len(parts) <= _WRITE_VECTOR_MAX:
                # Usually the disk takes all parts at once.
                written = os.pwritev(self.fileno(), parts, position)
                if written == sum(map(len, parts)):
                    return
            pending = [memoryview(part).cast("B") for part in parts if len(part)]
            while True:
                position += written
                while pending and written >= len(pending[0]):
                    written -= len(pending.pop(0))
                if not pending:
                    return
                pending[0] = pending[0][written:]
                written = os.pwritev(self.fileno(), pending[:_WRITE_VECTOR_MAX], position)
                if written == 0:
                    raise OSError(errno.EIO, "the disk took no bytes")
        except OSError as error:
            error.filename = str(self.path)  # as ``_naming``, without a generator for each write
            raise

    def reserve(self, position: int) -> None:
        """Reserve space from ``position`` on, for a write that begins at ``reserve_at`` or behind it."""
        length = max(_RESERVED_BYTES_MIN, min(position // _RESERVED_SHARE, _RESERVED_BYTES_MAX))
        self.reserve_at = position + length
        if _fallocate is not None:
            # If the disk refuses, each write allocates its own space, and fails where there is none.
            _fallocate(self.fileno(), _KEEP_SIZE, position, length)

    def truncate(self, size: int) -> None:
        if self._on_read_only_disk:
            self._make_writable()
        self.reserve_at = RESERVED_FROM_BYTES
        with _naming(self.path):
            os.ftruncate(self.fileno(), size)

    def _make_writable(self) -> None:
        """Open the file again for writing, under the same descriptor, after the disk may have become writable.

        Raises:
            OSError: EROFS, it is still read-only, or another file is at this path now.
        """
        if self._may_write is not None:
            self._may_write()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not os.path.sameopenfile(descriptor, self.fileno()):
                raise OSError(errno.EROFS, f"{os.strerror(errno.EROFS)} when it was opened", str(self.path))
            # Readers in other threads keep using the same descriptor.
            os.dup2(descriptor, self.fileno(), inheritable=False)
        finally:
            os.close(descriptor)
        self._on_read_only_disk = False

    def begin_writeback(self, position: int, length: int) -> None:
        if _sync_file_range is not None and self.descriptor >= 0:
            _sync_file_range(self.descriptor, position, length, _BEGIN_WRITING)

    def sync(self) -> None:
        with _naming(self.path):
            os.fdatasync(self.fileno())

    def close(self) -> None:
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def _open_regular(path: Path) -> int:
    """Open a regular file for reading. A pipe would wait for a writer, and a device has no end.

    Raises:
        OSError: EISDIR or EINVAL, it is no regular file; or as ``os.open``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


class LocalFileSystem:
    """The machine's own disk. Thread: any.

    If the disk was read-only when the directory was locked, several processes may hold the directory. When the disk
    becomes writable, the lock becomes exclusive before the first change. While another process holds it, changes fail
    with EROFS.
    """

    def __init__(self) -> None:
        self._shared_lock: LocalLock | None = None
        self._has_lost_lock = False
        self._before_writing: Callable[[], None] = lambda: None
        self._taking_over = threading.RLock()

    def _may_write(self, path: Path) -> None:
        """Permit a change of names, or the first write to a file that was opened on a read-only disk.

        Raises:
            OSError: EROFS, with the changed ``path`` as its file name.
        """
        if self._has_lost_lock:
            raise OSError(errno.EROFS, "another process uses this directory", str(path))
        if self._shared_lock is None:
            return
        with self._taking_over:
            lock = self._shared_lock
            if lock is None or not lock.is_shared:
                # Another thread has done it, or this is a change that ``_before_writing`` makes.
                return
            try:
                lock.make_exclusive()
            except OSError as error:
                if error.strerror == os.strerror(errno.EROFS):
                    # Still read-only; the lock file was only the first file to be opened for writing.
                    error.filename = str(path)
                raise
            try:
                self._before_writing()
            except BaseException:
                lock.is_shared = True
                raise
            self._shared_lock = None

    def _lose_lock(self) -> None:
        self._has_lost_lock = True

    def before_writing(self, work: Callable[[], None]) -> None:
        self._before_writing = work

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        flags = os.O_RDWR if writable else os.O_RDONLY
        if create:
            self._may_write(path)
            return LocalFile(path, os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        try:
            if not writable:
                return LocalFile(path, _open_regular(path))
            if self._shared_lock is None:
                return LocalFile(path, os.open(path, flags | os.O_CLOEXEC))
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
        # The file opens for reading alone; writes fail while the disk stays read-only (disk rule 8).
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return LocalFile(path, descriptor, on_read_only_disk=True, may_write=functools.partial(self._may_write, path))

    def make_directory(self, path: Path) -> None:
        self._may_write(path)
        path.mkdir(_DIRECTORY_MODE, exist_ok=True)

    def is_open_to_others(self, path: Path) -> bool:
        """Return whether every user of the machine may look into ``path``; access by its group is intended."""
        return bool(path.stat().st_mode & 0o007)

    def list_directory(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 - names alone are wanted

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def rename(self, source: Path, target: Path) -> None:
        self._may_write(target)
        source.replace(target)

    def unlink(self, path: Path) -> None:
        self._may_write(path)
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        self._may_write(path)
        (path.unlink if path.is_symlink() else path.rmdir)()

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _naming(path):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def whole_sync(self, path: Path) -> WholeSync | None:
        return LocalWholeSync.of(path)

    def lock(self, path: Path) -> Lock:
        kind = fcntl.F_WRLCK
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            # No process can write to this disk, so several readers may share it.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            kind = fcntl.F_RDLCK
        try:
            lock_whole(descriptor, kind)
        except OSError as error:
            os.close(descriptor)
            if error.errno in {errno.EAGAIN, errno.EACCES}:
                raise BlockingIOError(errno.EAGAIN, "held by another process", str(path)) from error
            raise
        lock = LocalLock(path, descriptor, is_shared=kind == fcntl.F_RDLCK, on_loss=self._lose_lock)
        if lock.is_shared:
            self._shared_lock = lock
        return lock

    def is_locked(self, path: Path) -> bool:
        return is_locked(path)
