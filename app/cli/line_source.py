"""Lines from a file, a pipe or a terminal, in pieces: bounded memory, and no waiting while lines lie ready."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterator

READ_BYTES = 1 << 18
LINE_BYTES_MAX = 16 << 20


class LineTooLongError(ValueError):
    """A line is longer than ``LINE_BYTES_MAX``."""


class LineSource:
    """Reads lines from a descriptor. Lines end with a line feed, which is not part of them; the last may lack it."""

    def __init__(self, descriptor: int, *, linger_ms: int) -> None:
        self._descriptor = descriptor
        self._linger_ms = linger_ms
        # Not ``select``, which refuses a descriptor above 1023.
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self.read_bytes = 0

    def lines(self) -> Iterator[bytes | None]:
        """Yield lines; ``None`` whenever nothing has come for the linger time, so that what came can be sent.

        Raises:
            LineTooLongError: a line does not end within ``LINE_BYTES_MAX`` bytes.
            OSError: the input cannot be read.
        """
        rest = b""
        waits_for_ever = True  # nothing is held back yet
        while True:
            if not self._poll.poll(None if waits_for_ever else self._linger_ms):
                waits_for_ever = True
                yield None
                continue
            piece = os.read(self._descriptor, READ_BYTES)
            if not piece:
                break
            self.read_bytes += len(piece)
            waits_for_ever = False
            lines = (rest + piece).split(b"\n") if rest else piece.split(b"\n")
            rest = lines.pop()
            yield from lines
            if len(rest) > LINE_BYTES_MAX:
                raise LineTooLongError(f"it is longer than {LINE_BYTES_MAX} bytes")
        if rest:
            yield rest


def input_size(descriptor: int) -> int | None:
    """Bytes left in a regular file; ``None`` for a pipe or a terminal."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR)
