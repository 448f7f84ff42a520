"""The topics of the engine."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from app.engine.partitions import Partition, Topic
from app.engine.topics import PartitionCounts, PartitionEpochs, PartitionView
from app.settings import Settings
from log_model.clock import Clock
from log_model.config import ProducerLimits, TopicConfig
from log_model.epochs import EpochEntry
from log_model.errors import (
    InvalidConfigError,
    InvalidTopicError,
    PolicyViolationError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from log_model.names import PartitionName, refuse_internal, topic_name_problem
from log_model.offsets import Offset
from log_model.reads import Isolation, SegmentInfo
from log_model.retention import DeletedSegment, RetentionEntry
from schemas.topics import PARTITION_COUNT_MAX
from tests.memory_engine.checks import check_offset, log_of, refuse_deleted
from tests.memory_engine.cluster import Cluster, MemoryTopic
from tests.memory_engine.epochs import check_current, end_of
from tests.memory_engine.log import MemoryLog
from tests.memory_engine.waits import Waits

_NODE = 1


class MemoryTopics:
    """Makes, alters, deletes and describes topics, and shortens their partitions. Thread: the event loop."""

    def __init__(self, cluster: Cluster, settings: Settings, clock: Clock, waits: Waits) -> None:
        self.on_deleted: list[Callable[[str], None]] = []
        self._cluster = cluster
        self._settings = settings
        self._defaults = TopicConfig.parse(settings.topic_defaults)
        self._clock = clock
        self._waits = waits

    # Finding

    def get(self, name: str) -> MemoryTopic:
        """Return the topic of this name.

        Raises:
            UnknownTopicOrPartitionError
        """
        topic = self._cluster.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
        return topic

    def partition(self, name: str, number: int) -> MemoryLog:
        """Return the partition of this name.

        Raises:
            UnknownTopicOrPartitionError
        """
        partitions = self.get(name).partitions
        if not 0 <= number < len(partitions):
            has = f"partitions 0 to {len(partitions) - 1}" if len(partitions) > 1 else "partition 0 alone"
            raise UnknownTopicOrPartitionError(f"topic {name!r} has {has}, not {number}")
        return partitions[number]

    def count_partitions(self) -> PartitionCounts:
        """Return the numbers of partitions."""
        offline = [log.offline_reason is not None for log in self._cluster.logs()]
        return PartitionCounts(len(offline), sum(offline))

    async def page(
        self, prefix: str, start_after: str, limit: int, is_visible: Callable[[str], bool]
    ) -> Sequence[MemoryTopic]:
        """Return the first topics that are asked for; see ``Topics.page``."""
        names = sorted(name for name in self._cluster.topics if name.startswith(prefix) and name > start_after)
        return [self._cluster.topics[name] for name in filter(is_visible, names)][:limit]

    async def describe(self, topics: Sequence[Topic]) -> Sequence[PartitionView]:
        """Return a view of each partition of each topic, in order."""
        return [_describe(log) for topic in topics for log in self.get(topic.name).partitions]

    async def describe_partition(self, topic: str, number: int) -> PartitionView:
        """Return a view of one partition; see ``Topics.describe_partition``."""
        return _describe(self.partition(topic, number))

    # Changes

    async def ensure(self, name: str, partition_count: int, config: dict[str, object]) -> tuple[MemoryTopic, bool]:
        """Return the topic, made unless the same one exists; see ``Topics.ensure``."""
        existing = self._cluster.topics.get(name)
        if existing is None:
            self._check_room(partition_count)
        problem = topic_name_problem(name)
        if problem is not None:
            raise InvalidTopicError(problem)
        refuse_internal(name)
        wanted = self._parse(partition_count, config)
        if existing is not None:
            _refuse_difference(existing, partition_count, wanted)
            return existing, False
        for other in self._cluster.topics:
            if other.replace(".", "_") == name.replace(".", "_"):
                raise InvalidTopicError(f"topic {name} collides with {other}: they differ only in '.' and '_'")
        return self._make(name, partition_count, wanted, config), True

    def ensure_internal(self, name: str) -> MemoryTopic:
        """Return the internal topic of this name, with one partition."""
        existing = self._cluster.topics.get(name)
        return existing or self._make(name, 1, self._defaults, {})

    def _make(
        self, name: str, partition_count: int, wanted: TopicConfig, overrides: Mapping[str, object]
    ) -> MemoryTopic:
        topic_id = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode().replace("-", "A")
        topic = MemoryTopic(name, topic_id, (), wanted, dict(overrides), self._settings.topic_defaults)
        return self._grown(topic, partition_count)

    def _grown(self, topic: MemoryTopic, partition_count: int) -> MemoryTopic:
        limits = ProducerLimits(self._settings.producer_id_expiration_ms, self._settings.producer_count_max)
        added = (
            MemoryLog(PartitionName(topic.name, number), topic.topic_id, topic.config, self._clock, limits)
            for number in range(len(topic.partitions), partition_count)
        )
        grown = replace(topic, partitions=(*topic.partitions, *added))
        self._cluster.topics[topic.name] = grown
        return grown

    async def alter(
        self, name: str, *, config: dict[str, object | None], partition_count: int | None = None
    ) -> MemoryTopic:
        """Change settings or add partitions; see ``Topics.alter``."""
        refuse_internal(name)
        topic = self.get(name)
        count = len(topic.partitions) if partition_count is None else partition_count
        self._check_room(count - len(topic.partitions))
        changed = {**topic.overrides, **config}
        overrides = {key: value for key, value in changed.items() if value is not None}
        unknown = {key: "" for key in config if key not in TopicConfig.options()}
        wanted = self._parse(count, {**overrides, **unknown})
        if count < len(topic.partitions):
            raise InvalidTopicError(
                f"topic {name} has {len(topic.partitions)} partitions; there cannot be fewer", field="partitions"
            )
        for log in topic.partitions:
            log.config = wanted
        return self._grown(replace(topic, config=wanted, overrides=overrides), count)

    async def delete(self, name: str) -> None:
        """Delete a topic; see ``Topics.delete``."""
        refuse_internal(name)
        topic = self._cluster.topics.pop(self.get(name).name)
        for log in topic.partitions:
            log.is_deleted = True
            self._waits.gone(log.name)
        for tell in self.on_deleted:
            tell(name)

    def _parse(self, partition_count: int, config: Mapping[str, object]) -> TopicConfig:
        if not 1 <= partition_count <= PARTITION_COUNT_MAX:
            raise InvalidTopicError(
                f"a topic has 1 to {PARTITION_COUNT_MAX} partitions, not {partition_count}", field="partitions"
            )
        wanted = TopicConfig.parse(config, self._defaults)
        if wanted.retention_policy:
            text = f"{wanted.retention_policy!r} is not registered; registered: none"
            raise InvalidConfigError([("retention.policy", text)])
        return wanted

    def _check_room(self, added: int) -> None:
        present, most = self.count_partitions().all, self._settings.partition_count_max
        if added > 0 and present + added > most:
            raise PolicyViolationError(
                f"there are {present} partitions, and {added} more would exceed partition_count_max, {most}: delete "
                "topics, or raise it"
            )

    # Records

    async def delete_records(self, partition: Partition, offset: int, *, dry_run: bool) -> Offset:
        """Raise the log start offset; see ``Topics.delete_records``."""
        log = log_of(partition)
        refuse_internal(log.name.topic)
        refuse_deleted(log)
        if not log.config.deletes:
            raise PolicyViolationError(f"cleanup.policy of {log.name.topic} is {log.config.cleanup_policy}")
        limits = log.snapshot
        target = limits.high_watermark if offset == -1 else Offset(offset)
        if target > limits.high_watermark:
            check_offset(log, log.view(), target, limits.high_watermark)
        if not dry_run:
            log.raise_log_start(target, "delete-records")
            self._waits.changed(log.name)
        return max(limits.log_start_offset, target)

    async def delete_records_before(self, partition: Partition, timestamp: int, *, dry_run: bool) -> Offset:
        """Raise the log start offset to the first record at or after a time; see ``Topics.delete_records_before``."""
        found = log_of(partition).view().find_time(timestamp, Isolation.HIGH_WATERMARK)
        return await self.delete_records(partition, -1 if found is None else found.offset, dry_run=dry_run)

    async def epochs(
        self, partition: Partition, asked: int | None = None, *, current_leader_epoch: int | None = None
    ) -> PartitionEpochs:
        """Return the leader epochs of a partition; see ``Topics.epochs``."""
        log = log_of(partition)
        check_current(log, current_leader_epoch)
        end = None if asked is None else end_of(log, asked)
        return PartitionEpochs(log.leader_epoch, log.epochs, log.snapshot.log_end_offset, end)

    async def begin_epoch(self, partition: Partition) -> EpochEntry:
        """Begin a leader epoch at the log end."""
        log = log_of(partition)
        entry = log.begin_epoch()
        self._waits.changed(log.name)
        return entry

    # What needs segments, which there are none of

    async def segments(self, partition: Partition) -> Sequence[SegmentInfo]:
        """Fail: the capability is missing, and callers must look."""
        raise AssertionError("there are no segments")

    async def retention_plan(self, name: str) -> Sequence[tuple[int, Sequence[RetentionEntry]]]:
        """Fail: the capability is missing, and callers must look."""
        raise AssertionError("there is no retention")

    async def run_retention(self, name: str) -> Sequence[tuple[int, DeletedSegment]]:
        """Fail: the capability is missing, and callers must look."""
        raise AssertionError("there is no retention")


class MemoryTopicIds:
    """Topics by their ids."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def find(self, topic_id: str) -> MemoryTopic | None:
        """Return the topic with this id."""
        return next((topic for topic in self._cluster.topics.values() if topic.topic_id == topic_id), None)

    def learn(self) -> None:
        """Do nothing: every id is known."""


def _describe(log: MemoryLog) -> PartitionView:
    return PartitionView(
        partition=log.name.partition,
        limits=log.snapshot,
        leader_epoch=log.leader_epoch,
        recovery_point=log.recovery_point,
        size_bytes=log.size_bytes,
        segment_count=0,
        replicas=(_NODE,),
        in_sync=(_NODE,),
        offline_reason=log.offline_reason,
    )


def _refuse_difference(topic: MemoryTopic, partition_count: int, config: TopicConfig) -> None:
    if len(topic.partitions) != partition_count:
        raise TopicExistsError(
            f"topic {topic.name} exists with {len(topic.partitions)} partitions, not {partition_count}",
            field="partitions",
        )
    if topic.config != config:
        values = [(name, topic.config.value_of(name), config.value_of(name)) for name in TopicConfig.options()]
        different = [f"{name} {has}, not {asked}" for name, has, asked in values if has != asked]
        raise TopicExistsError(f"topic {topic.name} exists with {'; '.join(different)}", field="config")
