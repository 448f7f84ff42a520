"""The limits up to which an active segment accepts batches without a roll, computed once for many appends (spec E6)."""

from __future__ import annotations

from log_model.config import TopicConfig
from log_model.offsets import NO_TIMESTAMP
from storage.index.index_file import RELATIVE_OFFSET_MAX
from storage.segment.segment import Segment

_ALWAYS = 2**63 - 1


class SegmentRoom:
    """The limits for the next batch. Rebuilt after a change of the segment, its settings or its indexes.

    Thread: the writer.
    """

    __slots__ = (
        "config",
        "end_offset_max",
        "entries_left",
        "segment",
        "size_bytes_max",
        "stamps_time",
        "timestamp_max",
    )

    def __init__(
        self, segment: Segment, config: TopicConfig, size_bytes_max: int, entries_left: int, timestamp_max: int
    ) -> None:
        self.segment = segment
        self.config = config
        self.size_bytes_max = size_bytes_max
        self.end_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX + 1
        self.timestamp_max = timestamp_max
        self.stamps_time = config.message_timestamp_type == "LogAppendTime"
        self.entries_left = entries_left
        """Number of entries for which the indexes have space; the writer counts it down."""

    @classmethod
    def of(cls, segment: Segment, config: TopicConfig, size_bytes_max: int) -> SegmentRoom | None:
        """Return the limits of an active segment with open files; ``None`` if it is sealed or may roll by age alone.

        ``size_bytes_max`` is ``segment.bytes``, or less if other work is due at a smaller size.

        The limits of an empty segment are invalid after its first batch.
        """
        if segment.sealed or not segment.is_ready:
            return None
        entries_left = segment.index_room()
        if not segment.size_bytes:
            is_empty = segment.offset_index.get().entry_count == 0
            return cls(segment, config, size_bytes_max, entries_left if entries_left or not is_empty else 1, _ALWAYS)
        first_timestamp = segment.first_timestamp
        if first_timestamp <= NO_TIMESTAMP:
            return None
        timestamp_max = min(first_timestamp + config.segment_ms - segment.jitter_ms, _ALWAYS)
        return cls(segment, config, size_bytes_max, entries_left, timestamp_max)
