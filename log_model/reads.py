"""The result of one read of a log, and the bounds of reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from log_model.errors import CorruptionError
from log_model.offsets import Offset, Position
from log_model.transactions import AbortedTransaction


class Isolation(Enum):
    """The bound of a read (spec D12)."""

    LAST_STABLE = "last_stable"
    HIGH_WATERMARK = "high_watermark"
    LOG_END = "log_end"


class OffsetRange(NamedTuple):
    """The offsets ``[start, end)``."""

    start: Offset
    end: Offset


class OpenFile(Protocol):
    """A file whose bytes a read has found."""

    @property
    def path(self) -> Path:
        """The path at which the file was opened; a later rename does not change it."""

    def fileno(self) -> int:
        """Return the descriptor, for sendfile."""

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes; fewer only where the file ends."""

    def read_cached(self, position: int, length: int) -> bytes | bytearray | None:
        """Return the bytes from memory; ``None`` if the read would wait for the disk, or if the system cannot tell."""


class FileSlice(NamedTuple):
    """Bytes of an open file. Holders can read them even after the file was unlinked.

    ``content`` is set if the search already read the bytes. ``is_cached``: both ends were in memory then.
    """

    file: OpenFile
    position: Position
    size_bytes: int
    content: memoryview | None = None
    is_cached: bool = False

    def read(self) -> bytes:
        """Return all bytes.

        Raises:
            CorruptionError: the file has become shorter since the slice was made.
        """
        return self.read_part(0, self.size_bytes)

    def read_part(self, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start``, counted inside the slice; ends are clamped (spec D15)."""
        if start < 0 or length < 0 or start > self.size_bytes:
            raise ValueError(f"byte {start} and {length} more are not inside a slice of {self.size_bytes} bytes")
        length = min(length, self.size_bytes - start)
        if self.content is not None:
            return bytes(self.content[start : start + length])
        content = self.file.read(self.position + start, length)
        if len(content) != length:
            raise CorruptionError(f"{self.file.path} ends at byte {self.position + start + len(content)}, too early")
        return content


class FetchData(NamedTuple):
    """The result of one read: whole batches as slices of segment files, and the offset of the next read.

    The first batch may begin below the requested offset; the reader skips those records (spec D14). ``aborted``, with
    isolation ``LAST_STABLE`` only, are the aborted transactions that records of the batches may belong to, by rising
    marker. The reader also skips those records, and all control batches (spec E23).
    """

    slices: tuple[FileSlice, ...]
    next_offset: Offset
    aborted: tuple[AbortedTransaction, ...] | None = None

    @property
    def size_bytes(self) -> int:
        slices = self.slices
        return slices[0].size_bytes if len(slices) == 1 else sum([piece.size_bytes for piece in slices])


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment, for people and tools. ``next_offset`` is exclusive; a missing timestamp is -1."""

    base_offset: Offset
    next_offset: Offset
    size_bytes: int
    first_timestamp: int
    largest_timestamp: int
    offset_index_entries: int
    time_index_entries: int
    state: str


class TimestampedRecord(NamedTuple):
    """A record found by its timestamp."""

    offset: Offset
    timestamp: int
    leader_epoch: int
