"""The engine over ``storage``: one data directory of this machine.

Thread: the event loop. Calls that may touch the disk run in one of four pools, so that a slow fsync holds up
neither reads nor other partitions' writes, and nothing holds up the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from app.engine.capabilities import Capabilities
from app.engine.engine import Engine, Job
from app.engine.partitions import Partition
from app.engine_local.background import BackgroundWork
from app.engine_local.idle_partitions import IdlePartitions
from app.engine_local.keyed_log import KeyedLog
from app.engine_local.partitions.appends import LocalAppends
from app.engine_local.partitions.directory import Partitions
from app.engine_local.partitions.partition_room import FileRoom
from app.engine_local.partitions.partition_writer import PartitionWriter
from app.engine_local.reading.reads import LocalReads
from app.engine_local.topic_ids import TopicIds
from app.engine_local.topics import LocalTopics
from app.engine_local.transactions.coordinator import TransactionCoordinator
from app.engine_local.transactions.limits import TransactionLimits
from app.engine_local.transactions.producer_owners import ProducerOwners
from app.event_loop.pools import Pools, call_in
from app.metrics.metrics import Metrics
from app.settings import Settings
from log_model.clock import Clock, ProtectedClock
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from storage.manager.topic_registry import Topic

Result = TypeVar("Result")

NODE_ID = 1
CAPABILITIES = Capabilities(
    engine="local",
    segments=True,
    retention_plan=True,
    retention_run=True,
    begin_epoch=True,
    log_start_reason=True,
    exact_split_sizes=True,
    fsync_durability=True,
    expected_offset=True,
    atomic_batches=True,
    fetch_sessions=True,
)
FILE_CHECK_INTERVAL_MS = 1_000


class LocalEngine:
    """The partitions, topics, producers and transactions of one data directory.

    Attributes:
        capabilities: the capability table; the local engine has all of them.
        partitions: partitions by name, with their writers and the requests that wait for them.
        appends: the only entry to the logs.
        reads: all reads of the logs.
        topics: topics, described and changed; retention, deletion of records, leader epochs.
        transactions: the coordinator of producers and transactions.
        producer_owners: which principal each producer id was given to.
        topic_ids: topics by their ids.
    """

    def __init__(self, manager: LogManager, settings: Settings, metrics: Metrics, pools: Pools) -> None:
        self.manager = manager
        self.capabilities = CAPABILITIES
        self._pools = pools
        self.partitions = Partitions(manager, settings, metrics, pools)
        self.appends = LocalAppends(self.partitions, metrics)
        self.reads = LocalReads(self.partitions, pools)
        self.topics = LocalTopics(manager, self.partitions, settings, metrics, pools)
        self.topic_ids = TopicIds(manager.topics)
        self.producer_owners = ProducerOwners(manager.file_system, manager.own_directory, manager.producer_ids)
        self.transactions = TransactionCoordinator(
            self,
            TransactionLimits(
                timeout_ms_max=settings.transaction_max_timeout_ms,
                expiration_ms=settings.transactional_id_expiration_ms,
                id_count_max=settings.transactional_id_count_max,
                partition_count_max=settings.transaction_partition_count_max,
            ),
        )
        self.topics.on_deleted.append(lambda _: self.transactions.hurry())
        self.file_room = FileRoom(settings, manager.clock)
        manager.factory.take_files = self.file_room.take
        self.background = BackgroundWork(manager, self.partitions, self.topics, pools, self.transactions.hurry)
        self.idle_partitions = IdlePartitions(
            self.partitions, self.file_room, manager.clock, settings.partition_idle_ms
        )
        self._settings = settings

    async def start(self) -> None:
        """Read which principals own the producer ids.

        Raises:
            CorruptionError, OSError: the owners cannot be read.
        """
        await call_in(self._pools.control, self.producer_owners.load)

    @property
    def background_jobs(self) -> Mapping[str, Job]:
        """The work on the logs, and on transactions that time out."""
        work, settings = self.background, self._settings
        return {
            "flush": Job(work.flush, settings.flush_check_interval_ms),
            "check_files": Job(work.check_files, FILE_CHECK_INTERVAL_MS),
            "roll": Job(work.roll, settings.roll_check_interval_ms),
            "retention": Job(work.retention, settings.retention_check_interval_ms),
            "checkpoint": Job(work.checkpoint, settings.checkpoint_interval_ms),
            "checkpoint_high_watermarks": Job(
                work.checkpoint_high_watermarks, settings.high_watermark_checkpoint_interval_ms
            ),
            "expire_producers": Job(work.expire_producers, settings.producer_id_expiration_check_interval_ms),
            "idle_partitions": Job(self.idle_partitions.close_files, settings.partition_idle_check_interval_ms),
            "delete_files": Job(work.delete_files, settings.file_delete_check_interval_ms),
            "transactions": Job(self.transactions.run_jobs, settings.transaction_check_interval_ms),
        }

    def leave_out_producer_ids(self, largest: int) -> None:
        """Give no producer id up to ``largest``, nor one that a principal or a transactional id has."""
        known = (self.producer_owners.largest_id, self.transactions.largest_producer_id, largest)
        self.manager.producer_ids.leave_out(max(known))

    @property
    def clock(self) -> Clock:
        """The clock of wall time and of elapsed time."""
        return self.manager.clock

    @property
    def protected_clock(self) -> ProtectedClock:
        """The clock by which records and transactions expire. A jump forward of wall time alone lets none expire."""
        return self.manager.protected_clock

    def now_ms(self) -> int:
        """Return the wall time that records get, in milliseconds."""
        return self.manager.clock.now_ms()

    def topic(self, name: str) -> Topic:
        """Return the topic of this name.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        return self.partitions.topic(name)

    async def partition(self, topic: str, number: int) -> PartitionLog:
        """Return the partition of this name. A thread opens one that rests.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or no such partition of it.
            CorruptionError, UnavailableError: it rested, and cannot be opened.
        """
        return await self.partitions.partition(topic, number)

    async def with_producers(self, topic: str, number: int) -> PartitionLog | None:
        """Return the partition of this name, or ``None`` if it rests and knows no producer.

        Raises:
            The errors of ``partition``.
        """
        return await self.partitions.with_producers(topic, number)

    def check_partition(self, topic: str, number: int) -> None:
        """Return if there is this partition.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or no such partition of it.
        """
        self.manager.find_open(topic, number)

    def find_topic_id(self, name: str) -> str | None:
        """Return the id of the topic of this name, ``None`` if there is none. A topic made again has another id."""
        return self.partitions.find_topic_id(name)

    def writer_of(self, partition: Partition) -> PartitionWriter:
        """Return the partition's writer; see ``Partitions.writer_of``."""
        return self.partitions.writer_of(partition)

    async def read(self, call: Callable[[], Result]) -> Result:
        """Run a reading ``call`` in a thread."""
        return await call_in(self._pools.read, call)

    async def ensure_internal_topic(
        self, name: str, partition_count: int, config: Mapping[str, object]
    ) -> tuple[PartitionLog, ...]:
        """Return the partitions of an internal topic, which is created if it does not exist.

        Raises:
            TopicExistsError, DiskFullError
        """
        topic = await self.topics.ensure_internal(name, partition_count, config)
        return tuple([await self.partition(name, number) for number in range(topic.partition_count)])

    async def allocate_producer_id(self, principal: str | None = None) -> int:
        """Return a producer id that no producer had before, of ``principal`` if given. Durable: it is given once.

        Raises:
            CorruptionError, DiskFullError
        """
        return await call_in(self._pools.control, lambda: self.producer_owners.allocate(principal))

    def state(self, topic: str) -> KeyedLog:
        """Return the log of state in the internal topic of this name. The first write creates the topic."""
        return KeyedLog(self, topic)

    def release(self) -> None:
        """Answer every request that waits; from now on none waits."""
        self.partitions.waiters.close()
        self.partitions.crowds.close()
        self.partitions.produce_waiters.close()

    async def close(self) -> None:
        """Wait for the change that runs, finish the writers, and close the logs cleanly. Transactions end first."""
        await self.topics.close()


_: type[Engine] = LocalEngine
"""Held by the type checker: this is an engine."""
