"""Reads of an engine: of one partition, of several under one limit, by time, and for splits.

A read has two steps. ``Reads.begin`` finds where it starts and whether it must wait. ``PendingRead.outcome`` reads
once the wait is over. Between the two the request holds no records and no open files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeVar

from app.engine.partitions import Limits, Partition
from app.engine.waiting import Waiting
from log_model.offsets import LeaderEpoch, Offset
from log_model.reads import FetchData, Isolation
from log_model.splits import Split

Result = TypeVar("Result")

Place = int | Literal["earliest", "latest"]
"""An offset, the log start offset, or the end of the records that the reader's isolation shows."""


@dataclass(frozen=True, slots=True)
class Read:
    """One read of one partition. Exactly one of ``offset``, ``timestamp`` and ``tail`` is set.

    Example: ``Read(offset=5, end_offset=8)`` reads the offsets 5, 6 and 7.
    """

    offset: Place | None = None
    timestamp: int | None = None
    """Start at the first record at or after this time, in milliseconds; at the end if no record is that late."""
    tail: int | None = None
    """Start this many visible records before the end."""
    end_offset: int | None = None
    until: int | None = None
    """End before the first record from the start on that is at or after this time."""
    latest_ms: int | None = None
    """Records after this time say nothing about where the range begins and ends."""
    max_records: int | None = None
    """End after this many offsets."""
    max_bytes: int = 1024 * 1024
    """Limit on the bytes of batches; the first batch always comes whole."""
    wait_ms: int = 0
    min_bytes: int = 1
    """Wait until this many bytes are there, but never for more than ``max_bytes``."""
    restart_at_earliest: bool = False
    """Start at the log start offset if the start is below it."""
    aborted_count_max: int | None = None
    """Limit on the aborted transactions in the data: the read ends sooner, but not before its first batch ends."""
    isolation: Isolation = Isolation.HIGH_WATERMARK
    below_bound: bool = False
    """Refuse a start at or above the bound of ``isolation``. Otherwise only one above the log end offset is refused."""


class ReadOutcome(NamedTuple):
    """The batches that a read found, and the limits of the partition at that moment.

    Example: ``Read(offset=5, max_records=2)`` of a log with the offsets 0 to 9 has ``start`` 5, ``end`` ``None``,
    ``read_end`` 7, and the whole batches with the offsets 5 and 6.
    """

    start: Offset
    end: Offset | None
    """The end of the range; ``None`` while the log may still grow into the range."""
    read_end: Offset | None
    """The end of the records to show: ``end``, or sooner by ``max_records``; ``None`` without a limit."""
    limits: Limits
    data: FetchData
    """Whole batches, of which the first and the last may reach beyond ``start`` and ``read_end``. An engine that has
    the records in memory gives each slice its ``content``."""

    def emptied(self) -> ReadOutcome:
        """Return the same outcome with an empty range at ``start`` and without records."""
        return ReadOutcome(self.start, None, self.start, self.limits, FetchData((), self.start))


class PendingRead(Protocol):
    """A read that has its start, and may have to wait. Thread: the event loop."""

    @property
    def waiting(self) -> Waiting | None:
        """The wait that must be complete before ``outcome``; ``None`` if there is none."""

    async def outcome(self, then: Callable[[ReadOutcome], Result], *, max_bytes: int | None = None) -> Result:
        """Read, and return the result of ``then``, which runs in the thread that reads; on the loop if nothing is read.

        ``max_bytes`` is a limit beside that of the read. The method may be called again, and then reads again.

        Raises:
            OffsetOutOfRangeError: the log start offset is above the start by now.
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
            StorageError: the engine refuses the read, or stored bytes are damaged. Errors of ``then`` are passed on.
        """


class PartitionRead(NamedTuple):
    """One partition of a read of several partitions. Leader epochs that are absent or negative are not checked."""

    partition: Partition
    offset: Offset
    max_bytes: int
    current_leader_epoch: int | None = None
    """The current leader epoch as the client knows it."""
    last_fetched_epoch: int | None = None
    """The leader epoch of the client's last record before ``offset``."""


class Diverging(NamedTuple):
    """The records before the offset of a read differ from this log, in which ``epoch`` ends with ``end_offset``."""

    epoch: int
    end_offset: int


