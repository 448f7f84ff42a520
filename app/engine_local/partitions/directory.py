"""The partitions of one data directory by name, each with its writer.

Thread: the event loop. Calls that may touch the disk run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from app.engine.partitions import Partition
from app.engine_local.logs import log_behind
from app.engine_local.partitions.crowds import Crowds
from app.engine_local.partitions.fetch_waiters import FetchWaiters
from app.engine_local.partitions.flush_pace import FlushPace
from app.engine_local.partitions.log_start_moves import LogStartMoves
from app.engine_local.partitions.mailbox import Job, MailboxLimits
from app.engine_local.partitions.partition_writer import PartitionWriter
from app.engine_local.partitions.produce_waiters import ProduceWaiters
from app.engine_local.partitions.turn_flushes import TurnFlushes
from app.event_loop.piecewise import pieces
from app.event_loop.pools import Pools
from app.metrics.metrics import Metrics
from app.settings import Settings
from log_model.config import TopicConfig
from log_model.errors import StorageError, UnknownTopicOrPartitionError
from log_model.names import PartitionName
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from storage.manager.resting_states import RestingState
from storage.manager.topic_registry import Topic

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Partitions:
    """All partitions of one data directory: looked up, written through their writers, waited for.

    Observes the writers: it wakes requests that wait for a partition, and counts groups and fsyncs.
    """

    def __init__(self, manager: LogManager, settings: Settings, metrics: Metrics, pools: Pools) -> None:
        self._manager = manager
        self._metrics = metrics
        self._pools = pools
        self.waiters = FetchWaiters(count_max=settings.waiter_count_max)
        self.crowds = Crowds(self.waiters)
        self.produce_waiters = ProduceWaiters(count_max=settings.waiter_count_max, refusal=self._refusal_of)
        self.moves = LogStartMoves()
        self._limits = MailboxLimits.of(settings)
        self._flush_pace = FlushPace(settings.inline_append_bytes_max)
        self.turns = TurnFlushes(manager.journal, pools.flush, self._flush_pace, self.flushed)
        self._writers: dict[PartitionName, PartitionWriter] = {}
        self._openings: dict[tuple[str, int], asyncio.Future[PartitionLog]] = {}
        # The pauses of the writers of topics that are being deleted, by topic.
        self._pauses: dict[str, list[Job]] = {}

    # Names

    def topic(self, name: str) -> Topic:
        """Return the topic of this name.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        return self._manager.topic(name)

    def find_topic_id(self, name: str) -> str | None:
        """Return the id of the topic of this name, ``None`` if there is none. A topic made again has another id."""
        topic = self._manager.topics.get(name)
        return None if topic is None else topic.topic_id

    async def partition(self, topic: str, number: int) -> PartitionLog:
        """Return the partition of this name. A thread opens one that rests.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or no such partition of it.
            CorruptionError, UnavailableError: it rested, and cannot be opened.
        """
        log = self._manager.find_open(topic, number)
        while log is None:
            opening = self._openings.get((topic, number))
            if opening is None:
                return await self._open(topic, number)
            # One thread opens it for all requests that come meanwhile.
            await asyncio.wait([opening])
            log = self._manager.find_open(topic, number)
        return log

    async def _open(self, topic: str, number: int) -> PartitionLog:
        open_log = functools.partial(self._manager.partition, topic, number)
        opening = asyncio.get_running_loop().run_in_executor(self._pools.read, open_log)
        self._openings[topic, number] = opening
        # Before those that wait look again: if it failed, one of them tries.
        opening.add_done_callback(lambda _: self._openings.pop((topic, number)))
        return await opening

    async def with_producers(self, topic: str, number: int) -> PartitionLog | None:
        """Return the partition of this name, or ``None`` if it rests and knows no producer.

        Raises:
            The errors of ``partition``.
        """
        log = self._manager.find_open(topic, number)
        if log is None:
            seen = self._manager.topic(topic).partitions.seen(number)
            if isinstance(seen, RestingState) and not seen.producer_count:
                return None
        return log or await self.partition(topic, number)

    def is_there(self, log: PartitionLog) -> bool:
        """Return whether this log still serves its partition.

        The result is false once the log's topic was deleted, even if one of the same name exists again.
        """
        topic = self._manager.topics.get(log.name.topic)
        return topic is not None and topic.partitions.find(log.name.partition) is log

    def opened(self) -> Iterator[PartitionLog]:
        """Yield every log that is open, of all topics. The partitions that rest have no work to do."""
        for topic in tuple(self._manager.topics.values()):
            yield from topic.partitions.opened()

    def seen(self) -> Iterator[tuple[PartitionName, PartitionLog | RestingState]]:
        """Yield the name of every partition, with its log, or its state if it rests."""
        for topic in tuple(self._manager.topics.values()):
            for number in range(topic.partition_count):
                yield PartitionName(topic.name, number), topic.partitions.seen(number)

    # Numbers of the whole directory

    def offline_count(self) -> int:
        """Return the number of partitions that take no appends."""
        return self.count() - sum(len(topic.online_partitions()) for topic in tuple(self._manager.topics.values()))

    def count(self) -> int:
        """Return the number of all partitions."""
        return sum(topic.partition_count for topic in tuple(self._manager.topics.values()))

    def size_bytes(self) -> int:
        """Return the bytes of record batches in all logs."""
        return sum(topic.partitions.size_bytes() for topic in tuple(self._manager.topics.values()))

    def mailbox_count(self) -> int:
        """Return the number of requests that wait to be written."""
        return sum(len(writer.mailbox) for writer in self.writers())

    def mailbox_bytes(self) -> int:
        """Return the bytes that wait to be written."""
        return sum(writer.mailbox.size_bytes for writer in self.writers())

    # Writers

    def writer_of(self, partition: Partition) -> PartitionWriter:
        """Return the partition's writer, made when first needed.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
        """
        writer = self._writers.get(partition.name)
        if writer is None or writer.log is not partition:
            if self._manager.find_open(*partition.name) is not partition:
                # The request found the topic before it was deleted. The topic's successor has a writer of its own.
                raise UnknownTopicOrPartitionError(f"topic {partition.name.topic!r} was deleted")
            writer = PartitionWriter(
                log_behind(partition),
                write_pool=self._pools.write,
                flush_pool=self._pools.flush,
                observer=self,
                limits=self._limits,
                pace=self._flush_pace,
                turns=self.turns,
            )
            self._writers[partition.name] = writer
            if partition.name.topic in self._pauses:
                self._pauses[partition.name.topic].append(writer.put_job(None))
        return writer

    @contextlib.asynccontextmanager
    async def held(self, topic: str, logs: Sequence[PartitionLog]) -> AsyncIterator[None]:
        """Pause the writers of a topic's ``logs``, also those that are made meanwhile. Later requests wait.

        Raises:
            Problem: overloaded.
        """
        pauses = self._pauses[topic] = []
        try:
            async for some in pieces(logs):
                begun = [writer.put_job(None) for log in some if (writer := self._writers.get(log.name)) is not None]
                pauses += begun
                for pause in begun:
                    await asyncio.shield(pause.done)
            yield
        finally:
            del self._pauses[topic]
            for pause in pauses:
                pause.release()

    async def update_config(self, logs: Iterable[PartitionLog], config: TopicConfig) -> None:
        """Let ``logs`` apply other settings, each between two groups of its writer."""
        jobs = []
        for log in logs:
            writer = self._writers.get(log.name)
            if writer is None or writer.is_idle:
                log.update_config(config)
            else:
                call = functools.partial(log.update_config, config)
                jobs.append(writer.put_job(call, even_if_full=True).done)
        if jobs:
            await asyncio.wait(jobs)

    def writers(self) -> list[PartitionWriter]:
        """Return the existing writers: of partitions that had an append or a job since the start."""
        return list(self._writers.values())

    def retire(self, logs: Iterable[PartitionLog], refusal: Callable[[], StorageError]) -> None:
        """Refuse the appends to deleted ``logs``, and answer the requests that wait for them."""
        for log in logs:
            self.moves.forget(log.name)
            writer = self._writers.pop(log.name, None)
            if writer is not None:
                writer.retire(refusal)
        self.waiters.wake_gone([log.name for log in logs])
        for log in logs:
            self.produce_waiters.look(log.name)

    async def run_in_log(self, log: PartitionLog, call: Callable[[], Result], *, moved_by: str | None = None) -> Result:
        """Run one of the log's writing methods as a job of its writer, and record a move of the log start by it.

        Raises:
            Problem: overloaded.
            StorageError: the errors of ``call``.
        """
        before = log.snapshot.log_start_offset
        result = await self.writer_of(log).run(call)
        if moved_by is not None and log.snapshot.log_start_offset > before:
            self.moves.note(log.name, self._manager.clock.now_ms(), moved_by)
        return result

    def _refusal_of(self, log: PartitionLog) -> StorageError | None:
        """Return the error for every append to ``log`` if it was deleted, else ``None``."""
        if not self.is_there(log):
            return UnknownTopicOrPartitionError(f"topic {log.name.topic!r} was deleted")
        return None

    # Observing writers

    def published(self, log: PartitionLog) -> None:
        """Wake the requests that the new snapshot serves, once the writer has completed its own appends."""
        name = log.name
        if name in self.waiters.watched:
            self.waiters.wake(name)
        if name in self.produce_waiters.watched:
            self.produce_waiters.look(name)

    def group_appended(self, request_count: int, seconds: float) -> None:
        """Count a written group."""
        self._metrics.group_requests.observe(request_count)
        self._metrics.append_seconds.observe(seconds)

    def flushed(self, seconds: float) -> None:
        """Count an fsync."""
        self._metrics.flush_seconds.observe(seconds)

    def partition_failed(self, log: PartitionLog, error: BaseException) -> None:
        """Log that a disk failed, and end the waits for its partition with the available records (spec D6 c)."""
        self._metrics.partition_failures.inc()
        logger.error("partition %s is offline: %s", log.name, error)
        self.waiters.wake_failed(log.name)
        self.produce_waiters.look(log.name)
