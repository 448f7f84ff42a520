"""A read of one partition between its two steps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from app.engine.reading import Read, ReadOutcome
from app.engine.waiting import Waiting
from app.engine_local.partitions.fetch_waiters import Wake
from app.engine_local.reading.limit_checks import LimitChecks
from app.engine_local.reading.ranges import read_range
from app.event_loop.pools import call_in
from log_model.errors import UnknownTopicOrPartitionError
from log_model.offsets import Offset
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog

Result = TypeVar("Result")


class LocalPendingRead:
    """A read that has its start, from one snapshot, or from the current snapshot when its wait is over."""

    __slots__ = ("_checks", "_log", "_readers", "_request", "_snapshot", "_start", "waiting")

    def __init__(
        self,
        log: PartitionLog,
        request: Read,
        start: Offset,
        held: LogSnapshot | Waiting,
        checks: LimitChecks,
        readers: Executor,
    ) -> None:
        """Take ``held``: the snapshot to read, or the wait that comes first.

        A wait must not keep a snapshot, whose files retention may delete meanwhile.
        """
        self._log = log
        self._request = request
        self._start = start
        self._snapshot = held if isinstance(held, LogSnapshot) else None
        self.waiting = None if isinstance(held, LogSnapshot) else held
        self._checks = checks
        self._readers = readers

    async def outcome(self, then: Callable[[ReadOutcome], Result], *, max_bytes: int | None = None) -> Result:
        """Read as ``PendingRead.outcome`` does.

        Raises:
            OffsetOutOfRangeError, UnknownTopicOrPartitionError, StorageError
        """
        snapshot, start, request = self._snapshot, self._start, self._request
        if snapshot is None:
            if self.waiting is not None and self.waiting.done.result() is Wake.GONE:
                raise UnknownTopicOrPartitionError(f"{self._log.name} was deleted")
            snapshot = self._log.snapshot
            start = self._checks.start_inside(self._log, snapshot, start, request)
        call = functools.partial(_read, snapshot, request, start, max_bytes, then)
        if start >= snapshot.bound(request.isolation).offset and request.until is None:
            # An empty range needs no disk and no thread. Thousands of long polls end this way when the service stops.
            return call()
        return await call_in(self._readers, call)


def _read(
    snapshot: LogSnapshot,
    request: Read,
    start: Offset,
    max_bytes: int | None,
    then: Callable[[ReadOutcome], Result],
) -> Result:
    return then(read_range(snapshot, request, start, max_bytes))
