"""Locks on files of the machine's own disk. A part of ``file_system``, which is the only importer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Callable
from pathlib import Path

# Records and access rules must not be readable by every user of the machine.
FILE_MODE = 0o600


class LocalLock:
    """A held lock. ``is_shared``: taken on a read-only disk, where several processes that cannot write may hold it."""

    def __init__(self, path: Path, descriptor: int, *, is_shared: bool, on_loss: Callable[[], None]) -> None:
        self._path = path
        self._descriptor = descriptor
        self.is_shared = is_shared
        self._on_loss = on_loss

    def renew(self) -> bool:
        if self._descriptor < 0 or self.is_shared or leads_to(self._path, self._descriptor):
            return False
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            lock_whole(descriptor, fcntl.F_WRLCK)
        except OSError as error:
            os.close(descriptor)
            # Permanent: this process's view of the directory may be out of date from now on.
            self.release()
            self._on_loss()
            raise BlockingIOError(errno.EAGAIN, "held by another process", str(self._path)) from error
        self.release()
        self._descriptor = descriptor
        return True

    def make_exclusive(self) -> None:
        """Hold the file exclusively, after the disk may have become writable.

        Raises:
            OSError: EROFS, the disk is still read-only, or another process also holds the file.
        """
        self.release()
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            lock_whole(self._descriptor, fcntl.F_WRLCK)
        except OSError as error:
            self.release()
            with contextlib.suppress(OSError):
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                lock_whole(self._descriptor, fcntl.F_RDLCK)
            if error.errno == errno.EROFS:
                raise
            why = "another process uses this directory since it was read-only; stop one of them"
            raise OSError(errno.EROFS, why, str(self._path)) from error
        self.is_shared = False

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def leads_to(path: Path, descriptor: int) -> bool:
    """Return whether ``path`` leads to the open file."""
    own = os.fstat(descriptor)
    try:
        return os.path.samestat(own, path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def lock_whole(descriptor: int, kind: int) -> None:
    """Lock a file, ``F_RDLCK`` or ``F_WRLCK``, without waiting.

    Raises:
        OSError: EAGAIN or EACCES, another process holds it.
    """
    # An open-file-description lock. It conflicts with the POSIX lock that a Kafka broker takes on this file. Unlike a
    # POSIX lock, it also conflicts with a second opening inside this process.
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))


def is_locked(path: Path) -> bool:
    """Return whether ``path`` is locked, without taking the lock or making a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found: bytes = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, wanted)
    finally:
        os.close(descriptor)
    return bool(struct.unpack("hhqqi4x", found)[0] != fcntl.F_UNLCK)
