"""The sync of a whole file system of the machine's own disk. A part of ``file_system``, which is the only importer."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Self


def system_call(name: str, *arguments: type) -> Callable[..., int] | None:
    """Return a Linux call that Python does not offer; ``None`` on other systems or 32 bits."""
    found = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if found is None or ctypes.sizeof(ctypes.c_long) != ctypes.sizeof(ctypes.c_int64):
        return None
    found.argtypes = arguments
    call: Callable[..., int] = found
    return call


_syncfs = system_call("syncfs", ctypes.c_int)
_fstatfs = system_call("fstatfs", ctypes.c_int, ctypes.c_void_p)
# Of ext4, XFS and Btrfs. Their ``syncfs`` waits for bytes and names. That of others, such as FUSE, may return at once.
_TYPES = frozenset({0xEF53, 0x58465342, 0x9123683E})


class LocalWholeSync:
    """``syncfs`` through an open directory. It returns the errors since the directory was opened."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Use ``of``."""
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Open the directory ``path``. Return ``None`` if a sync there may be incomplete, or may miss an error.

        Before Linux 5.8 ``syncfs`` did not return errors of writeback.
        """
        if _syncfs is None or _fstatfs is None or [*map(int, re.findall(r"\d+", os.uname().release)[:2])] < [5, 8]:
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = (ctypes.c_long * 64)()
        if _fstatfs(descriptor, found) == 0 and found[0] in _TYPES:
            return cls(path, descriptor)
        os.close(descriptor)
        return None

    def sync(self) -> None:
        if _syncfs is None or _syncfs(self._descriptor) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(self._path))

    def close(self) -> None:
        os.close(self._descriptor)
