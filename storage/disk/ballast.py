"""Disk blocks and descriptors held in reserve, so that work that frees them still succeeds when none are left."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from log_model.errors import UnavailableError
from storage.disk.file_system import File, FileSystem

_logger = logging.getLogger(__name__)

BALLAST_BYTES = 1024 * 1024
_PIECES = 8
"""Number of pieces that the file is given up in: one change needs little, and appends take all free blocks."""
_DESCRIPTORS = 4

_FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

AnswerT = TypeVar("AnswerT")


class Ballast:
    """A reserve of ``BALLAST_BYTES`` on the disk and a few descriptors (disk rule 8).

    Retention, topic deletion and changes of their settings free space, but they write small files first. On a full disk
    those writes get the blocks of the ballast. If the process may open no more files, they get its descriptors. The
    ballast takes both back as soon as the work is done.

    Example: on a full disk a ballast of 1 MiB shrinks to 896 KiB, a topic's file is written, and the ballast grows
    again by the remainder of the 128 KiB.

    Thread: any; one at a time uses the reserve.
    """

    def __init__(self, file_system: FileSystem, path: Path, size_bytes: int = BALLAST_BYTES) -> None:
        self._file_system = file_system
        self._path = path
        self._size_bytes = size_bytes
        # Work that runs on the reserve may use the ballast for a part of itself.
        self._lock = threading.RLock()
        self._held: list[File] = []

    def restore(self) -> None:
        """Take back the reserve, as far as the system has room. A full disk is no error."""
        with self._lock, contextlib.suppress(OSError):
            self._take_back()

    def run(self, work: Callable[[], AnswerT]) -> AnswerT:
        """Run ``work``, and repeat it on the reserve while the disk is full or descriptors are short.

        Repeating ``work`` must be harmless.

        Raises:
            Exception: the error of ``work``, if the ballast cannot help or is used up.
        """
        try:
            return work()
        except (OSError, UnavailableError) as error:
            if _wanted(error) is None:
                raise
            # The frames of the failed work keep its files open.
            first = error.with_traceback(None)
        with self._lock:
            if not self._give_up(first):
                raise first
            try:
                while True:
                    try:
                        return work()
                    except (OSError, UnavailableError) as error:
                        if not self._give_up(error):
                            raise
            finally:
                self.restore()

    def _give_up(self, error: Exception) -> bool:
        """Give up a part of the resource that ``error`` lacks; return false if none is left."""
        wanted = _wanted(error)
        if wanted in _NO_DESCRIPTORS and self._held:
            _logger.warning("no more files may be opened: %d reserved descriptors are used", len(self._held))
            self._let_go()
            return True
        return wanted in _FULL_DISK and self._shrink()

    def _shrink(self) -> bool:
        try:
            file = self._held[0] if self._held else self._file_system.open(self._path)
            size_bytes = file.size()
            if not size_bytes:
                return False
            _logger.warning("the disk is full: %s gives up a piece of its %d bytes", self._path, size_bytes)
            file.truncate(max(0, size_bytes - max(1, self._size_bytes // _PIECES)))
        except OSError as error:
            _logger.warning("%s cannot be given up: %s", self._path, error)
            return False
        return True

    def _take_back(self) -> None:
        if not self._file_system.exists(self._path):
            self._let_go()
            self._file_system.open(self._path, create=True).close()
            self._file_system.sync_directory(self._path.parent)
        while len(self._held) < _DESCRIPTORS:
            self._held.append(self._file_system.open(self._path))
        file = self._held[0]
        size_bytes = file.size()
        if size_bytes < self._size_bytes:
            try:
                # On a full disk, as much as fits.
                file.write(size_bytes, [bytes(self._size_bytes - size_bytes)])
            finally:
                if file.size() > size_bytes:
                    file.sync()

    def _let_go(self) -> None:
        for file in self._held:
            file.close()
        self._held = []


def _wanted(error: BaseException) -> int | None:
    """Return the errno of ``error`` or of its cause, if the ballast can help with it."""
    cause = error.__cause__ if isinstance(error, UnavailableError) else error
    found = cause.errno if isinstance(cause, OSError) else None
    return found if found is not None and found in _FULL_DISK | _NO_DESCRIPTORS else None
