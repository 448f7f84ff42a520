"""The purgatory of fetches: long polls that wait until their partition has something for them.

A fetch that finds too little looks at the snapshot and registers here with no ``await`` between, so no publication
can fall between the two (invariant 7). Everything here runs on the event loop, and a look costs a few comparisons of
numbers that are in the snapshot: however many wait, a publication reads no disk for them.
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
"""This many fetches of those that a publication serves are woken in one turn of the loop: each takes up to 0.2 ms."""


def known_place(snapshot: LogSnapshot, offset: Offset) -> LogOffsetMetadata | None:
    """Where ``offset`` lies in the log, if the snapshot tells it without a look at the disk: at one of its ends."""
    for metadata in (snapshot.last_stable_metadata, snapshot.high_watermark_metadata, snapshot.log_end_metadata):
        if metadata.offset == offset:
            return metadata
    return None


def available_bytes(snapshot: LogSnapshot, place: LogOffsetMetadata, isolation: Isolation) -> int | None:
    """Bytes from ``place`` to the bound of ``isolation``; None when a roll lies between: the rest is on a newer
    segment, and whatever it is, a fetch is answered with it (spec D6 f).
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
    """Whether a read of ``snapshot`` from ``place`` has an answer now: enough bytes, or an error to tell (spec D6)."""
    if not snapshot.log_start_offset <= place.offset <= snapshot.log_end_offset:
        return True
    if place.offset >= snapshot.bound(isolation).offset:
        return False
    if min_bytes <= 1:
        return True
    available = available_bytes(snapshot, place, isolation)
    return available is None or available >= min_bytes


class FetchWaiter(DelayedOperation):
    """One fetch that waits. Whoever registered it awaits ``done``, then takes the partition's snapshot anew."""

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
    of the disk, or by the stop of the service, after which nothing waits any more. A bare roll wakes nobody.
    ``purgatory`` takes fetches of several partitions as well.
    """

    def __init__(self, *, count_max: int) -> None:
        self.purgatory: Purgatory[PartitionName] = Purgatory(
            "fetches", count_max=count_max, completed_per_turn=WOKEN_PER_TURN
        )
        self.watched: Container[Hashable] = self.purgatory.watching
        """Partitions that somebody waits for: no other needs waking."""

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
        """Wait at most ``wait_ms`` for ``log`` from ``place`` on; complete already if there is nothing to wait for.

        An offset is enough when ``min_bytes`` is 1; for more, give its place (``known_place``, or
        ``LogSnapshot.place_of`` in a thread), as one that is not known counts as on an older segment.

        Raises:
            Problem: overloaded; too many wait already.
        """
        where = place if isinstance(place, LogOffsetMetadata) else LogOffsetMetadata(place)
        waiter = FetchWaiter(log, where, min_bytes, isolation)
        self.purgatory.watch(waiter, (log.name,), wait_ms=wait_ms)
        return waiter

    def forget(self, waiter: FetchWaiter) -> None:
        """Take back a waiter whose client went away; one that is complete already stays as it is."""
        self.purgatory.cancel(waiter)

    def wake(self, partition: PartitionName) -> None:
        """Complete, soon, every waiter that the partition's snapshot serves by then."""
        self.purgatory.notify(partition)

    def wake_gone(self, partitions: Iterable[PartitionName]) -> None:
        """Complete every waiter of partitions that do not exist any more."""
        self.purgatory.complete_all(partitions, Wake.GONE)

    def wake_failed(self, partition: PartitionName) -> None:
        """Complete every waiter of a partition that takes no appends any more: each answers with what there is."""
        self.purgatory.complete_all((partition,), Wake.FAILED)

    def close(self) -> None:
        """Complete all: each answers with what there is. Later ones do not wait. Calling it again is fine."""
        self.purgatory.close()
