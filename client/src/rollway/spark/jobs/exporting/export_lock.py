"""The lock of an export: a file that exists while a run is under way, and names the run.

The run that made the file checks before each decision that it still holds the lock: a user may have let another run
take over. Some object stores let two runs create the file at once. The later one then holds the lock, and the check of
the earlier one fails.
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
    """The lock of one topic's export to one folder, for one run."""

    files: HadoopFiles
    path: str
    topic: str
    run_id: str

    def acquire(self, *, take_over: bool) -> None:
        """Take the lock. The lock of a dead process of this host does not count.

        Args:
            take_over: take the lock even if another run holds it: the user says that the run is dead.

        Raises:
            JobError: another run holds the lock.
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
        """Release the lock, unless another run has taken it over."""
        if (self._holder() or {}).get("run_id") == self.run_id:
            self.files.delete(self.path)

    def check(self) -> None:
        """Return while this run holds the lock.

        Raises:
            JobError: another run has taken over.
        """
        holder = self._holder()
        if holder is None or holder.get("run_id") != self.run_id:
            who = "which has ended" if holder is None else _described(holder)
            raise JobError(
                f"Another run has taken over the export of {self.topic} to this folder, {who}: this one publishes "
                "nothing, and what is missing is exported by the next."
            )

    def _holder(self) -> dict[str, Any] | None:
        """Return the holder of the lock; ``None`` if there is none, empty if the file is only partly written."""
        text = self.files.read_text(self.path)
        if text is None:
            return None
        try:
            holder = json.loads(text)
        except ValueError:
            holder = None
        return holder if isinstance(holder, dict) else {}


def _identity(process: int) -> dict[str, str | int]:
    """Return facts that distinguish a process from others with its number, after a reboot or in other containers. Facts
    that this system does not show are left out."""
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
    """Return the start of a process in ticks since the boot; ``None`` if there is no such process, or it is not
    shown."""
    try:
        # The name of the program, in parentheses, may have any characters.
        return int((_PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _is_dead(holder: Mapping[str, Any]) -> bool:
    """Return whether the process has surely ended. Several machines may have one host name."""
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
    # A system may not show the start of other users' processes.
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
