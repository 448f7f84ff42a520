"""Detection of changes that another process makes to the files of an active segment."""

from __future__ import annotations

import errno
import logging
from typing import NamedTuple

from storage.segment.segment import Segment

_logger = logging.getLogger(__name__)

_TAIL_BYTES = 1024
_MAGIC_AT = 16
"""Position in a batch of a byte that is never zero."""


class _Seen(NamedTuple):
    """The state of the files at the last look. The whole is replaced at once."""

    segment: Segment
    size_bytes: int
    tail: bytes


class FileWatch:
    """A repeated check that the files of the active segment still hold the written bytes.

    A removed file accepts appends as before, and is gone after the process. A moved file also accepts them, and no
    start finds it. A file that was cut and then appended to has its old length, with zeros in place of records.

    A truncated log needs another watch: the bytes that this one has seen may be written again with others.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: _Seen | None = None

    def check(self, active: Segment) -> None:
        """Compare the files with their state at the last call, and repair indexes. Thread: the log's writer.

        Raises:
            OSError: the log file was cut, moved or removed: acknowledged records may be lost.
        """
        if self._compare(active, active.size_bytes):
            return
        for index in (active.offset_index, active.time_index):
            if index.is_open and index.get().file.mend():
                _logger.warning("%s was cut, moved or removed by another process and is written again", index.path)
        self._note(active, active.size_bytes)

    def finds_all(self, active: Segment, size_bytes: int) -> bool:
        """Return whether ``check`` would find nothing. It may be false in vain, if the writer changes the files.

        The log has ``size_bytes``, which no failed append takes back. Changes no file. Thread: any, beside the writer.
        """
        try:
            if not active.is_ready:
                return False
            if self._compare(active, size_bytes):
                return True
            for index in (active.offset_index, active.time_index):
                if index.is_open and not index.get().file.is_whole:
                    return False
            self._note(active, size_bytes)
        except (OSError, ValueError):
            # The writer may have closed or renamed a file meanwhile.
            return False
        return True

    def _compare(self, active: Segment, size_bytes: int) -> bool:
        """Return whether nothing was written since the last look. Otherwise compare the log file with that look.

        Raises:
            OSError: as ``check``.
        """
        seen = self._seen
        if seen is not None and seen.segment is active and seen.size_bytes == size_bytes:
            return True
        active.log.check(size_bytes)
        if seen is not None and seen.segment is active and seen.size_bytes < size_bytes:
            found = active.file.read(seen.size_bytes - len(seen.tail), len(seen.tail) + 1 + _MAGIC_AT)
            if found[: len(seen.tail)] != seen.tail or not found[-1]:
                raise OSError(errno.EIO, f"{active.file.path} was cut by another process")
        return False

    def _note(self, active: Segment, size_bytes: int) -> None:
        start = max(0, size_bytes - _TAIL_BYTES)
        self._seen = _Seen(active, size_bytes, active.file.read(start, size_bytes - start))
