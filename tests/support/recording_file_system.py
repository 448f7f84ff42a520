"""The machine's disk with a notebook: which operations were asked for, in which order, and a way to refuse one."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

from storage.disk.file_system import File, FileSystem, LocalFileSystem, Lock, WholeSync


class RecordingFileSystem:
    """Passes everything on to a ``LocalFileSystem`` and keeps ``operations`` as (what, file name) pairs.

    ``refuse`` names operations that raise ``OSError`` (ENOSPC) from now on, having done nothing; with
    ``refuse_suffix`` only for files of that kind.
    """

    def __init__(self) -> None:
        self.inner: FileSystem = LocalFileSystem()
        self.operations: list[tuple[str, str]] = []
        self.refuse: set[str] = set()
        self.refuse_suffix = ""

    def note(self, operation: str, path: Path) -> None:
        self.operations.append((operation, path.name))
        if operation in self.refuse and path.name.endswith(self.refuse_suffix):
            raise OSError(errno.ENOSPC, "refused by the test", str(path))

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        self.note("create" if create else "open", path)
        return RecordingFile(self, self.inner.open(path, create=create, writable=writable))

    def make_directory(self, path: Path) -> None:
        self.note("make_directory", path)
        self.inner.make_directory(path)

    def list_directory(self, path: Path) -> list[str]:
        return self.inner.list_directory(path)

    def exists(self, path: Path) -> bool:
        return self.inner.exists(path)

    def is_directory(self, path: Path) -> bool:
        return self.inner.is_directory(path)

    def size(self, path: Path) -> int:
        return self.inner.size(path)

    def modified_ms(self, path: Path) -> int:
        return self.inner.modified_ms(path)

    def rename(self, source: Path, target: Path) -> None:
        self.note("rename", target)
        self.inner.rename(source, target)

    def unlink(self, path: Path) -> None:
        self.note("unlink", path)
        self.inner.unlink(path)

    def remove_directory(self, path: Path) -> None:
        self.note("remove_directory", path)
        self.inner.remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self.note("sync_directory", path)
        self.inner.sync_directory(path)

    def whole_sync(self, path: Path) -> WholeSync | None:
        self.note("whole_sync", path)
        return RecordingWholeSync(self, path)

    def before_writing(self, work: Callable[[], None]) -> None:
        self.inner.before_writing(work)

    def lock(self, path: Path) -> Lock:
        self.note("lock", path)
        return self.inner.lock(path)


class RecordingWholeSync:
    """Syncs each file system that the machine's disk can sync as a whole, and notes it in any case."""

    def __init__(self, file_system: RecordingFileSystem, path: Path) -> None:
        self._file_system = file_system
        self._path = path
        self._inner = file_system.inner.whole_sync(path)

    def sync(self) -> None:
        self._file_system.note("sync_all", self._path)
        if self._inner is not None:
            self._inner.sync()

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()


class RecordingFile:
    """One file of a ``RecordingFileSystem``."""

    def __init__(self, file_system: RecordingFileSystem, inner: File) -> None:
        self._file_system = file_system
        self._inner = inner
        self.path = inner.path

    def fileno(self) -> int:
        return self._inner.fileno()

    def size(self) -> int:
        return self._inner.size()

    def is_at(self, path: Path) -> bool:
        return self._inner.is_at(path)

    def read(self, position: int, length: int) -> bytes:
        return self._inner.read(position, length)

    def read_cached(self, position: int, length: int) -> bytes | bytearray | None:
        return self._inner.read_cached(position, length)

    def begin_writeback(self, position: int, length: int) -> None:
        self._file_system.note("begin_writeback", self.path)
        self._inner.begin_writeback(position, length)

    def write(self, position: int, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        self._file_system.note("write", self.path)
        self._inner.write(position, parts)

    def truncate(self, size: int) -> None:
        self._file_system.note("truncate", self.path)
        self._inner.truncate(size)

    def sync(self) -> None:
        self._file_system.note("sync", self.path)
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()
