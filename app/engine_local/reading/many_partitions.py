"""Reads of several partitions under one limit of bytes, and the wait for more (spec D5 to D8, D11).

A partition that cannot be read never keeps another partition from being read.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, cast

from app.engine.reading import Diverging, ManyReadOptions, PartitionOutcome, PartitionRead
from app.engine_local.partitions.fetch_waiters import available_bytes, known_place
from app.engine_local.partitions.purgatory import DelayedOperation
from app.engine_local.reading.ranges import read_listable
from app.event_loop.pools import call_in
from log_model.errors import PartitionOfflineError, StorageError
from log_model.names import PartitionName
from log_model.offsets import LogOffsetMetadata
from log_model.reads import Isolation
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog


def read_partitions(reads: Iterable[PartitionRead], options: ManyReadOptions) -> list[PartitionOutcome]:
    """Read the partitions in order; each gets the bytes that earlier partitions left of ``options.max_bytes``.

    The first partition that has records gets its first batch whole, even beyond the limits. Later batches come only if
    they fit. No partition gets a part of a batch, or more than ``options.aborted_count_max`` aborted transactions.

    Thread: a reader; the disk may be read.
    """
    left_bytes = options.max_bytes
    min_one = True
    outcomes = []
    for one in reads:
        max_bytes = min(one.max_bytes, left_bytes)
        try:
            outcome = _read(one, log_of(one), max_bytes, options, min_one)
        except StorageError as error:
            outcome = PartitionOutcome(None, None, error=error)
        except OSError as error:
            words = f"{one.partition.name} cannot be read: {error.strerror or error}"
            outcome = PartitionOutcome(None, None, error=PartitionOfflineError(words))
        outcomes.append(outcome)
        size_bytes = outcome.size_bytes
        if size_bytes:
            min_one = False
            left_bytes = max(0, left_bytes - size_bytes)
    return outcomes


def _read(
    one: PartitionRead, log: PartitionLog, max_bytes: int, options: ManyReadOptions, min_one: bool
) -> PartitionOutcome:
    _check_leader_epoch(log, one)
    # The snapshot comes before the records: the limits in an outcome were true when its records were read.
    snapshot = log.snapshot
    diverging = _find_divergence(log, snapshot, one)
    if diverging is not None:
        return PartitionOutcome(snapshot, None, diverging)
    data = read_listable(snapshot, one.offset, max_bytes, options.isolation, options.aborted_count_max, min_one=min_one)
    return PartitionOutcome(snapshot, data)


def log_of(one: PartitionRead) -> PartitionLog:
    """Return the partition's log."""
    assert isinstance(one.partition, PartitionLog)
    return one.partition


def _find_divergence(log: PartitionLog, snapshot: LogSnapshot, one: PartitionRead) -> Diverging | None:
    """Return the place where the client's log diverges from this log, if ``last_fetched_epoch`` shows one (spec E2).

    Raises:
        OffsetOutOfRangeError: the epoch is unknown here, or the offset lies below the log start.
    """
    if one.last_fetched_epoch is None or one.last_fetched_epoch < 0:
        return None
    found = log.epochs.find_divergence(
        one.last_fetched_epoch,
        one.offset,
        log_start_offset=snapshot.log_start_offset,
        log_end_offset=snapshot.log_end_offset,
    )
    return None if found is None else Diverging(*found)


def _check_leader_epoch(log: PartitionLog, one: PartitionRead) -> None:
    """Compare the client's current leader epoch with the log's own; an absent epoch and -1 pass (spec D11).

    Raises:
        FencedLeaderEpochError, UnknownLeaderEpochError
    """
    if one.current_leader_epoch is not None and one.current_leader_epoch >= 0:
        log.epochs.check_current(one.current_leader_epoch)


def is_enough(outcomes: Sequence[PartitionOutcome], min_bytes: int) -> bool:
    """Return whether the outcomes go to the client at once (spec D5)."""
    return (
        not outcomes
        or any(outcome.error is not None or outcome.diverging is not None for outcome in outcomes)
        or sum(outcome.size_bytes for outcome in outcomes) >= min_bytes
    )


class Watched(NamedTuple):
    """One partition of a read that waits, and the place of its next batch as far as it is known."""

    log: PartitionLog
    read: PartitionRead
    place: LogOffsetMetadata


async def places(
    readers: Executor, reads: Sequence[PartitionRead], outcomes: Sequence[PartitionOutcome]
) -> list[Watched]:
    """Find the place of each read. The disk is read only for partitions that have some records, but too few."""
    watched = []
    for one, outcome in zip(reads, outcomes, strict=True):
        snapshot = outcome.limits
        assert isinstance(snapshot, LogSnapshot)
        place = known_place(snapshot, one.offset)
        if place is None and outcome.size_bytes:
            place = await call_in(readers, functools.partial(snapshot.place_of, one.offset))
        watched.append(Watched(log_of(one), one, place or LogOffsetMetadata(one.offset)))
    return watched


class DelayedRead(DelayedOperation):
    """A read of several partitions that waits for ``min_bytes`` in all of them, or for an error (spec D6).

    A publication in one partition looks at that partition alone, with the bytes of the others at the last look.
    """

    __slots__ = ("_available", "_isolation", "_min_bytes", "_total_bytes", "_watched")

    def __init__(self, watched: Sequence[Watched], min_bytes: int, isolation: Isolation) -> None:
        super().__init__()
        self._watched = {one.log.name: one for one in watched}
        self._available = dict.fromkeys(self._watched, 0)
        self._total_bytes = 0
        self._min_bytes = min_bytes
        self._isolation = isolation

    def is_ready(self) -> bool:
        return any(self._look_at(name, one) for name, one in self._watched.items())

    def is_ready_at(self, key: Hashable) -> bool:
        name = cast("PartitionName", key)
        return self._look_at(name, self._watched[name])

    def _look_at(self, name: PartitionName, watched: Watched) -> bool:
        """Record the bytes that one partition has now. Return whether all partitions together complete the read."""
        log, one, place = watched
        snapshot = log.snapshot
        if not snapshot.log_start_offset <= place.offset <= snapshot.log_end_offset:
            return True
        if _is_refused(log, one):
            return True
        available = available_bytes(snapshot, place, self._isolation)
        if available is None:
            return True
        counted = min(available, one.max_bytes)
        self._total_bytes += counted - self._available[name]
        self._available[name] = counted
        return self._total_bytes >= self._min_bytes


def _is_refused(log: PartitionLog, one: PartitionRead) -> bool:
    """Return whether a change of leader epochs makes the outcome an error or a divergence."""
    if one.current_leader_epoch is None and one.last_fetched_epoch is None:
        return False
    try:
        _check_leader_epoch(log, one)
        return _find_divergence(log, log.snapshot, one) is not None
    except StorageError:
        return True
