"""Who is busy with a transactional id: one transition at a time, and the appends that are on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from app.engine.transactions import Transaction
from log_model.errors import StorageError
from log_model.names import PartitionName
from storage.log.partition_log import AppendResult


class Session:
    """One transactional id at work. It is made when first needed and dropped when its id is not known any more.

    ``lock`` is held over every transition, from the decision until it is durable and noted.
    """

    __slots__ = ("_drained", "closing", "ended", "in_flight", "lock", "space_wanted", "users", "waits")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.in_flight = 0
        self.closing = False
        self.ended: asyncio.Future[Transaction] | None = None
        """Of the transaction that is being ended: what it is once its markers are durable."""
        self.waits: dict[PartitionName, str] = {}
        """Partitions that have no marker yet, and why not."""
        self.space_wanted: str | None = None
        """Why the end cannot be noted yet although all markers are durable, if a disk is full."""
        self._drained: asyncio.Future[None] | None = None

    def enter(self) -> None:
        """An append was enlisted and is on its way to its partition."""
        self.in_flight += 1

    def leave(self) -> None:
        """It has reached the partition's mailbox, in front of any marker, or never will."""
        self.in_flight -= 1
        if self.in_flight == 0 and self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    async def drained(self) -> None:
        """Return when nothing is on its way. ``closing`` keeps others from starting."""
        assert self.closing
        if self.in_flight:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained


class Enlistment:
    """Leave to append to the partitions of one request, held until they were submitted: ``with`` it.

    ``duplicates`` are in the log already, batch by batch, and need not be appended, ``refused`` must not be; of both
    nothing was enlisted. While it is held no marker is written, so hold it across nothing that waits.
    """

    __slots__ = ("_session", "duplicates", "refused")

    def __init__(
        self,
        session: Session,
        duplicates: Mapping[PartitionName, list[AppendResult]],
        refused: Mapping[PartitionName, StorageError],
    ) -> None:
        self._session: Session | None = session
        self.duplicates = duplicates
        self.refused = refused
        session.enter()

    def release(self) -> None:
        """What was to be submitted was submitted. Calling it again does nothing."""
        if self._session is not None:
            self._session.leave()
            self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.release()
