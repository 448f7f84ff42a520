"""Transactional producers of the service's own, for requests that are one transaction each."""

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
"""Limit on the requests that run at a time. Further requests wait."""

_NAME = "__rollway_atomic_{}"
_PREFIX = _NAME.format("")

UntilEnded = Callable[[asyncio.Future[Transaction]], Awaitable[object]]
"""A function that waits until a transaction that is being ended has ended."""

_LOOK_SECONDS = 0.1


class Initialise(Protocol):
    """The type of ``TransactionCoordinator.initialise``."""

    async def __call__(
        self, name: str, timeout_ms: int, wait_ms: int, /, *, until_ended: UntilEnded
    ) -> ProducerIdentity: ...


IsCurrent = Callable[[str, ProducerIdentity], bool]


def is_pooled(transactional_id: str) -> bool:
    """Return whether this is the id of a pool's producer, of this process or of an earlier one."""
    return transactional_id.startswith(_PREFIX)


class Wait(enum.IntEnum):
    """The cause for which the next transaction of a name waits, the shortest wait first."""

    NONE = 0
    MARKERS = 1
    """The last transaction is being ended."""
    SPACE = 2
    """The last transaction is being ended, and a disk has no space for that."""


class ProducerPool:
    """Free names and idle producers. Thread: the event loop."""

    def __init__(
        self,
        initialise: Initialise,
        is_current: IsCurrent,
        wait_of: Callable[[str], Wait] = lambda _: Wait.NONE,
        abort_left: Callable[[str, ProducerIdentity], None] = lambda *_: None,
        count_max: int = PRODUCER_COUNT_MAX,
    ) -> None:
        """Take functions of the coordinator.

        ``is_current`` returns whether a producer's name is known and still belongs to it. ``abort_left`` aborts the
        transaction that a producer has left open if it was not kept. It must not wait.
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
        """Lend a producer without a transaction. Unless it is kept, a transaction that it leaves open is aborted.

        Raises:
            DiskFullError: the end of the last transaction waits for space on a disk.
            The errors of ``TransactionCoordinator.initialise``.
        """
        async with self._turns:
            producer = self._take_idle()
            name = self._take_name() if producer is None else producer.name
            try:
                if producer is None or not self._is_current(name, producer.identity):
                    # The producer was never made, or its id was forgotten while it was idle.
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
            DiskFullError: a disk has no space for the end, which is tried again.
        """
        while not last.done() and self._wait_of(name) is not Wait.SPACE:
            await asyncio.wait([last], timeout=_LOOK_SECONDS)
        if not last.done():
            raise DiskFullError(f"a disk has no space for the end of the last transaction of {name!r}")
        await last

    def _take_idle(self) -> PooledProducer | None:
        """Take the idle producer that was used last, among producers whose next transaction need not wait.

        An end that readers see may still wait for its record of completion, and its producer's next records would be
        refused.
        """
        for place in reversed(range(len(self._idle))):
            if self._wait_of(self._idle[place].name) is Wait.NONE:
                return self._idle.pop(place)
        return None

    def _take_name(self) -> str:
        """Take the free name that was used last, among the names with the shortest wait for their last transaction.

        Raises:
            DiskFullError: all names wait for space on a disk.
        """
        if not self._names:
            # All other names are at work or idle. An idle one begins again as another instance.
            self._names += [producer.name for producer in self._idle]
            self._idle.clear()
        waits = [self._wait_of(name) for name in self._names]
        shortest = min(waits)
        if shortest is Wait.SPACE:
            raise DiskFullError("the ends of earlier transactions wait for space on a disk")
        return self._names.pop(len(waits) - 1 - waits[::-1].index(shortest))
