"""One export at a time: a file that is there while a run is at work, and says whose it is.

Whoever has made it looks before each decision whether it is still its own: another run may have been told that it is
dead. Where two can make a file at once, which some object stores allow, the later one has it, and the other finds that
out.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.files.hadoop_files import HadoopFiles
from rollway.spark.jobs.places import format_time

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc")


@dataclass(frozen=True, slots=True)
class ExportLock:
    """The lock of one topic's export to one folder, as one run sees it."""

    files: HadoopFiles
    path: str
    topic: str
    run_id: str

    def acquire(self, *, take_over: bool) -> None:
        """Make this the only run. The lock of a process of this host that is dead is none.

        Args:
            take_over: whoever has the lock is dead, somebody says.

        Raises:
            JobError: another run has it.
        """
        text = json.dumps(
            {
                "run_id": self.run_id,
                "host": socket.gethostname(),
                "process": os.getpid(),
                **_identity(os.getpid()),
                "begun": format_time(time.time_ns() // 1_000_000),
            }
        )
        if take_over:
            self.files.replace_text(self.path, f"{text}\n")
            return
        while not self.files.create_text(self.path, f"{text}\n"):
            holder = self._holder()
            if holder is None:
                continue
            if not _is_dead(holder):
                raise JobError(
                    f"Another run exports {self.topic} to this folder, {_described(holder)}: one at a time. If it is "
                    "dead, --take-over goes on from what it left."
                )
            self.files.delete(self.path)

    def release(self) -> None:
        """Let others begin, unless one of them was told that this run is dead."""
        if (self._holder() or {}).get("run_id") == self.run_id:
            self.files.delete(self.path)

    def check(self) -> None:
        """Return while this is the only run.

        Raises:
            JobError: another one has taken over.
        """
        holder = self._holder()
        if holder is None or holder.get("run_id") != self.run_id:
            who = "which has ended" if holder is None else _described(holder)
            raise JobError(
                f"Another run has taken over the export of {self.topic} to this folder, {who}: this one publishes "
                "nothing, and what is missing is exported by the next."
            )

    def _holder(self) -> dict[str, Any] | None:
        """What the lock says; nothing is known of one that is being written."""
        text = self.files.read_text(self.path)
        if text is None:
            return None
        try:
            holder = json.loads(text)
        except ValueError:
            holder = None
        return holder if isinstance(holder, dict) else {}


def _identity(process: int) -> dict[str, str | int]:
    """What tells a process of this number from others of it, before a restart of the machine or in other containers.
    Without what cannot be found out here."""
    found: dict[str, str | int] = {}
    with suppress(OSError):
        found["boot"] = _BOOT_ID.read_text().strip()
    with suppress(OSError):
        found["pid_namespace"] = str((_PROCESSES / "self/ns/pid").readlink())
    started = _started(process)
    if started is not None:
        found["started"] = started
    return found


def _started(process: int) -> int | None:
    """In ticks since the machine was started; ``None`` if there is no such process, or nothing that tells."""
    try:
        # The name of the program, in parentheses, may have anything in it.
        return int((_PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _is_dead(holder: Mapping[str, Any]) -> bool:
    """Whether it is known that the process is no more. Names of hosts are not always of one machine."""
    process = holder.get("process")
    if holder.get("host") != socket.gethostname() or not isinstance(process, int):
        return False
    here = _identity(os.getpid())
    boot, namespace, started = (holder.get(name) for name in ("boot", "pid_namespace", "started"))
    if None in (boot, namespace, started, here.get("boot"), here.get("pid_namespace"), here.get("started")):
        return boot is None and namespace is None and not _is_there(process)
    if boot != here["boot"]:
        return True
    if namespace != here["pid_namespace"]:
        return False
    now = _started(process)
    # Of other people's processes a system may not show when they began.
    return not _is_there(process) if now is None else now != started


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _described(holder: Mapping[str, Any]) -> str:
    host, process, begun = (holder.get(name, "?") for name in ("host", "process", "begun"))
    return f"on {host} (process {process}) since {begun}"
