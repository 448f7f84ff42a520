"""Topics and partitions as an engine knows them, without their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from log_model.config import TopicConfig
from log_model.names import PartitionName
from log_model.offsets import LeaderEpoch, Offset


class Limits(Protocol):
    """The ends of a partition, all from one moment.

    ``log start <= last stable offset <= high watermark <= log end`` holds (invariant 6).
    """

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that can be read."""

    @property
    def last_stable_offset(self) -> Offset:
        """The end of the records that read_committed consumers may read."""

    @property
    def high_watermark(self) -> Offset:
        """The end of the records that consumers may read."""

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""


class Partition(Protocol):
    """A handle of one partition. It is cheap to get, and holds no records.

    Thread: the event loop, and the threads of readers.
    """

    @property
    def name(self) -> PartitionName: ...

    @property
    def topic_id(self) -> str:
        """The id of the partition's topic. A topic that is created again has another id."""

    @property
    def config(self) -> TopicConfig:
        """The settings that the partition goes by now."""

    @property
    def offline_reason(self) -> str | None:
        """Why the partition takes no appends; ``None`` if it takes appends."""

    @property
    def leader_epoch(self) -> LeaderEpoch: ...

    @property
    def recovery_point(self) -> Offset:
        """The end of the durable records; -1 if the engine cannot tell."""

    @property
    def snapshot(self) -> Limits:
        """The limits as the engine knows them now, without asking a disk or another machine."""


class Topic(Protocol):
    """A topic. ``Engine.partition`` returns the handles of its partitions."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> str: ...

    @property
    def partition_count(self) -> int: ...

    def online_partitions(self) -> Sequence[int]:
        """Return the numbers of the partitions that take appends, in order."""

    @property
    def config(self) -> TopicConfig: ...

    @property
    def is_internal(self) -> bool:
        """Whether the topic belongs to the service itself."""

    def config_source(self, name: str) -> str:
        """Return the source of the setting's value: ``topic``, ``service`` or ``default``."""
