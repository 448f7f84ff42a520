"""Indexes that stay on the disk until the first look-up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from storage.disk.file_system import FileSystem


class _Index(Protocol):
    def moved(self, path: Path) -> None: ...

    def close(self) -> None: ...


IndexT = TypeVar("IndexT", bound=_Index)
AnswerT = TypeVar("AnswerT")


class LazyIndex(Generic[IndexT]):
    """The path of an index and, after the first ``get``, the open index (spec C4).

    A start with thousands of segments reads no index. Neither does renaming or deleting a segment that has no readers.

    Thread: any. One lock guards opening, renaming, deleting and closing; ``get`` takes it only to open.
    """

    # Each of up to 100,000 segments has three of these, and text takes a third of the memory of a ``Path``.
    __slots__ = ("_closed", "_lock", "_open_index", "_path", "opened", "was_opened")

    def __init__(self, open_index: Callable[[Path], IndexT], path: Path) -> None:
        self._open_index = open_index
        self._path = str(path)
        self._lock = threading.Lock()
        self.opened: IndexT | None = None
        """The open index, ``None`` before the first ``get``. Compiled code reads it; only this class changes it."""
        self._closed = False
        self.was_opened = False
        """Whether ``get`` or ``ask`` has opened the index; opening an active segment's index makes its file longer."""

    @property
    def path(self) -> Path:
        """The current path of the file."""
        return Path(self._path)

    @property
    def is_open(self) -> bool:
        """Whether ``get`` has opened the index."""
        return self.opened is not None

    def get(self) -> IndexT:
        """Return the index, which the first caller opens and all share.

        Raises:
            FileNotFoundError: the file is gone, or ``delete`` came before the first ``get``. Without an index a
                reader scans the segment from its first batch.
            ValueError: closed.
        """
        index = self.opened
        if index is not None:
            return index
        with self._lock:
            if self.opened is None:
                if self._closed:
                    raise ValueError(f"{self._path} is closed")
                self.was_opened = True
                self.opened = self._open_index(Path(self._path))
            return self.opened

    def ask(self, question: Callable[[IndexT], AnswerT]) -> AnswerT:
        """Run one question on the index without leaving it open, if it was not: for questions to thousands of segments.

        Raises:
            FileNotFoundError, ValueError: as ``get``.
        """
        with self._lock:
            if self.opened is not None:
                return question(self.opened)
            if self._closed:
                raise ValueError(f"{self._path} is closed")
            self.was_opened = True
            with contextlib.closing(self._open_index(Path(self._path))) as index:
                return question(index)

    def rename(self, file_system: FileSystem, path: Path) -> None:
        """Move the file, open or not. The caller syncs the directory.

        Raises:
            FileNotFoundError: there is no file.
        """
        with self._lock:
            file_system.rename(Path(self._path), path)
            self._moved(path)

    def moved(self, path: Path) -> None:
        """Record that the caller moved the file to ``path``; for files that are moved together under one lock."""
        with self._lock:
            self._moved(path)

    def _moved(self, path: Path) -> None:
        self._path = str(path)
        if self.opened is not None:
            self.opened.moved(path)

    def delete(self, file_system: FileSystem) -> None:
        """Unlink the file if there is one. Holders of the open index read on; it closes when the last one drops it."""
        with self._lock:
            path = Path(self._path)
            if file_system.exists(path):
                file_system.unlink(path)

    def release(self) -> None:
        """Drop the open index until the next ``get``. It closes when its last holder drops it."""
        with self._lock:
            self.opened = None

    def close(self) -> None:
        """Close the index if it is open. A later ``get`` raises."""
        with self._lock:
            self._closed = True
            index, self.opened = self.opened, None
            if index is not None:
                index.close()
