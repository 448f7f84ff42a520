"""The order of requests of the same producer, or with the same key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol
from weakref import WeakValueDictionary

from log_model.names import PartitionName


class Superseded(Protocol):
    """A stream that ends when another stream of its producer begins."""

    def supersede(self) -> None:
        """Submit nothing more."""
        ...


class ProducerTurns:
    """The requests in progress for each key and producer. Requests that ended are dropped. Thread: the event loop."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[asyncio.Lock, int]] = {}
        self._streams: WeakValueDictionary[tuple[PartitionName, int], Superseded] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def of_key(self, producer_id: int) -> AsyncIterator[None]:
        """Let a second request to a topic with the same key wait for the first.

        Requests to one partition need no order, because its writer takes one at a time. But two requests that differ
        might each get some of the partitions first.
        """
        lock, count = self._keys.get(producer_id, (asyncio.Lock(), 0))
        self._keys[producer_id] = (lock, count + 1)
        try:
            async with lock:
                yield
        finally:
            lock, count = self._keys.pop(producer_id)
            if count > 1:
                self._keys[producer_id] = (lock, count - 1)

    def begin_stream(self, partition: PartitionName, producer_id: int, stream: Superseded) -> None:
        """Let ``stream`` be the producer's. An older one submits nothing more: its connection was lost, or will be."""
        older = self._streams.get((partition, producer_id))
        if older is not None:
            older.supersede()
        self._streams[partition, producer_id] = stream
