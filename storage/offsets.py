"""Numbers with a meaning: offsets, positions, and the pairs of them that the log hands around."""

from __future__ import annotations

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""Number of a record in its partition. Ends are exclusive."""

Position = NewType("Position", int)
"""Byte place in a file."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Generation of a partition's leader; stamped into every batch (spec E1)."""

NO_TIMESTAMP = -1
"""A record or batch without a timestamp, as on the wire and on disk."""


class ByteRange(NamedTuple):
    """The bytes ``[start, end)`` of a file."""

    start: Position
    end: Position


class OffsetPosition(NamedTuple):
    """One entry of an offset index: the batch that ends with ``offset`` begins at ``position``."""

    offset: Offset
    position: Position


class TimestampOffset(NamedTuple):
    """One entry of a time index: no record at or before ``offset`` is later than ``timestamp`` (spec C8)."""

    timestamp: int
    offset: Offset


class LogOffsetMetadata(NamedTuple):
    """An offset and where it lies: which segment, and how many bytes into it (spec A16).

    ``segment_base_offset`` and ``position`` are -1 when only the offset is known. A segment base is an
    absolute offset, not a relative one.
    """

    offset: Offset
    segment_base_offset: Offset = Offset(-1)
    position: Position = Position(-1)

    @property
    def is_offset_only(self) -> bool:
        return self.segment_base_offset < 0

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether this lies on an older segment than ``other``; false when either place is unknown."""
        if self.is_offset_only or other.is_offset_only:
            return False
        return self.segment_base_offset < other.segment_base_offset

    def on_same_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether both lie on one segment; false when either place is unknown."""
        if self.is_offset_only or other.is_offset_only:
            return False
        return self.segment_base_offset == other.segment_base_offset

    def position_difference(self, earlier: LogOffsetMetadata) -> int:
        """Bytes from ``earlier`` to here.

        Raises:
            ValueError: the two are not on one segment, or this lies before ``earlier``.
        """
        if not self.on_same_segment(earlier):
            raise ValueError(f"{self} and {earlier} are not on the same segment")
        if self.position < earlier.position:
            raise ValueError(f"{self} lies before {earlier}")
        return self.position - earlier.position
