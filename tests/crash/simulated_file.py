"""One open file of a simulated disk."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.disk_faults import os_error
from tests.crash.simulated_nodes import FileNode

if TYPE_CHECKING:
    from tests.crash.simulated_disk import SimulatedDisk


class SimulatedFile:
    """One open file of a ``SimulatedDisk``."""

    def __init__(self, disk: SimulatedDisk, path: Path, node: FileNode, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._node: FileNode | None = node
        self._writable = writable

    @property
    def path(self) -> Path:
        return self._path

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file in memory has no descriptor")

    def _open_node(self) -> FileNode:
        if self._node is None:
            raise ValueError(f"{self._path} is closed")
        return self._node

    def _writable_node(self) -> FileNode:
        node = self._open_node()
        if not self._writable:
            raise OSError(errno.EBADF, "opened for reading only", str(self._path))
        return node

    def size(self) -> int:
        return self._open_node().size

    def is_at(self, path: Path) -> bool:
        return self._disk.find(path) is self._open_node()

    def read(self, position: int, length: int) -> bytes:
        if position < 0 or length < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(self._path))
        node = self._open_node()
        self._disk.check_alive()
        return bytes(memoryview(node.buffer)[position : min(position + length, node.size)])

    def read_cached(self, position: int, length: int) -> bytes | bytearray | None:
        return self.read(position, length)

    def begin_writeback(self, position: int, length: int) -> None: ...  # what is not synced may survive without it

    def write(self, position: int, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        node = self._writable_node()
        if position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(self._path))
        content = b"".join(parts)
        if not content:
            return
        kind = "extend" if position + len(content) > node.size else "write"
        fault = self._disk.begin(kind, self._path)
        if fault is not None:
            arrived = memoryview(content)[: int(len(content) * fault.written)]
            if arrived:
                self._disk.touch(node)
                node.put(position, arrived)
            raise os_error(fault, self._path)
        self._disk.touch(node)
        node.put(position, memoryview(content))

    def truncate(self, size: int) -> None:
        node = self._writable_node()
        if size < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(self._path))
        kind = "truncate" if size >= node.size else "cut"
        fault = self._disk.begin(kind, self._path)
        if fault is not None:
            raise os_error(fault, self._path)
        self._disk.touch(node)
        node.set_size(size)

    def sync(self) -> None:
        node = self._open_node()
        fault = self._disk.begin("sync", self._path)
        if fault is not None:
            node.drop_dirty()
            raise os_error(fault, self._path)
        if node.has_lost:
            node.drop_dirty()
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self._path))
        node.sync()

    def close(self) -> None:
        self._node = None
