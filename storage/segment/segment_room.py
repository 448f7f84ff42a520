"""How much more an active segment takes before it is rolled, worked out once for many appends (spec E6)."""

from __future__ import annotations

from storage.config import TopicConfig
from storage.offsets import NO_TIMESTAMP
from storage.segment.segment import RELATIVE_OFFSET_MAX, Segment

_ALWAYS = 2**63 - 1


class SegmentRoom:
    """What a batch that comes next must keep to. Made anew when the segment, its settings or its indexes were changed.

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
        """How many more entries the indexes take; counted down by the writer."""

    @classmethod
    def of(cls, segment: Segment, config: TopicConfig, size_bytes_max: int) -> SegmentRoom | None:
        """The room of an active segment whose files are open; ``None`` when it is sealed, or its age alone may roll it.

        ``size_bytes_max`` is ``segment.bytes``, or less when there is something to do before.

        What holds for an empty segment does not hold after its first batch.
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
