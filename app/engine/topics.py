"""Topics: made, altered, deleted and described; and the calls that shorten their partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from app.engine.partitions import Limits, Partition, Topic
from log_model.epochs import EpochEndOffset, EpochEntry
from log_model.offsets import LeaderEpoch, Offset
from log_model.reads import SegmentInfo
from log_model.retention import DeletedSegment, RetentionEntry


class PartitionView(NamedTuple):
    """One partition at one moment.

    ``replicas`` and ``in_sync`` are numbers of nodes. ``segment_count`` is 0 for an engine without segments, and
    ``recovery_point`` is -1 for an engine that cannot tell it.
    """

    partition: int
    limits: Limits
    leader_epoch: LeaderEpoch
    recovery_point: Offset
    size_bytes: int
    segment_count: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    offline_reason: str | None


class PartitionCounts(NamedTuple):
    """The number of all partitions, and of the partitions that take no appends."""

    all: int
    offline: int


class PartitionEpochs(NamedTuple):
    """The leader epochs of a partition, the oldest first. The last one ends at ``log_end_offset``.

    ``asked`` is the end of the epoch that the caller asked for: of the greatest epoch not above it that has records. It
    is ``None`` if the caller asked for no epoch, or if the epoch is unknown.
    """

    leader_epoch: LeaderEpoch
    entries: Sequence[EpochEntry]
    log_end_offset: Offset
    asked: EpochEndOffset | None


class Topics(Protocol):
    """The topics of an engine. Thread: the event loop.

    Calls with a name raise ``UnknownTopicOrPartitionError`` if there is no such topic. Calls with a partition that need
    more than the handle raise it if the partition's topic was deleted.
    """

    @property
    def on_deleted(self) -> list[Callable[[str], None]]:
        """Functions that the engine calls with the name of each deleted topic, before ``delete`` returns."""

    def count_partitions(self) -> PartitionCounts:
        """Return the numbers of partitions as the engine knows them now."""

    async def page(
        self, prefix: str, start_after: str, limit: int, is_visible: Callable[[str], bool]
    ) -> Sequence[Topic]:
        """Return the first ``limit`` topics, at least 1, sorted by name.

        Only topics count whose names begin with ``prefix``, sort after ``start_after`` and are visible.
        """

    async def ensure(self, name: str, partition_count: int, config: dict[str, object]) -> tuple[Topic, bool]:
        """Return the topic, which is created unless the same one exists; the second value says whether it was created.

        Raises:
            TopicExistsError, InvalidTopicError, InvalidConfigError, DiskFullError
            PolicyViolationError, TooManyOpenFilesError: there is no room for its partitions.
        """

    async def alter(self, name: str, *, config: dict[str, object | None], partition_count: int | None = None) -> Topic:
        """Change settings or add partitions; ``None`` resets a setting. On return every partition has the settings.

        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError, InvalidConfigError, DiskFullError
        """

    async def delete(self, name: str) -> None:
        """Delete a topic: waiting appends are refused, waiting fetches answer.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """

    async def describe(self, topics: Sequence[Topic]) -> Sequence[PartitionView]:
        """Return a view of each partition of each topic, in order. All values of one view are from one moment."""

    async def describe_partition(self, topic: str, number: int) -> PartitionView:
        """Return a view of one partition.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """

    async def segments(self, partition: Partition) -> Sequence[SegmentInfo]:
        """Return the segments of a partition, the oldest first. Needs the capability ``segments``.

        Raises:
            CorruptionError: stored bytes are damaged.
        """

    async def retention_plan(self, name: str) -> Sequence[tuple[int, Sequence[RetentionEntry]]]:
        """Return the decisions of retention about each partition of a topic, by its number; change nothing.

        Needs the capability ``retention_plan``.
        """

    async def run_retention(self, name: str) -> Sequence[tuple[int, DeletedSegment]]:
        """Apply retention to each partition of a topic; return the deleted segments with their partition's number.

        Needs the capability ``retention_run``.

        Raises:
            Problem: overloaded.
            StorageError: the first partition that fails; the partitions before it are done.
        """

    async def delete_records(self, partition: Partition, offset: int, *, dry_run: bool) -> Offset:
        """Raise the log start offset to ``offset``, or to the high watermark if it is -1; return the log start offset.

        An offset below the log start changes nothing. With ``dry_run`` nothing changes, and the result is the log start
        offset that would hold.

        Raises:
            Problem: overloaded.
            OffsetOutOfRangeError: the offset is above the high watermark.
            PolicyViolationError: the topic is only compacted.
            InvalidTopicError: the topic is internal.
        """

    async def delete_records_before(self, partition: Partition, timestamp: int, *, dry_run: bool) -> Offset:
        """Do as ``delete_records`` with the offset of the first record at or after ``timestamp``, in milliseconds.

        The offset is the high watermark if all records are older.
        """

    async def epochs(
        self, partition: Partition, asked: int | None = None, *, current_leader_epoch: int | None = None
    ) -> PartitionEpochs:
        """Return the leader epochs of a partition, with the end of the epoch ``asked``.

        Raises:
            FencedLeaderEpochError: ``current_leader_epoch`` is older than the partition's.
            UnknownLeaderEpochError: ``current_leader_epoch`` is newer than the partition's.
        """

    async def begin_epoch(self, partition: Partition) -> EpochEntry:
        """Begin a leader epoch at the log end. It is durable on return. Needs the capability ``begin_epoch``.

        Raises:
            Problem: overloaded.
            InvalidTopicError: the topic is internal.
            PartitionOfflineError, DiskFullError
        """
