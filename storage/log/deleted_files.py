"""Deleted files and directories that wait to be unlinked."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from log_model.clock import Clock
from storage.disk.file_system import FileSystem
from storage.segment.segment import Segment


class _Waiting(NamedTuple):
    due_ms: int
    paths: tuple[Path, ...]
    segment: weakref.ref[Segment]


class DeletedFiles:
    """The ``.deleted`` files of a partition, until ``file.delete.delay.ms`` has passed (spec E7).

    Thread: any.
    """

    __slots__ = ("_clock", "_file_system", "_lock", "_waiting")

    def __init__(self, file_system: FileSystem, clock: Clock) -> None:
        self._file_system = file_system
        self._clock = clock
        self._lock = threading.Lock()
        # By rising due time, unless the delay was changed. An empty tuple takes no memory.
        self._waiting: tuple[_Waiting, ...] = ()

    def __len__(self) -> int:
        return sum(len(waiting.paths) for waiting in self._waiting)

    def add(self, paths: Sequence[Path], segment: Segment, delay_ms: int) -> None:
        """Unlink ``paths`` after ``delay_ms``; ``segment`` stays readable for its holders."""
        with self._lock:
            due_ms = self._clock.elapsed_ms() + delay_ms
            self._waiting = (*self._waiting, _Waiting(due_ms, tuple(paths), weakref.ref(segment)))

    def unlink_due(self) -> int:
        """Unlink the files that are due; return their number. A file that is gone already is no error.

        Raises:
            OSError: the disk refused some; these wait for the next call.
        """
        if not self._waiting:
            return 0
        count, failure = 0, None
        with self._lock:
            now_ms = self._clock.elapsed_ms()
            for waiting in [entry for entry in self._waiting if entry.due_ms <= now_ms]:
                try:
                    count += self._unlink(waiting)
                except OSError as error:
                    failure = error
                else:
                    self._waiting = tuple(entry for entry in self._waiting if entry is not waiting)
        if failure is not None:
            raise failure
        return count

    def _unlink(self, waiting: _Waiting) -> int:
        segment = waiting.segment()
        if segment is not None:
            segment.hold_open()
        del segment
        count = 0
        for path in waiting.paths:
            if self._file_system.exists(path):
                self._file_system.unlink(path)
                count += 1
        return count


class DeletedDirectories:
    """The directories of deleted partitions, until ``file.delete.delay.ms`` has passed.

    Thread: any.
    """

    def __init__(self, file_system: FileSystem, clock: Clock) -> None:
        self._file_system = file_system
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, Path]] = []

    def add(self, directory: Path, delay_ms: int) -> None:
        """Remove ``directory`` after ``delay_ms``."""
        with self._lock:
            self._waiting.append((self._clock.elapsed_ms() + delay_ms, directory))

    def remove_due(self) -> int:
        """Remove the directories that are due; return their number.

        Raises:
            OSError: the disk refused some; these wait for the next call.
        """
        count, failure = 0, None
        with self._lock:
            now_ms = self._clock.elapsed_ms()
            for entry in [entry for entry in self._waiting if entry[0] <= now_ms]:
                try:
                    if self._file_system.is_directory(entry[1]):
                        remove_directory(self._file_system, entry[1])
                except OSError as error:
                    failure = error
                else:
                    self._waiting.remove(entry)
                    count += 1
        if failure is not None:
            raise failure
        return count


def remove_directory(file_system: FileSystem, directory: Path) -> None:
    """Remove a directory with its content, or a link and the content of its target. Inner links are not followed.

    Raises:
        OSError: the disk refused; a part may be gone.
    """
    for name in file_system.list_directory(directory):
        path = directory / name
        try:
            file_system.unlink(path)
        except IsADirectoryError:
            remove_directory(file_system, path)
    file_system.remove_directory(directory)
