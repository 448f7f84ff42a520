"""Files and directories that were given up and wait to be unlinked."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from storage.disk.clock import Clock
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
        # By rising due time but for changes of the delay; a tuple takes no room while it is empty.
        self._waiting: tuple[_Waiting, ...] = ()

    def __len__(self) -> int:
        return sum(len(waiting.paths) for waiting in self._waiting)

    def add(self, paths: Sequence[Path], segment: Segment, delay_ms: int) -> None:
        """Unlink ``paths`` in ``delay_ms``; ``segment`` stays readable for whoever holds it."""
        with self._lock:
            due_ms = self._clock.elapsed_ms() + delay_ms
            self._waiting = (*self._waiting, _Waiting(due_ms, tuple(paths), weakref.ref(segment)))

    def unlink_due(self) -> int:
        """Unlink what is due; return how many files went. A file that is gone already is no error.

        Raises:
            OSError: the disk refused some; those wait for the next call.
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
        """Remove ``directory`` in ``delay_ms``."""
        with self._lock:
            self._waiting.append((self._clock.elapsed_ms() + delay_ms, directory))

    def remove_due(self) -> int:
        """Remove what is due; return how many directories went.

        Raises:
            OSError: the disk refused some; those wait for the next call.
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
    """Remove a directory and what is in it, or a link to one and what is in that. Links within are not followed.

    Raises:
        OSError: the disk refused; some of it may be gone.
    """
    for name in file_system.list_directory(directory):
        path = directory / name
        try:
            file_system.unlink(path)
        except IsADirectoryError:
            remove_directory(file_system, path)
    file_system.remove_directory(directory)
