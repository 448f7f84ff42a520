"""Asking the disk to write what gathers in an active segment, so that the roll does not wait for all of it.

A roll makes the segment durable before the next one begins (spec E6, E25), and appends wait for that. Left to the
system, most of a segment that was filled within seconds is only in memory then: a gigabyte takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from storage.config import TopicConfig
from storage.segment.segment import Segment

GATHERED_BYTES = 4 * 1024 * 1024
"""So much more, and the disk is asked again."""
ASKED_BYTES_MAX = 8 * GATHERED_BYTES
"""What it is asked for at once: as long as that takes, a thread is busy, and appends are held up more often."""


class Writeback:
    """What of a log's active segment the disk was asked to write.

    It begins in the last quarter of a segment: what was written more slowly than the system writes by itself is on the
    disk by then, and a burst is over. Small segments are left alone, and topics that have an fsync for each group.

    Thread: the log's writer.
    """

    __slots__ = ("_asked_bytes", "_look_from", "_segment")

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._asked_bytes = 0
        self._look_from = 0

    def look_from(self, active: Segment, config: TopicConfig) -> int:
        """The size of the segment above which there is something to do, or ``segment.bytes``."""
        if self._segment is not active:
            self._segment, self._asked_bytes = active, 0
            self._look_from = config.segment_bytes // 4 * 3
        if config.segment_bytes < 4 * GATHERED_BYTES or config.flush_policy == "group":
            return config.segment_bytes
        return min(self._look_from, config.segment_bytes)

    def due(self, active: Segment, config: TopicConfig, *, is_busy: bool) -> Callable[[], None] | None:
        """What asks the disk for the bytes that have gathered, in any thread; ``None`` if there are few, or for now.

        With ``is_busy`` the disk is still being asked, and these bytes come along with the next.
        """
        size_bytes = active.size_bytes
        if size_bytes < self.look_from(active, config) or size_bytes >= config.segment_bytes:
            return None
        self._look_from = size_bytes + GATHERED_BYTES
        # A log that was cut is shorter than what was asked for.
        start = min(self._asked_bytes, size_bytes)
        if is_busy or start == size_bytes:
            return None
        self._asked_bytes = min(size_bytes, start + ASKED_BYTES_MAX)
        return partial(active.file.begin_writeback, start, self._asked_bytes - start)
