"""A disk of a few megabytes for tests: a tmpfs in a namespace of its own, which needs no rights of root."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.support.servers import ServerProcess

_SERVE = "from app.cli import main; main()"
_HOLD = 'mount -t tmpfs -o size="$1",mode=0700 tmpfs "$2" && echo mounted && exec sleep 600'


class SmallDisk:
    """``path`` is the disk as this process sees it; services started by ``serve`` see it at ``mount``.

    It is gone with the last process in its namespace. Skips the test where the system refuses namespaces.
    """

    def __init__(self, mount: Path, size: str = "12m") -> None:
        mount.mkdir()
        self.mount = mount
        self._holder = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _HOLD, "sh", size, str(mount)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline() != "mounted\n":
            self._holder.wait()
            pytest.skip(f"no disk can be mounted here: {self._holder.stderr.read().strip()}")
        self.path = Path(f"/proc/{self._holder.pid}/root{mount}")

    @property
    def _inside(self) -> list[str]:
        return ["nsenter", "--target", str(self._holder.pid), "--user", "--preserve-credentials", "--mount"]

    def serve(self, *arguments: str) -> ServerProcess:
        """A service whose data lies on this disk, in the directory ``data``; to be started."""
        command = [*self._inside, sys.executable, "-c", _SERVE]
        return ServerProcess(self.mount / "data", *arguments, command=command)

    def remount(self, mode: str) -> None:
        """Make the disk read-only (``ro``), or writable again (``rw``)."""
        subprocess.run([*self._inside, "mount", "-o", f"remount,{mode}", str(self.mount)], check=True)

    def fill(self) -> None:
        """Leave no free block."""
        with (self.path / "filling").open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while file.write(b"0" * size) == size:
                        pass
                except OSError:
                    continue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.kill()
        self._holder.communicate()
