"""The operations of a simulated disk, and the faults that can strike them."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Operation(NamedTuple):
    """One operation that changes the disk; ``number`` counts from 0."""

    number: int
    kind: str
    path: Path

    def __str__(self) -> str:
        return f"{self.number} {self.kind} {self.path.name}"


@dataclass(slots=True)
class Fault:
    """Let one operation fail with ``error``: the one numbered ``at`` of those since the fault was set, from 0.

    With ``lasting`` all later ones fail too. Only operations of ``kinds`` fail, if given; all are counted, also
    when the fault moves to another disk. ``written`` is the part of a failing write that reaches the file, 0 to 1.
    """

    at: int
    error: int = errno.EIO
    written: float = 0.5
    lasting: bool = False
    kinds: frozenset[str] | None = None
    hits: int = 0
    seen: int = 0
    struck: str = ""

    def strikes(self, kind: str, path: Path) -> bool:
        number, self.seen = self.seen, self.seen + 1
        if number != self.at and not (self.lasting and number > self.at):
            return False
        if self.kinds is not None and kind not in self.kinds:
            return False
        self.hits += 1
        self.struck = f"{kind} {path.name}"
        return True


FULL_DISK_KINDS = frozenset({"extend", "make_directory"})
"""What a full disk refuses for sure: there are no more blocks, but overwriting and small changes of names go on."""

SPACE_KINDS = FULL_DISK_KINDS | {"create", "write", "truncate", "sync", "sync_all", "rename"}
"""What a disk without space may refuse; removing, cutting and syncing a directory need none."""


def os_error(fault: Fault, path: Path) -> OSError:
    return OSError(fault.error, os.strerror(fault.error), str(path))
