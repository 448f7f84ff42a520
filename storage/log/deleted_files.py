"""Deleted files and directories that wait to be unlinked."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from log_model.clock import Clock
from storage.disk.file_system import FileSystem
from storage.segment.segment import Segment

Doomed = TypeVar("Doomed")


class _Deletions(Generic[Doomed]):
    """Deletions that wait until they are due, and are tried again if the disk refuses them. Thread: any.

    Others can be added while some are carried out.
    """

    __slots__ = ("_clock", "_file_system", "_lock", "_waiting")

    def __init__(self, file_system: FileSystem, clock: Clock) -> None:
        self._file_system = file_system
        self._clock = clock
        self._lock = threading.Lock()
        # By rising due time, unless the delay was changed. An empty tuple takes no memory.
        self._waiting: list[tuple[int, Doomed]] | tuple[()] = ()

    def _add(self, doomed: Doomed, delay_ms: int) -> None:
        entry = (self._clock.elapsed_ms() + delay_ms, doomed)
        with self._lock:
            self._waiting = self._waiting or []
            self._waiting.append(entry)

    def _delete_due(self, delete: Callable[[Doomed], int]) -> int:
        """Call ``delete`` for each deletion that is due. Return the sum of its results."""
        if not self._waiting:
            return 0
        now_ms = self._clock.elapsed_ms()
        with self._lock:
            due = [entry for entry in self._waiting if entry[0] <= now_ms]
            self._waiting = [entry for entry in self._waiting if entry[0] > now_ms] or ()
        count, failure, refused = 0, None, []
        for entry in due:
            try:
                count += delete(entry[1])
            except OSError as error:
                failure = error
                refused.append(entry)
        if failure is not None:
            with self._lock:
                self._waiting = [*refused, *self._waiting]
            raise failure
        return count


class _Files(NamedTuple):
    paths: tuple[Path, ...]
    segment: weakref.ref[Segment]


class DeletedFiles(_Deletions[_Files]):
    """The ``.deleted`` files of a partition, until ``file.delete.delay.ms`` has passed (spec E7).

    Thread: any.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return sum(len(files.paths) for _, files in self._waiting)

    def add(self, paths: Sequence[Path], segment: Segment, delay_ms: int) -> None:
        """Unlink ``paths`` after ``delay_ms``; ``segment`` stays readable for its holders."""
        self._add(_Files(tuple(paths), weakref.ref(segment)), delay_ms)

    def unlink_due(self) -> int:
        """Unlink the files that are due; return their number. A file that is gone already is no error.

        Raises:
            OSError: the disk refused some; these wait for the next call.
        """
        return self._delete_due(self._unlink)

    def _unlink(self, files: _Files) -> int:
        segment = files.segment()
        if segment is not None:
            segment.hold_open()
        del segment
        count = 0
        for path in files.paths:
            if self._file_system.exists(path):
                self._file_system.unlink(path)
                count += 1
        return count


class DeletedDirectories(_Deletions[Path]):
    """The directories of deleted partitions, until ``file.delete.delay.ms`` has passed.

    Thread: any.
    """

    __slots__ = ()

    def add(self, directory: Path, delay_ms: int) -> None:
        """Remove ``directory`` after ``delay_ms``."""
        self._add(directory, delay_ms)

    def remove_due(self) -> int:
        """Remove the directories that are due; return their number.

        Raises:
            OSError: the disk refused some; these wait for the next call.
        """
        return self._delete_due(self._remove)

    def _remove(self, directory: Path) -> int:
        if self._file_system.is_directory(directory):
            remove_directory(self._file_system, directory)
        return 1


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
