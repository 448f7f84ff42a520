"""An engine: topics, appends, reads, transactions, and the state of the service's own, behind one port.

Routes and the rooms below them hold an ``Engine``, and never one implementation; ``app.service`` chooses it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from app.engine.appending import Appends
from app.engine.capabilities import Capabilities
from app.engine.partitions import Partition, Topic
from app.engine.producer_owners import ProducerOwners
from app.engine.reading import Reads
from app.engine.state import StateLog
from app.engine.topic_ids import TopicIds
from app.engine.topics import Topics
from app.engine.transactions import Transactions
from log_model.clock import Clock, ProtectedClock


class Job(NamedTuple):
    """Work that is repeated about every ``interval_ms``."""

    run: Callable[[], Awaitable[None]]
    interval_ms: int


class Engine(Protocol):
    """The engine of one service. Thread: the event loop."""

    async def start(self) -> None:
        """Read the state that the engine needs before the first request.

        Raises:
            StorageError, OSError: a file or log cannot be read.
        """

    @property
    def capabilities(self) -> Capabilities:
        """The capability table of the engine."""

    @property
    def topics(self) -> Topics:
        """The topics of the engine."""

    @property
    def background_jobs(self) -> Mapping[str, Job]:
        """The engine's own background work, by the names that metrics show."""

    def leave_out_producer_ids(self, largest: int) -> None:
        """Give no producer id up to ``largest``: an owner outside the engine may hold it."""

    @property
    def clock(self) -> Clock:
        """The clock of wall time and of elapsed time."""

    @property
    def transactions(self) -> Transactions:
        """Producers and transactions."""

    @property
    def appends(self) -> Appends: ...

    @property
    def producer_owners(self) -> ProducerOwners: ...

    @property
    def protected_clock(self) -> ProtectedClock:
        """The clock by which records and transactions expire. A jump forward of wall time alone lets none expire."""

    @property
    def reads(self) -> Reads:
        """All reads of records and offsets."""

    @property
    def topic_ids(self) -> TopicIds:
        """Topics by their ids."""

    def now_ms(self) -> int:
        """Return the wall time that records get, in milliseconds."""

    def topic(self, name: str) -> Topic:
        """Return the topic of this name.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """

    async def partition(self, topic: str, number: int) -> Partition:
        """Return the partition of this name, ready to be used.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or no such partition of it.
            CorruptionError, UnavailableError: it rested, and cannot be opened.
        """

    def check_partition(self, topic: str, number: int) -> None:
        """Return if there is this partition.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or no such partition of it.
        """

    def find_topic_id(self, name: str) -> str | None:
        """Return the id of the topic of this name, ``None`` if there is none. A topic made again has another id."""

    def state(self, topic: str) -> StateLog:
        """Return the log of state in the internal topic of this name. The first write creates the topic."""

    def release(self) -> None:
        """Answer every request that waits; from now on none waits."""

    async def close(self) -> None:
        """Finish the appends that were taken, refuse the rest, and close cleanly."""
