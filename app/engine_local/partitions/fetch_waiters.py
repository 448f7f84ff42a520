"""The purgatory of fetches: long polls that wait until their partition has enough records for them.

A fetch that finds too little looks at the snapshot and registers here with no ``await`` between, so no publication
can fall between the two (invariant 7). Everything here runs on the event loop, and a look costs a few comparisons of
numbers that are in the snapshot: a publication reads no disk for any number of waiting fetches.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable

from app.engine_local.partitions.purgatory import DelayedOperation, Purgatory, Wake
from log_model.names import PartitionName
from log_model.offsets import LogOffsetMetadata, Offset
from log_model.reads import Isolation
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog

__all__ = ["FetchWaiter", "FetchWaiters", "Wake", "available_bytes", "is_served", "known_place"]

WOKEN_PER_TURN = 8
"""Limit on the fetches that a publication wakes in one turn of the loop: each takes up to 0.2 ms."""


def known_place(snapshot: LogSnapshot, offset: Offset) -> LogOffsetMetadata | None:
    """Return the place of ``offset`` in the log if it is one of its ends, which the snapshot knows without the disk."""
    for metadata in (snapshot.last_stable_metadata, snapshot.high_watermark_metadata, snapshot.log_end_metadata):
        if metadata.offset == offset:
            return metadata
    return None


def available_bytes(snapshot: LogSnapshot, place: LogOffsetMetadata, isolation: Isolation) -> int | None:
    """Return the bytes from ``place`` to the bound of ``isolation``, or ``None`` if a roll lies between.

    The rest is then on a newer segment, and a fetch ends with it whatever its size (spec D6 f).
    """
    bound = snapshot.bound(isolation)
    if place.offset >= bound.offset:
        return 0
    return bound.position_difference(place) if bound.on_same_segment(place) else None


def is_served(
    snapshot: LogSnapshot,
    place: LogOffsetMetadata,
    min_bytes: int,
    isolation: Isolation = Isolation.HIGH_WATERMARK,
) -> bool:
    """Return whether a read of ``snapshot`` from ``place`` can end now: with enough bytes, or an error (spec D6)."""
    if not snapshot.log_start_offset <= place.offset <= snapshot.log_end_offset:
        return True
    if place.offset >= snapshot.bound(isolation).offset:
        return False
    if min_bytes <= 1:
        return True
    available = available_bytes(snapshot, place, isolation)
    return available is None or available >= min_bytes


class FetchWaiter(DelayedOperation):
    """One fetch that waits. Its caller awaits ``done``, and then takes the partition's snapshot again."""

    __slots__ = ("_isolation", "_log", "_min_bytes", "_place")

    def __init__(self, log: PartitionLog, place: LogOffsetMetadata, min_bytes: int, isolation: Isolation) -> None:
        super().__init__()
        self._log = log
        self._place = place
        self._min_bytes = min_bytes
        self._isolation = isolation

    def is_ready(self) -> bool:
        return is_served(self._log.snapshot, self._place, self._min_bytes, self._isolation)


class FetchWaiters:
    """All fetches that wait, by partition, at most ``count_max`` of them.

    Each completes exactly once: by a publication that serves it, by its time, by the end of its topic, by a failure
    of the disk, or by the stop of the service. After the stop no fetch waits. A bare roll wakes none. ``purgatory``
    also takes fetches of several partitions.
    """

    def __init__(self, *, count_max: int) -> None:
        self.purgatory: Purgatory[PartitionName] = Purgatory(
            "fetches", count_max=count_max, completed_per_turn=WOKEN_PER_TURN
        )
        self.watched: Container[Hashable] = self.purgatory.watching
        """Partitions that a fetch waits for. Only these need a wake."""

    def __len__(self) -> int:
        return len(self.purgatory)

    def register(
        self,
        log: PartitionLog,
        place: LogOffsetMetadata | Offset,
        *,
        min_bytes: int,
        wait_ms: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
    ) -> FetchWaiter:
        """Return a fetch that waits at most ``wait_ms`` for ``log`` from ``place`` on, or is complete already.

        An offset is enough if ``min_bytes`` is 1. For more bytes give its place (``known_place``, or
        ``LogSnapshot.place_of`` in a thread): an unknown place counts as one on an older segment.

        Raises:
            Problem: overloaded; too many fetches wait already.
        """
        where = place if isinstance(place, LogOffsetMetadata) else LogOffsetMetadata(place)
        waiter = FetchWaiter(log, where, min_bytes, isolation)
        self.purgatory.watch(waiter, (log.name,), wait_ms=wait_ms)
        return waiter

    def forget(self, waiter: FetchWaiter) -> None:
        """Remove a waiter whose client has gone. A complete waiter stays as it is."""
        self.purgatory.cancel(waiter)

    def wake(self, partition: PartitionName) -> None:
        """Complete soon every waiter that the partition's snapshot serves by then."""
        self.purgatory.notify(partition)

    def wake_gone(self, partitions: Iterable[PartitionName]) -> None:
        """Complete every waiter of partitions that no longer exist."""
        self.purgatory.complete_all(partitions, Wake.GONE)

    def wake_failed(self, partition: PartitionName) -> None:
        """Complete every waiter of a partition that takes no appends any more. Each ends with the available records."""
        self.purgatory.complete_all((partition,), Wake.FAILED)

    def close(self) -> None:
        """Complete all waiters, each with the available records. Later fetches do not wait. It may be called again."""
        self.purgatory.close()
