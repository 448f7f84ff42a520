"""One transactional id at work: one transition at a time, and the requests that are enlisted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from log_model.batches.append_request import AppendResult
from log_model.errors import StorageError
from log_model.names import PartitionName


class Session:
    """Holds the lock of one id. It ends a transaction only while no request is between enlisting and submitting."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._in_flight = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @contextlib.asynccontextmanager
    async def turn(self, *, drained: bool = True) -> AsyncIterator[None]:
        """Hold the lock; with ``drained`` also wait until every enlisted request was submitted."""
        async with self._lock:
            if drained:
                await self._is_idle.wait()
            yield

    def enter(self) -> None:
        """Note an enlisted request."""
        self._in_flight += 1
        self._is_idle.clear()

    def leave(self) -> None:
        """Note that an enlisted request was submitted."""
        self._in_flight -= 1
        if not self._in_flight:
            self._is_idle.set()


class MemoryEnlistment:
    """Permission to append to the partitions of one request; see ``Enlistment`` of the port."""

    def __init__(
        self,
        session: Session,
        duplicates: Mapping[PartitionName, list[AppendResult]],
        refused: Mapping[PartitionName, StorageError],
    ) -> None:
        self.duplicates = duplicates
        self.refused = refused
        self._session: Session | None = session
        session.enter()

    def release(self) -> None:
        """Let the transaction end from now on."""
        if self._session is not None:
            self._session.leave()
            self._session = None
