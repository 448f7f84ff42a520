"""Lines from a file, a pipe or a terminal, in pieces: bounded memory, and no wait while lines are ready."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterator

READ_BYTES = 1 << 18
LINE_BYTES_MAX = 16 << 20
# The longest timeout of the system: a C int, 24 days.
_POLL_MS_MAX = 2**31 - 1


class LineTooLongError(ValueError):
    """A line is longer than ``LINE_BYTES_MAX``."""


class LineSplitter:
    """A splitter of pieces of any length into lines. Its time is proportional to the bytes, for lines of any length.

    Example: ``feed(b"a\\nb")`` returns ``[b"a"]``, then ``feed(b"c\\n")`` returns ``[b"bc"]``.
    """

    def __init__(self) -> None:
        # Pieces of the line that has not ended. They are joined once, when it ends.
        self._rest: list[bytes] = []
        self.rest_bytes = 0
        self.copied_bytes = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that ``piece`` completes, without their line feeds."""
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines and self._rest:
            lines[0] = self._taken(lines[0])
        if rest:
            self._rest.append(rest)
            self.rest_bytes += len(rest)
        return lines

    def finish(self) -> list[bytes]:
        """Return the line that has no line feed, if there is one. No piece follows."""
        return [self._taken(b"")] if self._rest else []

    def _taken(self, end: bytes) -> bytes:
        line = b"".join((*self._rest, end))
        self.copied_bytes += len(line)
        self._rest.clear()
        self.rest_bytes = 0
        return line


class LineSource:
    """A reader of lines from a descriptor. A line ends with a line feed, which is not part of it; the last may lack
    it."""

    def __init__(self, descriptor: int, *, linger_ms: int) -> None:
        self._descriptor = descriptor
        self._linger_ms = min(linger_ms, _POLL_MS_MAX)
        # ``select`` would refuse a descriptor above 1023.
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self.read_bytes = 0

    def lines(self) -> Iterator[bytes | None]:
        """Yield lines, and ``None`` after the linger time without input, so that a partial batch can be sent.

        Raises:
            LineTooLongError: a line does not end within ``LINE_BYTES_MAX`` bytes.
            OSError: the input cannot be read.
        """
        splitter = LineSplitter()
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
            yield from splitter.feed(piece)
            if splitter.rest_bytes > LINE_BYTES_MAX:
                raise LineTooLongError(f"it is longer than {LINE_BYTES_MAX} bytes")
        yield from splitter.finish()


def input_size(descriptor: int) -> int | None:
    """Return the bytes left in a regular file; ``None`` for a pipe or a terminal."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR)
