"""Topics: created, altered and deleted, one change of each at a time; and retention and deletion of their records.

Thread: the event loop. Calls that may touch the disk run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from weakref import WeakValueDictionary

from app.engine.partitions import Partition
from app.engine.partitions import Topic as HandledTopic
from app.engine.topics import PartitionCounts, PartitionEpochs, PartitionView
from app.engine_local.logs import log_behind, topic_behind
from app.engine_local.partitions.directory import Partitions
from app.engine_local.partitions.partition_room import PartitionRoom
from app.engine_local.reading.limit_checks import LimitChecks
from app.event_loop.piecewise import PIECE_COUNT, all_in_turns, pieces, smallest
from app.event_loop.pools import Pools, call_in
from app.metrics.metrics import Metrics
from app.settings import Settings
from log_model.epochs import EpochEntry
from log_model.errors import PolicyViolationError, ShuttingDownError, StorageError, UnknownTopicOrPartitionError
from log_model.names import refuse_internal
from log_model.offsets import LeaderEpoch, Offset
from log_model.reads import SegmentInfo
from log_model.retention import DeletedSegment, RetentionEntry
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from storage.manager.resting_states import RestingState
from storage.manager.topic_registry import Topic

logger = logging.getLogger(__name__)


class LocalTopics:
    """The topics of one data directory: ``Topics`` of the port.

    Attributes:
        on_deleted: functions that are called with the name of each deleted topic, before ``delete`` returns.
    """

    def __init__(
        self, manager: LogManager, partitions: Partitions, settings: Settings, metrics: Metrics, pools: Pools
    ) -> None:
        self._manager = manager
        self._partitions = partitions
        self._metrics = metrics
        self._pools = pools
        self._checks = LimitChecks(partitions.moves)
        self._room = PartitionRoom(manager, settings)
        # Changes of one topic take turns. Those of other topics go on.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._is_closing = False
        self.on_deleted: list[Callable[[str], None]] = []

    async def ensure(self, name: str, partition_count: int, config: dict[str, object]) -> tuple[Topic, bool]:
        """Return the topic, which is created unless the same one exists; the second value says whether it was created.

        Raises:
            TopicExistsError, InvalidTopicError, InvalidConfigError, DiskFullError
            PolicyViolationError, TooManyOpenFilesError: there is no room for its partitions.
        """
        async with self._turn(name):
            return await call_in(
                self._pools.control, functools.partial(self._room.create_topic, name, partition_count, config)
            )

    async def ensure_internal(self, name: str, partition_count: int, config: Mapping[str, object]) -> Topic:
        """Return an internal topic, which is created if it does not exist.

        Raises:
            TopicExistsError, DiskFullError
        """
        async with self._turn(name):
            ensure = functools.partial(self._manager.ensure_internal_topic, name, partition_count, config)
            return await call_in(self._pools.control, ensure)

    async def alter(self, name: str, *, config: dict[str, object | None], partition_count: int | None = None) -> Topic:
        """Change settings or add partitions. On return every partition has the settings.

        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError, InvalidConfigError, DiskFullError
        """
        async with self._turn(name):
            alter = functools.partial(self._room.alter_topic, name, config=config, partition_count=partition_count)
            altered = await call_in(self._pools.control, alter)
            async for logs in pieces(altered.partitions.opened()):
                await self._partitions.update_config(logs, altered.config)
            return altered

    async def delete(self, name: str) -> None:
        """Delete a topic. Waiting appends are refused, and waiting fetches end.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        async with self._turn(name):
            partitions = self._partitions.topic(name).partitions
            async with self._partitions.held(name, partitions.opened()):
                await call_in(self._pools.control, functools.partial(self._manager.delete_topic, name))
                # Some may have been opened meanwhile.
                logs = partitions.opened()
                async for some in pieces(logs):
                    self._partitions.retire(some, lambda: UnknownTopicOrPartitionError(f"topic {name} was deleted"))
                for tell in self.on_deleted:
                    tell(name)
            # To free them all at once would take a tenth of a second.
            while logs:
                del logs[-PIECE_COUNT:]
                await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        async with self._turns.setdefault(name, asyncio.Lock()):
            if self._is_closing:
                raise ShuttingDownError("the service is stopping")
            yield

    # Descriptions

    def count_partitions(self) -> PartitionCounts:
        """Return the number of all partitions, and of the offline partitions."""
        return PartitionCounts(self._partitions.count(), self._partitions.offline_count())

    async def page(self, prefix: str, start_after: str, limit: int, is_visible: Callable[[str], bool]) -> list[Topic]:
        """Return the first visible topics whose names begin with ``prefix`` and sort after ``start_after``, by name."""

        def is_wanted(topic: Topic) -> bool:
            return topic.name.startswith(prefix) and topic.name > start_after and is_visible(topic.name)

        return await smallest(tuple(self._manager.topics.values()), limit, lambda topic: topic.name, is_wanted)

    async def describe(self, topics: Sequence[HandledTopic]) -> list[PartitionView]:
        """Return a view of each partition, in order. The offsets of one view come from one snapshot."""
        wanted = ((topic_behind(topic), number) for topic in topics for number in range(topic.partition_count))
        return [_view_of(*each) async for piece in pieces(wanted) for each in piece]

    async def describe_partition(self, topic: str, number: int) -> PartitionView:
        """Return a view of one partition; see ``Topics.describe_partition``."""
        self._manager.find_open(topic, number)
        return _view_of(self._manager.topic(topic), number)

    async def segments(self, partition: Partition) -> list[SegmentInfo]:
        """Return the segments of a partition, the oldest first.

        Raises:
            CorruptionError: stored bytes are damaged.
        """
        return await call_in(self._pools.read, log_behind(partition).snapshot.segment_infos)

    # Retention and deletion of records

    async def retention_plan(self, name: str) -> list[tuple[int, list[RetentionEntry]]]:
        """Return the decisions of retention about each partition of a topic, by its number; change nothing."""
        now_ms = self._manager.protected_clock.now_ms()
        numbers = range(self._partitions.topic(name).partition_count)
        return await call_in(
            self._pools.read,
            lambda: [(number, self._manager.partition(name, number).retention_plan(now_ms)) for number in numbers],
        )

    def find_old(self, logs: Iterable[PartitionLog]) -> list[PartitionLog]:
        """Return the logs from which retention may delete segments, and the logs of which that is unknown.

        Thread: any thread but the loop's.
        """
        now_ms = self._manager.protected_clock.now_ms()
        found = []
        for log in logs:
            try:
                if log.has_old_segments(now_ms):
                    found.append(log)
            except (OSError, StorageError):
                found.append(log)
        return found

    def wake_old(self) -> None:
        """Open the partitions that rest and have segments which retention may delete by now.

        Thread: any thread but the loop's.
        """
        now_ms = self._manager.protected_clock.now_ms()
        for topic in tuple(self._manager.topics.values()):
            for number in topic.partitions.resting_with_old_segments(now_ms):
                try:
                    self._manager.partition(topic.name, number)
                except StorageError as error:
                    logger.warning("retention of %s-%d: %s", topic.name, number, error)

    async def run_retention(self, name: str) -> list[tuple[int, DeletedSegment]]:
        """Apply retention to each partition of a topic; return the deleted segments with their partition's number.

        Raises:
            Problem: overloaded.
            StorageError: the first partition that fails; the partitions before it are done.
        """
        deleted = []
        for number in range(self._partitions.topic(name).partition_count):
            log = await self._partitions.partition(name, number)
            deleted += [(number, segment) for segment in await self.delete_old_segments(log)]
        return deleted

    async def delete_old_segments(self, log: PartitionLog) -> list[DeletedSegment]:
        """Apply retention to one partition, and return the deleted segments.

        Raises:
            Problem: overloaded.
            StorageError: the partition is offline, or its disk fails.
        """
        call = functools.partial(log.delete_old_segments, self._manager.protected_clock.now_ms())
        deleted = await self._partitions.run_in_log(log, call, moved_by="retention")
        for segment in deleted:
            self._metrics.deleted_segments.labels(segment.reason).inc()
        return deleted

    async def delete_records(self, partition: Partition, offset: int, *, dry_run: bool) -> Offset:
        """Raise the log start offset; see ``app.engine.topics.Topics.delete_records``."""
        log = log_behind(partition)
        return await self._delete_records(log, log.snapshot, offset, dry_run=dry_run)

    async def delete_records_before(self, partition: Partition, timestamp: int, *, dry_run: bool) -> Offset:
        """Raise the log start offset to the first record at or after a time, in milliseconds."""
        log = log_behind(partition)
        snapshot = log.snapshot
        found = await call_in(self._pools.read, functools.partial(snapshot.offset_for_timestamp, timestamp))
        offset = snapshot.high_watermark if found is None else found.offset
        return await self._delete_records(log, snapshot, offset, dry_run=dry_run)

    async def _delete_records(self, log: PartitionLog, snapshot: LogSnapshot, offset: int, *, dry_run: bool) -> Offset:
        if offset > snapshot.high_watermark:
            self._checks.check_offset(log, snapshot, offset, snapshot.high_watermark)
        refuse_internal(log.name.topic)
        if not dry_run:
            call = functools.partial(log.delete_records, offset)
            return await self._partitions.run_in_log(log, call, moved_by="delete-records")
        if not log.config.deletes:
            raise PolicyViolationError(f"cleanup.policy of {log.name.topic} is {log.config.cleanup_policy}")
        high_watermark = log.snapshot.high_watermark
        return max(log.snapshot.log_start_offset, high_watermark if offset == -1 else Offset(offset))

    # Leader epochs

    async def epochs(
        self, partition: Partition, asked: int | None = None, *, current_leader_epoch: int | None = None
    ) -> PartitionEpochs:
        """Return the leader epochs of a partition, with the end of the epoch ``asked``.

        Raises:
            FencedLeaderEpochError, UnknownLeaderEpochError: ``current_leader_epoch`` is not the partition's.
        """
        log = log_behind(partition)
        epochs, log_end = log.epochs, log.snapshot.log_end_offset
        epochs.check_current(current_leader_epoch)
        found = None if asked is None else epochs.end_offset_for(LeaderEpoch(asked), log_end)
        return PartitionEpochs(log.leader_epoch, epochs.entries, log_end, found)

    async def begin_epoch(self, partition: Partition) -> EpochEntry:
        """Begin a leader epoch at the log end. It is durable on return.

        Raises:
            Problem: overloaded.
            InvalidTopicError: the topic is internal.
            PartitionOfflineError, DiskFullError
        """
        log = log_behind(partition)
        refuse_internal(log.name.topic)
        return await self._partitions.run_in_log(log, log.promote)

    async def close(self) -> None:
        """Wait for the changes that run, finish the writers, and close the logs cleanly."""
        self._is_closing = True
        for turn in tuple(self._turns.values()):
            async with turn:
                pass
        await all_in_turns(writer.close() for writer in self._partitions.writers())
        await self._partitions.turns.close()
        await call_in(self._pools.control, self._manager.close)


def _view_of(topic: Topic, number: int) -> PartitionView:
    log = topic.partitions.seen(number)
    if isinstance(log, RestingState):
        return PartitionView(
            partition=number,
            limits=log,
            leader_epoch=log.leader_epoch,
            recovery_point=log.log_end_offset,
            size_bytes=log.size_bytes,
            segment_count=log.segment_count,
            replicas=log.replicas,
            in_sync=log.replicas,
            offline_reason=topic.partitions.offline_reason,
        )
    snapshot = log.snapshot
    return PartitionView(
        partition=log.name.partition,
        limits=snapshot,
        leader_epoch=log.leader_epoch,
        recovery_point=log.recovery_point,
        size_bytes=snapshot.size_bytes,
        segment_count=len(snapshot.segments),
        replicas=log.replicas.replicas,
        in_sync=log.replicas.in_sync,
        offline_reason=log.offline_reason,
    )
