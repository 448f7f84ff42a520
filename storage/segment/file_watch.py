"""Detection of changes that another process makes to the files of an active segment."""

from __future__ import annotations

import errno
import logging

from storage.segment.segment import Segment

_logger = logging.getLogger(__name__)

_TAIL_BYTES = 1024
_MAGIC_AT = 16
"""Position in a batch of a byte that is never zero."""


class FileWatch:
    """A repeated check that the files of the active segment still hold the written bytes.

    A removed file accepts appends as before, and is gone after the process. A moved file also accepts them, and no
    start finds it. A file that was cut and then appended to has its old length, with zeros in place of records.

    Thread: the log's writer.
    """

    __slots__ = ("_segment", "_size_bytes", "_tail")

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._size_bytes = 0
        self._tail = b""

    def check(self, active: Segment) -> None:
        """Compare the files with their state at the last call, and repair indexes.

        Raises:
            OSError: the log file was cut, moved or removed: acknowledged records may be lost.
        """
        size_bytes = active.size_bytes
        if self._segment is active and self._size_bytes == size_bytes:
            return
        active.log.check(size_bytes)
        file = active.file
        if self._segment is active and self._size_bytes < size_bytes:
            seen = file.read(self._size_bytes - len(self._tail), len(self._tail) + 1 + _MAGIC_AT)
            if seen[: len(self._tail)] != self._tail or not seen[-1]:
                raise OSError(errno.EIO, f"{file.path} was cut by another process")
        for index in (active.offset_index, active.time_index):
            if index.is_open and index.get().file.mend():
                _logger.warning("%s was cut, moved or removed by another process and is written again", index.path)
        start = max(0, size_bytes - _TAIL_BYTES)
        self._segment, self._size_bytes, self._tail = active, size_bytes, file.read(start, size_bytes - start)
