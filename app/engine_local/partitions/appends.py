"""The one way into the logs: a request of batches becomes a pending append, and a pending append an outcome.

Thread: the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from app.engine_local.partitions.directory import Partitions
from app.engine_local.partitions.pending_append import PendingAppend
from app.engine_local.partitions.produce_waiters import Outcome, ProduceOptions, timed_out
from app.engine_local.partitions.unanswered import count_when_written
from app.metrics.metrics import Metrics
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import InvalidTxnStateError, StorageError
from log_model.names import refuse_internal
from log_model.offsets import Offset
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog


class LocalAppends:
    """Appends to the partitions of one data directory."""

    def __init__(self, partitions: Partitions, metrics: Metrics) -> None:
        self._partitions = partitions
        self.metrics = metrics

    def submit(
        self, log: PartitionLog, batches: Sequence[ValidBatch], options: ProduceOptions, *, enlisted: bool = False
    ) -> PendingAppend:
        """Put batches into their partition's mailbox; wait for the outcome with ``outcome_of``.

        Transactional ones must be ``enlisted`` with the coordinator: see ``app.produce.enlisting``.

        Raises:
            Problem: overloaded.
            NotEnoughReplicasError: ``acks=all``, and too few copies are in sync (spec A5).
            InvalidTxnStateError: a batch is transactional and nobody could end its transaction.
            StorageError: the partition is gone or the service is stopping, or the topic is internal.
        """
        refuse_internal(log.name.topic)
        if not enlisted and any(batch.header.is_transactional for batch in batches):
            raise InvalidTxnStateError("the batch is transactional, but its producer has no transaction open")
        request = AppendRequest(
            tuple(batches), None if options.expected_offset is None else Offset(options.expected_offset)
        )
        if options.acks == "all":
            log.replicas.check_before_append()
        size_bytes = sum(batch.size_bytes for batch in batches)
        pending = self._partitions.writer_of(log).append(
            request, size_bytes=size_bytes, wants_fsync=options.acks != "0" and options.waits_for_fsync(log)
        )
        if options.acks == "0":
            if pending.result is None:
                count_when_written(self, pending, is_dropped=True)
            else:
                self.count_produced(pending.result, pending.size_bytes)
        return pending

    async def outcome_of(self, pending: PendingAppend, options: ProduceOptions) -> AppendResult:
        """Wait as long as the options say: for the file, for the fsync, for all copies.

        Raises:
            Problem: request_timed_out; the append goes on.
            StorageError: what the log answered.
        """
        ends_at = asyncio.get_running_loop().time() + options.timeout_ms / 1000
        try:
            async with asyncio.timeout_at(ends_at):
                result = await (pending.fsynced if pending.wants_fsync else pending.written)
        except TimeoutError:
            count_when_written(self, pending)
            raise timed_out(options, pending.result) from None
        self.count_produced(result, pending.size_bytes)
        if options.lacks_copies(pending.log, result):
            outcomes: list[Outcome] = [result]
            await self._wait_for_copies((pending,), outcomes, options, ends_at)
            if isinstance(outcomes[0], Exception):
                raise outcomes[0]
        return result

    async def outcomes_of(self, pendings: Sequence[PendingAppend], options: ProduceOptions) -> list[Outcome]:
        """Wait for all of these as ``outcome_of`` does, together no longer than the timeout; one outcome each.

        Raises:
            Problem: overloaded, too many requests wait for copies; the appends go on.
        """
        ends_at = asyncio.get_running_loop().time() + options.timeout_ms / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ends_at):
                for pending in pendings:
                    # One after the other: they go on together whoever is waited for.
                    with contextlib.suppress(StorageError):
                        await (pending.fsynced if pending.wants_fsync else pending.written)
        outcomes = [self._answered(pending, options) for pending in pendings]
        for pending, outcome in zip(pendings, outcomes, strict=True):
            if not isinstance(outcome, Exception):
                self.count_produced(outcome, pending.size_bytes)
        await self._wait_for_copies(pendings, outcomes, options, ends_at)
        return outcomes

    def _answered(self, pending: PendingAppend, options: ProduceOptions) -> Outcome:
        """What the writer has answered by now."""
        future = pending.fsynced if pending.wants_fsync else pending.written
        if not future.done() or future.cancelled():
            count_when_written(self, pending)
            return timed_out(options, pending.result)
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, StorageError):
            return error
        raise error

    async def _wait_for_copies(
        self,
        pendings: Sequence[PendingAppend],
        outcomes: list[Outcome],
        options: ProduceOptions,
        ends_at: float,
    ) -> None:
        """Replace the outcomes of appends that other copies do not have yet (spec A5, A6)."""
        waiting: dict[int, tuple[PartitionLog, AppendResult]] = {}
        for place, (pending, outcome) in enumerate(zip(pendings, outcomes, strict=True)):
            if not isinstance(outcome, Exception) and options.lacks_copies(pending.log, outcome):
                waiting[place] = (pending.log, outcome)
        if waiting:
            wait_ms = 1000 * (ends_at - asyncio.get_running_loop().time())
            waited = await self._partitions.produce_waiters.wait(tuple(waiting.values()), options, wait_ms)
            for place, outcome in zip(waiting, waited, strict=True):
                outcomes[place] = outcome

    def count_produced(self, result: AppendResult, size_bytes: int) -> None:
        """Count what was appended; a duplicate was appended before."""
        if not result.duplicate:
            self.metrics.produced_records.inc(result.record_count)
            self.metrics.produced_bytes.inc(size_bytes)
