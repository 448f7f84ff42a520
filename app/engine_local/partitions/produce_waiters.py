"""The purgatory of produce requests: appends with ``acks=all`` that wait for the other copies (spec A5, A6).

Most appends never come here: this node's copy is the only one, so the high watermark has passed them when their group's
fsync is done. Appends to a partition with followers wait until the in-sync set has them.

Thread: the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Sequence
from functools import partial
from typing import Any

from app.engine.appending import AppendOptions, Outcome
from app.engine_local.partitions.purgatory import DelayedOperation, Purgatory, Wake
from app.problems import kinds
from app.problems.problem import Problem
from log_model.errors import NotEnoughReplicasAfterAppendError, PartitionFailedError, StorageError
from log_model.names import PartitionName
from storage.log.partition_log import AppendResult, PartitionLog


def lacks_copies(options: AppendOptions, log: PartitionLog, result: AppendResult) -> bool:
    """Return whether an append lacks its acknowledgement: too few copies have it, or too few are in sync."""
    return options.acks == "all" and not (has_all_copies(options, log, result) and log.replicas.has_enough)


def has_all_copies(options: AppendOptions, log: PartitionLog, result: AppendResult) -> bool:
    """Return whether every copy in sync has the appended records: the high watermark has passed them.

    With ``durability=written`` the local fsync, which the high watermark waits for, does not count.
    """
    if options.acks != "all" or result.last_offset < log.snapshot.high_watermark:
        return True
    return options.durability == "written" and result.last_offset < log.copied_offset()


def timed_out(options: AppendOptions, result: AppendResult | None) -> Problem:
    """Return the refusal when the time is up: with the offset if the append is in the log, where it stays (spec A6)."""
    place: dict[str, Any] = {} if result is None else {"base_offset": int(result.base_offset)}
    return Problem(
        kinds.REQUEST_TIMED_OUT, f"not acknowledged within {options.timeout_ms} ms; the append goes on", **place
    )


class DelayedProduce(DelayedOperation):
    """Written appends of one request that wait for the other copies of their partitions.

    ``refusal`` returns the error of a log that takes no part any more: it was deleted, or another node leads its
    partition.
    """

    __slots__ = ("_options", "_outcomes", "_pending", "_refusal")

    def __init__(
        self,
        appends: Sequence[tuple[PartitionLog, AppendResult]],
        options: AppendOptions,
        refusal: Callable[[PartitionLog], StorageError | None],
    ) -> None:
        super().__init__()
        self._options = options
        self._refusal = refusal
        self._pending = dict(enumerate(appends))
        self._outcomes: dict[int, Outcome] = {}

    def is_ready(self) -> bool:
        for place, (log, result) in tuple(self._pending.items()):
            outcome = self._look(log, result)
            if outcome is not None:
                self._outcomes[place] = outcome
                del self._pending[place]
        return not self._pending

    def _look(self, log: PartitionLog, result: AppendResult) -> Outcome | None:
        """Return the outcome of one append; ``None`` while it waits."""
        refusal = self._refusal(log)
        if refusal is not None:
            return refusal
        if not has_all_copies(self._options, log, result):
            if log.offline_reason is None:
                return None
            return PartitionFailedError(f"{log.name} went offline before all copies had it: {log.offline_reason}")
        try:
            log.replicas.check_after_append()
        except NotEnoughReplicasAfterAppendError as error:
            return error
        return result

    def outcomes(self) -> list[Outcome]:
        """Return one outcome for each append, in order. For waiting appends the time is up, or the service stops."""
        if self._pending and self.done.done() and not self.done.cancelled() and self.done.result() is Wake.SHUTDOWN:
            left: Callable[[AppendResult], Problem] = _shutting_down
        else:
            left = partial(timed_out, self._options)
        self._outcomes |= {place: left(result) for place, (_, result) in self._pending.items()}
        self._pending = {}
        return [self._outcomes[place] for place in range(len(self._outcomes))]


def _shutting_down(result: AppendResult) -> Problem:
    return Problem(
        kinds.SHUTTING_DOWN_UNFINISHED,
        "the service stops before all copies have it",
        base_offset=int(result.base_offset),
    )


class ProduceWaiters:
    """All produce requests that wait for copies, by partition."""

    def __init__(self, *, count_max: int, refusal: Callable[[PartitionLog], StorageError | None]) -> None:
        self._purgatory: Purgatory[PartitionName] = Purgatory("produce requests", count_max=count_max)
        self._refusal = refusal
        self.watched: Container[Hashable] = self._purgatory.watching
        """Partitions that an append waits for."""

    def __len__(self) -> int:
        return len(self._purgatory)

    async def wait(
        self, appends: Sequence[tuple[PartitionLog, AppendResult]], options: AppendOptions, wait_ms: float
    ) -> list[Outcome]:
        """Return one outcome for each append, at the latest after ``wait_ms``. Appends that lack copies then stay.

        Raises:
            Problem: overloaded; the appends stay.
        """
        operation = DelayedProduce(appends, options, self._refusal)
        try:
            if not self._purgatory.watch(operation, (log.name for log, _ in appends), wait_ms=wait_ms):
                await operation.done
        finally:
            operation.cancel()
        return operation.outcomes()

    def look(self, partition: PartitionName) -> None:
        """Look at the appends to a partition whose high watermark, in-sync set, leader or existence has changed."""
        self._purgatory.notify(partition)

    def close(self) -> None:
        """Complete all requests. Later requests do not wait. A second call does nothing."""
        self._purgatory.close()
