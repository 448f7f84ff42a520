"""Transactional producers of the service's own, for requests that want to be one transaction each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from app.transactions.state import ProducerIdentity
from storage.file_names import PartitionName
from storage.producer_entry import SEQUENCE_COUNT

PRODUCER_COUNT_MAX = 64
"""Requests that are carried out at a time; others wait their turn."""

_NAME = "__rollway_atomic_{}"
_PREFIX = _NAME.format("")

Initialise = Callable[[str, int, int], Awaitable[ProducerIdentity]]
IsCurrent = Callable[[str, ProducerIdentity], bool]


def is_pooled(transactional_id: str) -> bool:
    """Whether this id is that of a pool's producer, in this process or in one before."""
    return transactional_id.startswith(_PREFIX)


class PooledProducer:
    """A producer for one transaction at a time. If it is not kept, its name comes back as another instance."""

    def __init__(self, name: str, identity: ProducerIdentity) -> None:
        self.name = name
        self.identity = identity
        self.is_kept = False
        self._sequences: dict[PartitionName, int] = {}

    def take_sequences(self, partition: PartitionName, count: int) -> int:
        """The first of the next ``count`` sequences in this partition."""
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = (first + count) % SEQUENCE_COUNT
        return first

    def keep(self, identity: ProducerIdentity) -> None:
        """Its transaction has ended: it goes on with the identity that the end was answered with."""
        self.identity = identity
        self._sequences.clear()
        self.is_kept = True


class ProducerPool:
    """Names that are free, and producers that wait for work. Thread: the event loop."""

    def __init__(self, initialise: Initialise, is_current: IsCurrent, count_max: int = PRODUCER_COUNT_MAX) -> None:
        """``is_current`` tells whether a producer's name is still known, and its own."""
        self._initialise = initialise
        self._is_current = is_current
        self._turns = asyncio.Semaphore(count_max)
        self._names = [_NAME.format(number) for number in reversed(range(count_max))]
        self._idle: list[PooledProducer] = []

    @contextlib.asynccontextmanager
    async def producer(self, timeout_ms: int, wait_ms: int) -> AsyncIterator[PooledProducer]:
        """A producer without a transaction; unless it is kept, whatever it leaves open is aborted later.

        Raises:
            as ``TransactionCoordinator.initialise``.
        """
        async with self._turns:
            producer = self._idle.pop() if self._idle else None
            name = self._names.pop() if producer is None else producer.name
            try:
                if producer is None or not self._is_current(name, producer.identity):
                    # Never made yet, or forgotten while it was idle.
                    producer = PooledProducer(name, await self._initialise(name, timeout_ms, wait_ms))
                producer.is_kept = False
                yield producer
            finally:
                if producer is not None and producer.is_kept:
                    self._idle.append(producer)
                else:
                    self._names.append(name)
