"""Topics: made, altered and deleted, one change at a time; and what retention and deletion do to their records.

Thread: the event loop. Calls that may touch the disk run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from app.engine_local.partitions.directory import Partitions
from app.engine_local.partitions.partition_room import PartitionRoom
from app.event_loop.piecewise import PIECE_COUNT, all_in_turns, pieces
from app.event_loop.pools import Pools, call_in
from app.metrics.metrics import Metrics
from app.settings import Settings
from log_model.errors import PolicyViolationError, StorageError, UnknownTopicOrPartitionError
from log_model.names import refuse_internal
from log_model.offsets import Offset
from log_model.retention import DeletedSegment, RetentionEntry
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from storage.manager.topic_registry import Topic


class Topics:
    """The topics of one data directory.

    ``on_deleted`` are called with the name of each topic that was deleted, before ``delete`` returns.
    """

    def __init__(
        self, manager: LogManager, partitions: Partitions, settings: Settings, metrics: Metrics, pools: Pools
    ) -> None:
        self._manager = manager
        self._partitions = partitions
        self._metrics = metrics
        self._pools = pools
        self._room = PartitionRoom(manager, settings)
        self._control = asyncio.Lock()
        self.on_deleted: list[Callable[[str], None]] = []

    async def ensure(self, name: str, partition_count: int, config: dict[str, object]) -> tuple[Topic, bool]:
        """Make a topic, unless the same one exists; the second value says whether it was made.

        Raises:
            TopicExistsError, InvalidTopicError, InvalidConfigError, DiskFullError
            PolicyViolationError, TooManyOpenFilesError: there is no room for its partitions.
        """
        async with self._control:
            return await call_in(
                self._pools.control, functools.partial(self._room.create_topic, name, partition_count, config)
            )

    async def ensure_internal(
        self, name: str, partition_count: int, config: Mapping[str, object]
    ) -> tuple[PartitionLog, ...]:
        """The partitions of an internal topic, made when there is none.

        Raises:
            TopicExistsError, DiskFullError
        """
        async with self._control:
            ensure = functools.partial(self._manager.ensure_internal_topic, name, partition_count, config)
            return (await call_in(self._pools.control, ensure)).partitions

    async def alter(self, name: str, *, config: dict[str, object | None], partition_count: int | None = None) -> Topic:
        """Change settings or add partitions; every partition has the settings when this returns.

        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError, InvalidConfigError, DiskFullError
        """
        async with self._control, self._held(self._partitions.topic(name)):
            alter = functools.partial(self._room.alter_topic, name, config=config, partition_count=partition_count)
            altered = await call_in(self._pools.control, alter)
            async for logs in pieces(altered.partitions):
                for log in logs:
                    log.update_config(altered.config)
            return altered

    async def delete(self, name: str) -> None:
        """Delete a topic: appends that wait are refused, fetches that wait answer.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        async with self._control:
            topic = self._partitions.topic(name)
            async with self._held(topic):
                await call_in(self._pools.control, functools.partial(self._manager.delete_topic, name))
                async for logs in pieces(topic.partitions):
                    self._partitions.retire(logs, lambda: UnknownTopicOrPartitionError(f"topic {name} was deleted"))
                for tell in self.on_deleted:
                    tell(name)

    @contextlib.asynccontextmanager
    async def _held(self, topic: Topic) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for place, log in enumerate(topic.partitions):
                if place % PIECE_COUNT == PIECE_COUNT - 1:
                    stack.push_async_callback(asyncio.sleep, 0)
                await stack.enter_async_context(self._partitions.writer_of(log).held())
            yield

    async def retention_plan(self, name: str) -> list[tuple[PartitionLog, list[RetentionEntry]]]:
        """What retention would do with each partition of a topic now."""
        now_ms = self._manager.protected_clock.now_ms()
        logs = self._partitions.topic(name).partitions
        return await call_in(self._pools.read, lambda: [(log, log.retention_plan(now_ms)) for log in logs])

    def find_old(self, logs: Iterable[PartitionLog]) -> list[PartitionLog]:
        """Those that retention may have something to delete from; one that cannot tell is asked again in its turn.

        Thread: any but the loop's.
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

    async def run_retention(self, logs: Iterable[PartitionLog]) -> list[tuple[PartitionLog, DeletedSegment]]:
        """Apply retention to these partitions, one after the other; what was deleted.

        Raises:
            Problem: overloaded.
            StorageError: the first partition that cannot; those before it are done.
        """
        deleted = []
        for log in logs:
            call = functools.partial(log.delete_old_segments, self._manager.protected_clock.now_ms())
            for segment in await self._partitions.run_in_log(log, call, moved_by="retention"):
                self._metrics.deleted_segments.labels(segment.reason).inc()
                deleted.append((log, segment))
        return deleted

    async def delete_records(self, log: PartitionLog, offset: int, *, dry_run: bool) -> Offset:
        """Raise the log start to ``offset``, which is not above the high watermark, or is -1 for it.

        Returns the log start offset that holds then; with ``dry_run`` the one that would, and changes nothing.

        Raises:
            Problem: overloaded.
            PolicyViolationError: the topic is only compacted.
            InvalidTopicError: the topic is internal.
        """
        refuse_internal(log.name.topic)
        if not dry_run:
            call = functools.partial(log.delete_records, offset)
            return await self._partitions.run_in_log(log, call, moved_by="delete-records")
        if not log.config.deletes:
            raise PolicyViolationError(f"cleanup.policy of {log.name.topic} is {log.config.cleanup_policy}")
        high_watermark = log.snapshot.high_watermark
        return max(log.snapshot.log_start_offset, high_watermark if offset == -1 else Offset(offset))

    async def close(self) -> None:
        """Wait for the change that runs, finish the writers, and close the logs cleanly."""
        async with self._control:
            await all_in_turns(writer.close() for writer in self._partitions.writers())
            await call_in(self._pools.control, self._manager.close)
