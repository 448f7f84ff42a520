"""The lock that admits one process per data directory."""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType
from typing import Self

from log_model.errors import DirectoryLockedError
from storage.disk.file_names import LOCK
from storage.disk.file_system import FileSystem, Lock

_logger = logging.getLogger(__name__)


class DirectoryLock:
    """A lock on a data directory, against every other process and every other holder in this one (invariant 1).

    File ``.lock``, empty, locked as a whole. A Kafka broker locks the same file, so neither server starts on a
    directory that the other one uses. The lock ends with the process, even after a crash; the file stays.
    """

    def __init__(self, directory: Path, lock: Lock) -> None:
        """Use ``acquire``."""
        self.directory = directory
        self._lock = lock

    @classmethod
    def acquire(cls, file_system: FileSystem, directory: Path) -> Self:
        """Lock an existing directory until ``release`` or the end of a ``with`` block.

        Raises:
            DirectoryLockedError: another holder has the lock.
        """
        try:
            return cls(directory, file_system.lock(directory / LOCK))
        except BlockingIOError as error:
            raise DirectoryLockedError(
                f"the data directory {directory} is in use by another process; stop it or choose another directory"
            ) from error

    def renew(self) -> None:
        """Hold the directory even if another process has removed the file ``.lock``.

        Raises:
            DirectoryLockedError: a third process has locked the directory meanwhile. Writing to it must stop.
            OSError: the disk refused.
        """
        try:
            if self._lock.renew():
                _logger.warning(
                    "%s was removed or replaced by another process and is locked again", self.directory / LOCK
                )
        except BlockingIOError as error:
            raise DirectoryLockedError(
                f"{self.directory / LOCK} was removed, and another process uses the directory since; stop one of them"
            ) from error

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
