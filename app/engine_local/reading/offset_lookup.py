"""Offsets by time in one log (spec ListOffsets). Thread: the event loop; the disk is read in a thread."""

from __future__ import annotations

import functools
from concurrent.futures import Executor
from typing import Literal

from app.engine.reading import FoundOffset
from app.event_loop.pools import call_in
from log_model.errors import OffsetNotAvailableError
from log_model.reads import Isolation, TimestampedRecord
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog


async def find_offset(
    readers: Executor,
    log: PartitionLog,
    timestamp: int | Literal["earliest", "latest", "max_timestamp"],
    isolation: Isolation,
    current_leader_epoch: int | None,
) -> FoundOffset | None:
    """Find as ``Reads.find_offset`` does.

    Raises:
        FencedLeaderEpochError, UnknownLeaderEpochError, OffsetNotAvailableError, StorageError
    """
    log.epochs.check_current(current_leader_epoch)
    snapshot = log.snapshot
    if timestamp == "earliest":
        start = snapshot.log_start_offset
        return FoundOffset(start, None, log.epochs.epoch_for_offset(start))
    if timestamp == "latest":
        refuse_behind_epoch(log, snapshot)
        return FoundOffset(snapshot.bound(isolation).offset, None, log.leader_epoch)
    found = await _find_record(readers, snapshot, timestamp, isolation)
    if found is None:
        if _is_behind_epoch(log, snapshot) and await _find_record(readers, snapshot, timestamp, Isolation.LOG_END):
            raise _not_available(log, snapshot)
        return None
    return FoundOffset(*found)


async def _find_record(
    readers: Executor, snapshot: LogSnapshot, timestamp: int | Literal["max_timestamp"], bound: Isolation
) -> TimestampedRecord | None:
    if timestamp == "max_timestamp":
        return await call_in(readers, functools.partial(snapshot.max_timestamp, bound))
    return await call_in(readers, functools.partial(snapshot.offset_for_timestamp, timestamp, bound))


def refuse_behind_epoch(log: PartitionLog, snapshot: LogSnapshot) -> None:
    """Return if the end of the readable records is known.

    Raises:
        OffsetNotAvailableError: the high watermark has not reached the current leader epoch; an older leader may have
            shown more.
    """
    if _is_behind_epoch(log, snapshot):
        raise _not_available(log, snapshot)


def _is_behind_epoch(log: PartitionLog, snapshot: LogSnapshot) -> bool:
    latest = log.epochs.latest
    return latest is not None and snapshot.high_watermark < latest.start_offset


def _not_available(log: PartitionLog, snapshot: LogSnapshot) -> OffsetNotAvailableError:
    return OffsetNotAvailableError(
        f"the high watermark of {log.name}, {snapshot.high_watermark}, has not come to leader epoch {log.leader_epoch}"
    )
