"""The progress of opening and recovering the logs: a log line every few seconds, and the members of a 503."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from storage.recovery.recovery_progress import RecoveryProgress

logger = logging.getLogger(__name__)

LINE_INTERVAL_SECONDS = 5.0
_MIB = 1024 * 1024


def describe(progress: RecoveryProgress) -> str:
    """Return it as a phrase: ``12 of 100 partitions are open, 512 of 2,048 MiB are checked, 650 MiB/s, ...``."""
    parts = [f"{progress.partitions_done:,} of {progress.partition_count:,} partitions are open"]
    if progress.byte_count:
        parts.append(f"{progress.scanned_bytes // _MIB:,} of {progress.byte_count // _MIB:,} MiB are checked")
        parts.append(f"{progress.bytes_per_second // _MIB:,} MiB/s")
    if progress.remaining_ms is not None:
        parts.append(f"about {-(-progress.remaining_ms // 1000):,} s left")
    return ", ".join(parts)


def summarize(progress: RecoveryProgress) -> str:
    """Return the cost of opening as a phrase, once it is done."""
    text = f"opened {progress.partition_count:,} partitions in {progress.elapsed_ms / 1000:.1f} s"
    if not progress.scanned_bytes:
        return text
    return f"{text}; the last stop was not clean: {progress.scanned_bytes // _MIB:,} MiB were checked"


async def report(
    progress_of: Callable[[], RecoveryProgress | None], *, interval_seconds: float = LINE_INTERVAL_SECONDS
) -> None:
    """Log the progress every few seconds until cancelled. A quicker start logs nothing."""
    while True:
        await asyncio.sleep(interval_seconds)
        progress = progress_of()
        if progress is not None:
            logger.info("opening the logs: %s", describe(progress))
