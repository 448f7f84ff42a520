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
from dataclasses import dataclass
from typing import Any

from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.hadoop_files import HadoopFiles
from rollway.spark.jobs.places import format_time


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


def _is_dead(holder: Mapping[str, Any]) -> bool:
    """Whether it is known that the process is no more."""
    process = holder.get("process")
    if holder.get("host") != socket.gethostname() or not isinstance(process, int):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _described(holder: Mapping[str, Any]) -> str:
    host, process, begun = (holder.get(name, "?") for name in ("host", "process", "begun"))
    return f"on {host} (process {process}) since {begun}"
