"""What brokers would keep: it outlives the engine, as a cluster outlives the services before it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.engine.transactions import Transaction
from log_model.config import TopicConfig
from log_model.names import INTERNAL_TOPICS
from tests.memory_engine.log import MemoryLog

_KEPT_COUNT = 8


@dataclass(frozen=True)
class MemoryTopic:
    """A topic with its partitions. ``overrides`` are its own settings, in Kafka's names."""

    name: str
    topic_id: str
    partitions: tuple[MemoryLog, ...]
    config: TopicConfig
    overrides: Mapping[str, object]
    service_defaults: Mapping[str, object]

    @property
    def is_internal(self) -> bool:
        """Whether the topic belongs to the service itself."""
        return self.name in INTERNAL_TOPICS

    @property
    def partition_count(self) -> int:
        """Number of partitions."""
        return len(self.partitions)

    def online_partitions(self) -> list[int]:
        """Return the numbers of the partitions that take appends, in order."""
        return [log.name.partition for log in self.partitions if log.offline_reason is None]

    def config_source(self, name: str) -> str:
        """Return the source of the setting's value: ``topic``, ``service`` or ``default``."""
        if name in self.overrides:
            return "topic"
        return "service" if name in self.service_defaults else "default"


@dataclass
class Cluster:
    """Topics, transactional ids, and the producer ids that were given."""

    topics: dict[str, MemoryTopic] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    next_producer_id: int = 0

    def allocate_producer_id(self) -> int:
        """Return an id that no producer had before."""
        given = self.next_producer_id
        self.next_producer_id += 1
        return given

    def logs(self) -> Iterator[MemoryLog]:
        """Yield the partitions of all topics."""
        for topic in tuple(self.topics.values()):
            yield from topic.partitions


_clusters: OrderedDict[Path, Cluster] = OrderedDict()


def cluster_of(data_directory: Path) -> Cluster:
    """Return the cluster behind the service of a data directory. Of the clusters of a process the last few are kept."""
    cluster = _clusters.setdefault(data_directory.resolve(), Cluster())
    _clusters.move_to_end(data_directory.resolve())
    while len(_clusters) > _KEPT_COUNT:
        _clusters.popitem(last=False)
    return cluster
