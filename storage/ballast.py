"""A file that is given up when the disk is full, so that deleting things still has room to be written down."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from storage.file_system import FileSystem, write_file_atomically

_logger = logging.getLogger(__name__)

BALLAST_BYTES = 1024 * 1024

AnswerT = TypeVar("AnswerT")


class Ballast:
    """``BALLAST_BYTES`` of disk kept back (reliability rule 8).

    Retention and the deletion of topics free space, but first they write small files. On a full disk that write
    gets the ballast's room; the ballast comes back when there is space again.

    Thread: any; one job at a time uses the room.
    """

    def __init__(self, file_system: FileSystem, path: Path, size_bytes: int = BALLAST_BYTES) -> None:
        self._file_system = file_system
        self._path = path
        self._size_bytes = size_bytes
        self._lock = threading.Lock()

    def restore(self) -> None:
        """Take the room again if it was given up and the disk has it. A full disk is no error."""
        with self._lock, contextlib.suppress(OSError):
            if not self._file_system.exists(self._path):
                write_file_atomically(self._file_system, self._path, bytes(self._size_bytes))

    def run(self, work: Callable[[], AnswerT]) -> AnswerT:
        """Do ``work``, a second time with the ballast's room when the disk is full. It must bear being repeated.

        Raises:
            OSError: what ``work`` raises, or raises again.
        """
        try:
            return work()
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            with self._lock:
                if self._file_system.exists(self._path):
                    _logger.warning("the disk is full: %s is given up", self._path)
                    self._file_system.unlink(self._path)
                return work()
