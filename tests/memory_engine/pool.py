"""Producers of the engine's own, for requests that are a transaction each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from app.engine.transactions import PooledProducer
from schemas.names import INTERNAL_ID_PREFIX

if TYPE_CHECKING:
    from tests.memory_engine.transactions import MemoryTransactions

_PREFIX = f"{INTERNAL_ID_PREFIX}_atomic_"
_COUNT_MAX = 64


def is_pooled(transactional_id: str) -> bool:
    """Return whether this id is that of a pooled producer."""
    return transactional_id.startswith(_PREFIX)


class MemoryPool:
    """Names that are free, and producers that wait for work. Thread: the event loop."""

    def __init__(self, transactions: MemoryTransactions) -> None:
        self._transactions = transactions
        self._turns = asyncio.Semaphore(_COUNT_MAX)
        self._names = [f"{_PREFIX}{number}" for number in reversed(range(_COUNT_MAX))]
        self._idle: dict[str, PooledProducer] = {}

    @contextlib.asynccontextmanager
    async def producer(self, timeout_ms: int, wait_ms: int) -> AsyncIterator[PooledProducer]:
        """Lend a producer without an open transaction; see ``PooledProducers``."""
        async with self._turns:
            name = self._names.pop()
            try:
                producer = self._idle.pop(name, None)
                if producer is None or not self._transactions.table.is_current(name, producer.identity):
                    identity = await self._transactions.initialise(name, timeout_ms, wait_ms)
                    producer = PooledProducer(name, identity)
                producer.is_kept = False
                yield producer
                if producer.is_kept:
                    self._idle[name] = producer
            finally:
                self._names.append(name)
                if name not in self._idle:
                    # Whatever was left open. A client that has gone must not take the abort with it.
                    await asyncio.shield(self._transactions.fence(name, lambda _: True))
