"""Transactional producers of the service's own, for requests that want to be one transaction each."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Protocol

from app.engine.transactions import PooledProducer, ProducerIdentity, Transaction
from log_model.errors import DiskFullError

PRODUCER_COUNT_MAX = 64
"""Requests that are carried out at a time; others wait their turn."""

_NAME = "__rollway_atomic_{}"
_PREFIX = _NAME.format("")

UntilEnded = Callable[[asyncio.Future[Transaction]], Awaitable[object]]
"""Waits until a transaction that is being ended has ended."""

_LOOK_SECONDS = 0.1


class Initialise(Protocol):
    """As ``TransactionCoordinator.initialise``."""

    async def __call__(
        self, name: str, timeout_ms: int, wait_ms: int, /, *, until_ended: UntilEnded
    ) -> ProducerIdentity: ...


IsCurrent = Callable[[str, ProducerIdentity], bool]


def is_pooled(transactional_id: str) -> bool:
    """Whether this id is that of a pool's producer, in this process or in one before."""
    return transactional_id.startswith(_PREFIX)


class Wait(enum.IntEnum):
    """What the next transaction of a name waits for, the shortest wait first."""

    NONE = 0
    MARKERS = 1
    """The last transaction is being ended."""
    SPACE = 2
    """The last transaction is being ended, and a disk has no space for that."""


class ProducerPool:
    """Names that are free, and producers that wait for work. Thread: the event loop."""

    def __init__(
        self,
        initialise: Initialise,
        is_current: IsCurrent,
        wait_of: Callable[[str], Wait] = lambda _: Wait.NONE,
        abort_left: Callable[[str, ProducerIdentity], None] = lambda *_: None,
        count_max: int = PRODUCER_COUNT_MAX,
    ) -> None:
        """``is_current`` tells whether a producer's name is still known, and its own.

        ``abort_left`` aborts what a producer that was not kept has left open. It must not wait.
        """
        self._initialise = initialise
        self._is_current = is_current
        self._wait_of = wait_of
        self._abort_left = abort_left
        self._turns = asyncio.Semaphore(count_max)
        self._names = [_NAME.format(number) for number in reversed(range(count_max))]
        self._idle: list[PooledProducer] = []

    @contextlib.asynccontextmanager
    async def producer(self, timeout_ms: int, wait_ms: int) -> AsyncIterator[PooledProducer]:
        """A producer without a transaction; unless it is kept, whatever it leaves open is aborted behind it.

        Raises:
            DiskFullError: the end of the last transaction waits for space on a disk.
            as ``TransactionCoordinator.initialise``.
        """
        async with self._turns:
            producer = self._take_idle()
            name = self._take_name() if producer is None else producer.name
            try:
                if producer is None or not self._is_current(name, producer.identity):
                    # Never made yet, or forgotten while it was idle.
                    producer = await self._made(name, timeout_ms, wait_ms)
                producer.is_kept = False
                yield producer
            finally:
                if producer is not None and producer.is_kept:
                    self._idle.append(producer)
                else:
                    self._names.append(name)
                    if producer is not None:
                        self._abort_left(name, producer.identity)

    async def _made(self, name: str, timeout_ms: int, wait_ms: int) -> PooledProducer:
        until_ended = partial(self._until_ended, name)
        return PooledProducer(name, await self._initialise(name, timeout_ms, wait_ms, until_ended=until_ended))

    async def _until_ended(self, name: str, last: asyncio.Future[Transaction]) -> None:
        """Wait for the end of the last transaction of a name, but not for space on a disk.

        Raises:
            DiskFullError: a disk has no space for that; it is tried again.
        """
        while not last.done() and self._wait_of(name) is not Wait.SPACE:
            await asyncio.wait([last], timeout=_LOOK_SECONDS)
        if not last.done():
            raise DiskFullError(f"a disk has no space for the end of the last transaction of {name!r}")
        await last

    def _take_idle(self) -> PooledProducer | None:
        """Take the idle producer that was used last, of those that wait for nothing.

        An end that was answered may still wait to be noted: its producer's next records would be refused.
        """
        for place in reversed(range(len(self._idle))):
            if self._wait_of(self._idle[place].name) is Wait.NONE:
                return self._idle.pop(place)
        return None

    def _take_name(self) -> str:
        """Take the free name that was used last, of those whose last transaction keeps the next one waiting least.

        Raises:
            DiskFullError: all wait for space on a disk.
        """
        if not self._names:
            # All others are at work or idle: an idle one begins again as another instance.
            self._names += [producer.name for producer in self._idle]
            self._idle.clear()
        waits = [self._wait_of(name) for name in self._names]
        shortest = min(waits)
        if shortest is Wait.SPACE:
            raise DiskFullError("the ends of earlier transactions wait for space on a disk")
        return self._names.pop(len(waits) - 1 - waits[::-1].index(shortest))
