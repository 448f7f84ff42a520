"""Bytes and stretches of files that are still to be sent, and the sending of as much as a socket takes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from app.http.transfer import page_cache
from app.http.transfer.transfer_turns import PIECE_BYTES
from app.http.transfer.wire import Wire
from log_model.reads import FileSlice

SLACK_BYTES = 64 * 1024
"""The last piece of a file may exceed the budget by this much."""

AnyPart = bytes | bytearray | memoryview | FileSlice
"""Bytes, or a stretch of a file."""


class FileEndedError(Exception):
    """A file that is shorter than the head of its response has promised."""


class UnsentParts:
    """The parts of one response that are still to be sent, in order.

    Files are sent only from the page cache, so that the loop does not wait for the disk: ``is_cold`` is set where the
    next bytes are not there.

    Thread: the event loop's.
    """

    __slots__ = ("_checked_to", "_left", "_parts", "_position", "_source", "is_cold", "is_full", "sent_bytes")

    def __init__(self, parts: Sequence[AnyPart]) -> None:
        # The next part is the last of the list.
        self._parts = [part for part in reversed(parts) if size_of(part)]
        # A descriptor of our own of the file that is sent; see ``keep_file``.
        self._source = -1
        # If the next part is a stretch of a file: the next byte, the number of bytes left, and the end of the bytes
        # that were found in the page cache.
        self._position = self._left = self._checked_to = 0
        self.is_full = False
        """Whether the socket took less than it was offered."""
        self.is_cold = False
        """Whether the next bytes would have to be read from the disk."""
        self.sent_bytes = 0
        self._begin_part()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def size_bytes(self) -> int:
        """Return the size of the parts that are not sent whole; of these also the bytes that were sent."""
        return sum(map(size_of, self._parts))

    def skip(self, sent_bytes: int) -> None:
        """Count ``sent_bytes`` of the first two parts as sent. The first is bytes, the second a stretch of a file."""
        self.sent_bytes = sent_bytes
        part = self._parts[-1]
        if sent_bytes < size_of(part):
            assert not isinstance(part, FileSlice)
            self._parts[-1] = memoryview(part)[sent_bytes:]
            return
        sent_bytes -= size_of(part)
        self._end_part()
        self._position += sent_bytes
        self._left -= sent_bytes

    def send(self, wire: Wire, budget: int) -> bool:
        """Send until nothing is left, the socket is full, ``budget`` bytes are sent or the disk would be waited for.

        Return whether nothing is left. The last piece of a file may exceed the budget by ``SLACK_BYTES``.

        Raises:
            FileEndedError: a file is shorter than its part.
            ConnectionError: the peer is gone.
        """
        parts = self._parts
        self.is_full = self.is_cold = False
        while parts:
            part = parts[-1]
            if budget <= 0 and isinstance(part, FileSlice):
                break
            try:
                if isinstance(part, FileSlice):
                    sent, wanted = self._send_file(wire, part, budget)
                else:
                    sent, wanted = self._send_bytes(wire, part)
            except BlockingIOError:
                self.is_full = True
                return False
            self.sent_bytes += sent
            budget -= sent
            if sent < wanted:
                self.is_full = not self.is_cold
                return False
            if budget <= 0:
                break
        return not parts

    def keep_file(self) -> None:
        """Duplicate the descriptor of the file that is sent next, so that its owner may close it.

        Raises:
            FileEndedError: the owner has closed it.
        """
        part = self._parts[-1]
        if isinstance(part, FileSlice) and self._source < 0:
            self._source = os.dup(_descriptor_of(part))

    def cold_piece(self) -> tuple[int, int, int]:
        """Return the descriptor, the position and the size of the piece that a thread sends. Behind ``keep_file``."""
        return self._source, self._position, min(self._left, page_cache.PROBE_BYTES)

    def end_cold_piece(self, sent_bytes: int) -> None:
        """Count what a thread has sent of ``cold_piece``.

        Raises:
            FileEndedError: it was nothing, as the file is shorter than its part.
        """
        self.sent_bytes += sent_bytes
        self._count_of_file(sent_bytes)

    def close_file(self) -> None:
        """Close the descriptor of ``keep_file``, if there is one."""
        if self._source >= 0:
            os.close(self._source)
            self._source = -1

    def clear(self) -> None:
        """Drop all parts."""
        self._parts.clear()

    def _begin_part(self) -> None:
        self._checked_to = -1
        if self._parts and isinstance(part := self._parts[-1], FileSlice):
            self._position, self._left = part.position, part.size_bytes
            if part.is_cached:
                self._checked_to = part.position + part.size_bytes

    def _end_part(self) -> None:
        del self._parts[-1]
        self.close_file()
        self._begin_part()

    def _send_bytes(self, wire: Wire, part: bytes | bytearray | memoryview) -> tuple[int, int]:
        sent = wire.send(part, is_more_to_come=len(self._parts) > 1)
        if sent < len(part):
            self._parts[-1] = memoryview(part)[sent:]
        else:
            self._end_part()
        return sent, len(part)

    def _send_file(self, wire: Wire, part: FileSlice, budget: int) -> tuple[int, int]:
        """Return the bytes that were sent, and the bytes that were to be sent."""
        source = self._source if self._source >= 0 else _descriptor_of(part)
        # A small rest costs less than another turn.
        piece = self._left if self._left <= budget + SLACK_BYTES else budget
        if self._position + piece > self._checked_to and not self._seems_cached(source):
            self.is_cold = True
            return 0, piece
        sent = os.sendfile(wire.descriptor, source, self._position, piece)
        self._count_of_file(sent)
        return sent, piece

    def _count_of_file(self, sent: int) -> None:
        if sent == 0:
            raise FileEndedError
        self._position += sent
        self._left -= sent
        if not self._left:
            self._end_part()

    def _seems_cached(self, source: int) -> bool:
        """Return whether a piece from here on, as large as one may be, seems to be in the page cache."""
        length = min(self._left, PIECE_BYTES + SLACK_BYTES)
        if not page_cache.seems_cached(source, self._position, length):
            return False
        self._checked_to = self._position + length
        return True


def size_of(part: AnyPart) -> int:
    """Return the size of a part in bytes."""
    return part.size_bytes if isinstance(part, FileSlice) else len(part)


def _descriptor_of(part: FileSlice) -> int:
    try:
        return part.file.fileno()
    except ValueError:
        # Closed before its turn came.
        raise FileEndedError from None
