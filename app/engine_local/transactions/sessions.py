"""The activity of a transactional id: one transition at a time, and the appends that are on their way."""

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
    """The activity of one transactional id. It is made when first needed and dropped when the id is no longer known.

    ``lock`` is held over every transition, from the decision until it is durable and in the table.
    """

    __slots__ = ("_drained", "closing", "ended", "in_flight", "lock", "space_wanted", "users", "waits")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.in_flight = 0
        self.closing = False
        self.ended: asyncio.Future[Transaction] | None = None
        """The completed transaction, once the markers of the transaction that is being ended are durable."""
        self.waits: dict[PartitionName, str] = {}
        """Partitions that have no marker yet, each with the cause."""
        self.space_wanted: str | None = None
        """Why the record of completion cannot be written although all markers are durable, if a disk is full."""
        self._drained: asyncio.Future[None] | None = None

    def enter(self) -> None:
        """Record that an append was enlisted and is on its way to its partition."""
        self.in_flight += 1

    def leave(self) -> None:
        """Record that an append has reached the partition's mailbox, in front of any marker, or never will."""
        self.in_flight -= 1
        if self.in_flight == 0 and self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    async def drained(self) -> None:
        """Return once no append is on its way. ``closing`` keeps further appends from starting."""
        assert self.closing
        if self.in_flight:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained


class Enlistment:
    """Permission to append to the partitions of one request. Use it in ``with``, and submit the batches inside.

    ``duplicates`` has the results of batches that are in the log already and need no append. Batches for partitions in
    ``refused`` must not be appended. The partitions of both were not enlisted. While the permission is held no marker
    is written, so do not wait inside.
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
        """Give the permission back, once all batches are submitted. A second call does nothing."""
        if self._session is not None:
            self._session.leave()
            self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.release()
