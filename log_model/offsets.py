"""Numbers with a meaning: offsets, positions, and pairs of them."""

from __future__ import annotations

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""Number of a record in its partition. Ends are exclusive."""

Position = NewType("Position", int)
"""Byte position in a file."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Generation of a partition's leader; stamped into every batch (spec E1)."""

NO_TIMESTAMP = -1
"""The timestamp of a record or batch without one, as on the wire and on disk."""


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
    """An offset and its position: the segment, and the bytes before it in that segment (spec A16).

    ``segment_base_offset`` and ``position`` are -1 if only the offset is known. ``segment_base_offset`` is an absolute
    offset. Example: ``(55, 50, 1200)`` is offset 55, in the segment with base offset 50, 1200 bytes into its file.
    """

    offset: Offset
    segment_base_offset: Offset = Offset(-1)
    position: Position = Position(-1)

    @property
    def is_offset_only(self) -> bool:
        return self.segment_base_offset < 0

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Return whether this lies on an older segment than ``other``; false if either position is unknown."""
        if self.is_offset_only or other.is_offset_only:
            return False
        return self.segment_base_offset < other.segment_base_offset

    def on_same_segment(self, other: LogOffsetMetadata) -> bool:
        """Return whether both lie on one segment; false if either position is unknown."""
        if self.is_offset_only or other.is_offset_only:
            return False
        return self.segment_base_offset == other.segment_base_offset

    def position_difference(self, earlier: LogOffsetMetadata) -> int:
        """Return the number of bytes from ``earlier`` to here.

        Raises:
            ValueError: the two are not on one segment, or this lies before ``earlier``.
        """
        if not self.on_same_segment(earlier):
            raise ValueError(f"{self} and {earlier} are not on the same segment")
        if self.position < earlier.position:
            raise ValueError(f"{self} lies before {earlier}")
        return self.position - earlier.position
