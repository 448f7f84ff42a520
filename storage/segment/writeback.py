"""Early writeback of an active segment, so that later fsyncs do not wait for all of its bytes.

A roll makes the segment durable before the next one begins (spec E6, E25), and appends wait for that. Without early
writeback, most of a segment that was filled within seconds is still only in memory: to write 1 GB takes half a second.

The journal makes small flushes durable, so the segments of its topics also gather bytes. When a file of the journal is
full, all of them are fsynced at once. Each fsync of the journal meanwhile would wait for these bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from log_model.config import TopicConfig
from storage.segment.segment import Segment

GATHERED_BYTES = 4 * 1024 * 1024
"""Number of new bytes after which the next writeback starts."""
JOURNALED_BYTES = 512 * 1024
"""The same for a segment whose flushes go to the journal. More would hold up the journal's own fsyncs."""
ASKED_BYTES_MAX = 8 * GATHERED_BYTES
"""Limit of one request: while it runs, a thread is busy and appends are delayed more often."""


class Writeback:
    """The part of a log's active segment for which writeback was started.

    Writeback starts in the last quarter of a segment. Slowly written bytes are on the disk by then, because the system
    writes them itself, and a burst is over. Small segments need none.

    A topic with ``flush.policy=group`` needs none if each group has an fsync of its own. If the journal makes groups
    durable, writeback goes on from the beginning of the segment to its end.

    Thread: the log's writer.
    """

    __slots__ = ("_asked_bytes", "_look_from", "_segment")

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._asked_bytes = 0
        self._look_from = 0

    def look_from(self, active: Segment, config: TopicConfig) -> int:
        """Return the size of the segment at which ``due`` may have work, or ``segment.bytes``."""
        by_group = config.flush_policy == "group"
        if self._segment is not active:
            self._segment, self._asked_bytes = active, 0
            self._look_from = JOURNALED_BYTES if by_group else config.segment_bytes // 4 * 3
        if config.segment_bytes < 4 * (JOURNALED_BYTES if by_group else GATHERED_BYTES):
            return config.segment_bytes
        return min(self._look_from, config.segment_bytes)

    def due(
        self, active: Segment, config: TopicConfig, *, is_busy: bool, is_journaled: bool
    ) -> Callable[[], None] | None:
        """Return a call that starts writeback of the new bytes, for any thread; ``None`` if there are few, or not now.

        With ``is_busy`` an earlier call is still running, and the next one covers these bytes. ``is_journaled`` says
        whether the journal has made bytes of the log durable.
        """
        size_bytes = active.size_bytes
        if size_bytes < self.look_from(active, config) or size_bytes >= config.segment_bytes:
            return None
        by_group = config.flush_policy == "group"
        self._look_from = size_bytes + (JOURNALED_BYTES if by_group else GATHERED_BYTES)
        if by_group and not is_journaled:
            self._asked_bytes = size_bytes
        # A truncated log may be shorter than the part for which writeback was started.
        start = min(self._asked_bytes, size_bytes)
        if is_busy or start == size_bytes:
            return None
        self._asked_bytes = min(size_bytes, start + ASKED_BYTES_MAX)
        return partial(active.file.begin_writeback, start, self._asked_bytes - start)
