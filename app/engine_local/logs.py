"""The part of the engine that the coordinator and the logs of state need: partitions, a clock, producer ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from app.engine.partitions import Partition
from app.engine.partitions import Topic as HandledTopic
from app.engine_local.partitions.partition_writer import PartitionWriter
from log_model.clock import ProtectedClock
from storage.log.partition_log import PartitionLog
from storage.manager.topic_registry import Topic

Result = TypeVar("Result")


class Logs(Protocol):
    """The logs as the engine offers them. Thread: the event loop."""

    async def partition(self, topic: str, number: int) -> PartitionLog:
        """Return the partition of this name. A thread opens one that rests.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
            CorruptionError, UnavailableError: it rested, and cannot be opened.
        """

    async def with_producers(self, topic: str, number: int) -> PartitionLog | None:
        """Return the partition of this name, or ``None`` if it rests and knows no producer.

        Raises:
            The errors of ``partition``.
        """

    def writer_of(self, partition: Partition) -> PartitionWriter:
        """Return the partition's writer.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
        """

    @property
    def protected_clock(self) -> ProtectedClock:
        """The clock by which records and transactions expire."""

    def now_ms(self) -> int:
        """Return the wall time in milliseconds, to be written down and shown. Expiry does not use it."""

    async def read(self, call: Callable[[], Result]) -> Result:
        """Run a reading ``call`` in a thread."""

    async def ensure_internal_topic(
        self, name: str, partition_count: int, config: Mapping[str, object]
    ) -> tuple[PartitionLog, ...]:
        """Return the partitions of an internal topic, which is created if it does not exist.

        Raises:
            TopicExistsError, DiskFullError: the topic could not be created.
        """

    async def allocate_producer_id(self, principal: str | None = None) -> int:
        """Return a producer id that no producer had before.

        Raises:
            CorruptionError, DiskFullError: no id is available now.
        """


def log_behind(partition: Partition) -> PartitionLog:
    """Return the log of a partition's handle, which is the log itself in this engine."""
    assert isinstance(partition, PartitionLog)
    return partition


def topic_behind(topic: HandledTopic) -> Topic:
    """Return the topic of a handle, which is the topic itself in this engine."""
    assert isinstance(topic, Topic)
    return topic
