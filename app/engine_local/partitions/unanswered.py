"""Appends whose answer does not wait for them: counted all the same, once they are written."""

from __future__ import annotations

import asyncio
from typing import Protocol

from app.engine_local.partitions.pending_append import PendingAppend
from app.metrics.metrics import Metrics
from storage.log.partition_log import AppendResult


class Counting(Protocol):
    """Counts appends."""

    metrics: Metrics

    def count_produced(self, result: AppendResult, size_bytes: int) -> None:
        """Count what was appended."""
        ...


def count_when_written(counting: Counting, pending: PendingAppend, *, is_dropped: bool = False) -> None:
    """Count an append as soon as it is written. With ``is_dropped`` a failure is counted as a dropped append.

    Thread: the event loop.
    """

    def count(written: asyncio.Future[AppendResult]) -> None:
        if not written.cancelled() and written.exception() is None:
            counting.count_produced(written.result(), pending.size_bytes)
        elif is_dropped:
            counting.metrics.dropped_appends.inc()

    pending.written.add_done_callback(count)
