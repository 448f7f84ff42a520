"""Refusals of the engine: topics that were deleted, and offsets outside a log (spec B8)."""

from __future__ import annotations

from app.engine.partitions import Partition
from log_model.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from tests.memory_engine.log import MemoryLog
from tests.memory_engine.view import View


def log_of(partition: Partition) -> MemoryLog:
    """Return the log behind a handle of this engine."""
    assert isinstance(partition, MemoryLog)
    return partition


def refuse_deleted(log: MemoryLog) -> None:
    """Return unless the topic of the log was deleted.

    Raises:
        UnknownTopicOrPartitionError
    """
    if log.is_deleted:
        raise UnknownTopicOrPartitionError(f"{log.name} was deleted")


def check_offset(log: MemoryLog, view: View, offset: int, end: int) -> None:
    """Return if ``offset`` is inside ``[log start, end]``.

    Raises:
        OffsetOutOfRangeError
    """
    if offset > end:
        name = "log end offset" if end == view.log_end_offset else "high watermark"
        raise out_of_range(log, offset, f"offset {offset} is beyond the {name} {end}")
    if offset < view.log_start_offset:
        raise out_of_range(log, offset, f"offset {offset} is below the log start, {view.log_start_offset}")


def out_of_range(log: MemoryLog, offset: int, detail: str) -> OffsetOutOfRangeError:
    """Make the error with all limits, and below the log start with its last move."""
    limits = log.snapshot
    move = log.log_start_move if offset < limits.log_start_offset else None
    return OffsetOutOfRangeError(
        detail,
        offset=offset,
        **limits._asdict(),
        log_start_moved_ms=None if move is None else move.at_ms,
        log_start_moved_by=None if move is None else move.by,
    )
