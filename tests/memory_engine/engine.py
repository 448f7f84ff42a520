"""The engine itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from app.engine.capabilities import Capabilities
from app.engine.engine import Engine, Job
from app.event_loop.pools import Pools
from app.metrics.metrics import Metrics
from app.settings import Settings
from log_model.clock import Clock, ProtectedClock
from tests.memory_engine.appends import MemoryAppends
from tests.memory_engine.cluster import MemoryTopic, cluster_of
from tests.memory_engine.log import MemoryLog
from tests.memory_engine.reads import MemoryReads
from tests.memory_engine.state_logs import MemoryStateLog
from tests.memory_engine.topics import MemoryTopicIds, MemoryTopics
from tests.memory_engine.transactions import MemoryTransactions
from tests.memory_engine.waits import Waits

CAPABILITIES = Capabilities(
    engine="memory",
    segments=False,
    retention_plan=False,
    retention_run=False,
    begin_epoch=True,
    log_start_reason=True,
    exact_split_sizes=True,
    fsync_durability=True,
    expected_offset=True,
    atomic_batches=True,
    fetch_sessions=True,
)


class _Owners:
    """The principals of producer ids."""

    def __init__(self, owners: Mapping[int, str]) -> None:
        self._owners = owners

    def principal_of(self, producer_id: int) -> str | None:
        """Return the principal that the id was given to."""
        return self._owners.get(producer_id)


class MemoryEngine:
    """An engine over one ``Cluster``. Thread: the event loop."""

    capabilities = CAPABILITIES

    def __init__(self, data_directory: Path, settings: Settings, clock: Clock, metrics: Metrics, pools: Pools) -> None:
        self.clock = clock
        self.protected_clock = ProtectedClock(clock)
        self._cluster = cluster_of(data_directory)
        self._waits = Waits(settings.waiter_count_max)
        self.topics = MemoryTopics(self._cluster, settings, clock, self._waits)
        self.topic_ids = MemoryTopicIds(self._cluster)
        self.appends = MemoryAppends(self.topics, self._waits, metrics)
        self.reads = MemoryReads(self._waits, pools)
        self.producer_owners = _Owners(self._cluster.owners)
        self.transactions = MemoryTransactions(
            self._cluster, self.topics, settings, clock, self.protected_clock, self._waits
        )
        self._settings = settings
        self._watch(metrics)

    def _watch(self, metrics: Metrics) -> None:
        watch, cluster = metrics.watch, self._cluster
        watch("rollway_waiting_fetches", "Fetches that wait for records.", lambda: len(self._waits))
        watch("rollway_topics", "Topics.", lambda: len(cluster.topics))
        watch("rollway_partitions", "Partitions.", lambda: self.topics.count_partitions().all)
        watch(
            "rollway_offline_partitions",
            "Partitions that take no appends.",
            lambda: self.topics.count_partitions().offline,
        )
        watch("rollway_log_bytes", "Bytes of record batches.", lambda: sum(log.size_bytes for log in cluster.logs()))
        table = self.transactions.table
        watch("rollway_transactional_ids", "Transactional ids that are known.", lambda: len(table))
        watch("rollway_open_transactions", "Transactions without an end.", lambda: table.open_count)

    async def start(self) -> None:
        """Take up what the cluster has."""
        await self.transactions.start()

    @property
    def background_jobs(self) -> Mapping[str, Job]:
        """Timeouts of transactions, and producers that are idle."""
        return {
            "transactions": Job(self.transactions.run_jobs, self._settings.transaction_check_interval_ms),
            "expire_producers": Job(self._expire_producers, self._settings.producer_id_expiration_check_interval_ms),
        }

    async def _expire_producers(self) -> None:
        for log in self._cluster.logs():
            log.expire_producers()

    def leave_out_producer_ids(self, largest: int) -> None:
        """Give no producer id up to ``largest``."""
        self._cluster.next_producer_id = max(self._cluster.next_producer_id, largest + 1)

    def now_ms(self) -> int:
        """Return the wall time."""
        return self.clock.now_ms()

    def topic(self, name: str) -> MemoryTopic:
        """Return the topic of this name; see ``Engine.topic``."""
        return self.topics.get(name)

    async def partition(self, topic: str, number: int) -> MemoryLog:
        """Return the partition of this name; see ``Engine.partition``."""
        return self.topics.partition(topic, number)

    def check_partition(self, topic: str, number: int) -> None:
        """Return if there is this partition; see ``Engine.check_partition``."""
        self.topics.partition(topic, number)

    def find_topic_id(self, name: str) -> str | None:
        """Return the id of the topic of this name."""
        topic = self._cluster.topics.get(name)
        return None if topic is None else topic.topic_id

    def state(self, topic: str) -> MemoryStateLog:
        """Return the state in the internal topic of this name."""
        return MemoryStateLog(self.topics, topic, self.now_ms)

    def release(self) -> None:
        """Answer every request that waits; from now on none waits."""
        self._waits.close()

    async def close(self) -> None:
        """Refuse appends from now on."""
        self.appends.is_closed = True


_: type[Engine] = MemoryEngine
"""Held by the type checker: this is an engine."""