class PartitionOutcome(NamedTuple):
    """The outcome for one partition: an error, a divergence, or batches. ``limits`` is ``None`` with an error."""

    limits: Limits | None
    data: FetchData | None
    diverging: Diverging | None = None
    error: Exception | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the batches."""
        return 0 if self.data is None else self.data.size_bytes


@dataclass(frozen=True, slots=True)
class ManyReadOptions:
    """Limits that hold for all partitions of a read together.

    The first partition that has records gets its first batch whole. Other batches come only if they fit.
    """

    max_bytes: int
    min_bytes: int = 1
    wait_ms: int = 0
    isolation: Isolation = Isolation.HIGH_WATERMARK
    aborted_count_max: int | None = None
    """Limit on the aborted transactions that each partition lists."""


class ManyRead(NamedTuple):
    """Outcomes in the order of the reads. With ``waiting`` there are no outcomes: read again once it is complete."""

    outcomes: Sequence[PartitionOutcome]
    waiting: Waiting | None = None


class FoundOffset(NamedTuple):
    """An offset found by time or place. A place has no timestamp; an unknown leader epoch is ``None``."""

    offset: Offset
    timestamp: int | None
    leader_epoch: LeaderEpoch | int | None


class RangeBounds(NamedTuple):
    """The part of one partition that is to be split. A bound with a timestamp goes by it and not by its offset.

    An offset that is ``None`` is ``earliest`` for the start and ``latest`` for the end.
    """

    partition: Partition
    start_offset: Place | None = None
    start_timestamp: int | None = None
    end_offset: Place | None = None
    end_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """How several ranges are cut.

    Attributes:
        split_count: number of splits of all ranges together, shared out by bytes.
        record_count_max: limit on the offsets of one split, unless one batch has more.
        count_max: limit on the splits that may result.
        restart_at_earliest: a start below the log start offset means the log start offset.
    """

    split_count: int
    record_count_max: int | None
    count_max: int
    isolation: Isolation = Isolation.HIGH_WATERMARK
    restart_at_earliest: bool = False


class PartitionSplits(NamedTuple):
    """The splits of one range, which cover each of its offsets once. An empty range has none.

    Attributes:
        start, end: the range as offsets.
        size_bytes: bytes of the batches that hold the range.
        skipped_count: offsets below the log start offset that ``restart_at_earliest`` left out.
        start_is_late: whether no record is as late as the timestamp of the start.
    """

    limits: Limits
    start: Offset
    end: Offset
    size_bytes: int
    splits: Sequence[Split]
    skipped_count: int = 0
    start_is_late: bool = False


class StoredBatches(Limits, Protocol):
    """The batches of a partition at one moment. Thread: the thread that received it."""

    def read(self, offset: Offset, max_bytes: int, *, isolation: Isolation) -> FetchData:
        """Return the batches from ``offset``: at most ``max_bytes``, but always the whole first batch.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start offset or above the log end offset.
            CorruptionError: stored bytes are damaged.
        """


class Reads(Protocol):
    """The reads of an engine. Thread: the event loop."""

    async def begin(self, partition: Partition, read: Read) -> PendingRead:
        """Find the start of ``read``, and begin to wait if the read asks for it and too little is there.

        Raises:
            Problem: overloaded, too many requests wait already.
            OffsetOutOfRangeError: the start is outside the log, or at or above the bound with ``below_bound``.
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
            StorageError: the engine refuses the read, or stored bytes are damaged.
        """

    async def many(self, reads: Sequence[PartitionRead], options: ManyReadOptions) -> ManyRead:
        """Read several partitions in order; each gets the bytes that earlier partitions left of ``max_bytes``.

        An error of one partition is its outcome. With ``wait_ms`` begin to wait instead, if no partition failed or
        diverged and all of them together have less than ``min_bytes``.

        Raises:
            Problem: overloaded, too many requests wait already.
        """

    async def find_offset(
        self,
        partition: Partition,
        timestamp: int | Literal["earliest", "latest", "max_timestamp"],
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        current_leader_epoch: int | None = None,
    ) -> FoundOffset | None:
        """Return the first visible record at or after ``timestamp``, or the offset of a place.

        The result is ``None`` if there is no such record.

        ``max_timestamp`` is the first record with the largest timestamp.

        Raises:
            FencedLeaderEpochError, UnknownLeaderEpochError: ``current_leader_epoch`` is not the current one.
            OffsetNotAvailableError: the high watermark has not reached the current leader epoch.
            StorageError: the engine refuses the read, or stored bytes are damaged.
        """

    async def split(self, ranges: Sequence[RangeBounds], options: SplitOptions) -> Sequence[PartitionSplits]:
        """Cut ranges between batches into splits of about equal bytes; the splits of each range, in their order.

        Raises:
            TooManySplitsError: there would be more splits than ``count_max``.
            OffsetOutOfRangeError: a bound is outside the log.
            OffsetNotAvailableError: the high watermark of a range without a fixed end has not reached the leader epoch.
            StorageError: the engine refuses the read, or stored bytes are damaged.
        """

    async def stored(self, partition: Partition, call: Callable[[StoredBatches], Result]) -> Result:
        """Run ``call`` in a thread with the stored batches up to the log end offset, and return its result."""
