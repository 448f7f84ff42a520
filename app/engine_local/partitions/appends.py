"""The only entry to the logs: a request with batches becomes a pending append, which ends in an outcome.

Thread: the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from app.engine import appending
from app.engine.appending import AppendOptions, Appends, Enlistment, Outcome, ProducerState
from app.engine.partitions import Partition
from app.engine_local.logs import log_behind
from app.engine_local.partitions.directory import Partitions
from app.engine_local.partitions.pending_append import PendingAppend
from app.engine_local.partitions.produce_waiters import lacks_copies, timed_out
from app.metrics.metrics import Metrics
from log_model.batches.append_request import AppendRequest, AppendResult
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import InvalidTxnStateError, StorageError
from log_model.names import refuse_internal
from log_model.offsets import Offset
from storage.log.partition_log import PartitionLog


class LocalAppends:
    """Appends to the partitions of one data directory; ``app.engine.appending`` says what each call promises."""

    def __init__(self, partitions: Partitions, metrics: Metrics) -> None:
        self._partitions = partitions
        self.metrics = metrics

    def submit(
        self,
        partition: Partition,
        batches: Sequence[ValidBatch],
        options: AppendOptions,
        enlistment: Enlistment | None = None,
    ) -> PendingAppend:
        """Put the batches into the mailbox of their partition."""
        refuse_internal(partition.name.topic)
        if enlistment is None:
            for batch in batches:
                if batch.header.is_transactional:
                    raise InvalidTxnStateError("the batch is transactional, but its producer has no transaction open")
        writer = self._partitions.writer_of(partition)
        if options.acks == "all":
            writer.log.replicas.check_before_append()
        expected = options.expected_offset
        request = AppendRequest(tuple(batches), None if expected is None else Offset(expected))
        wants_fsync = options.acks != "0" and options.waits_for_fsync(partition)
        pending = writer.append(request, size_bytes=request.size_bytes, wants_fsync=wants_fsync)
        if pending.result is None or wants_fsync:
            pending.call_when_done(self._note_unacknowledged if options.acks == "0" else self._note_done)
        else:
            self.count_produced(pending.result, pending.size_bytes)
        return pending

    async def outcome_of(self, pending: appending.PendingAppend, options: AppendOptions) -> AppendResult:
        """Wait for the acknowledgement that the options name: for the file, for the fsync, or for all copies."""
        assert isinstance(pending, PendingAppend)
        ends_at = asyncio.get_running_loop().time() + options.timeout_ms / 1000
        try:
            async with asyncio.timeout_at(ends_at):
                result = await (pending.fsynced if pending.wants_fsync else pending.written)
        except TimeoutError:
            raise timed_out(options, pending.result) from None
        if lacks_copies(options, pending.partition, result):
            outcomes: list[Outcome] = [result]
            await self._wait_for_copies((pending,), outcomes, options, ends_at)
            if isinstance(outcomes[0], Exception):
                raise outcomes[0]
        return result

    async def outcomes_of(self, pendings: Sequence[appending.PendingAppend], options: AppendOptions) -> list[Outcome]:
        """Wait for all these appends as ``outcome_of`` does."""
        ends_at = asyncio.get_running_loop().time() + options.timeout_ms / 1000
        local = [pending for pending in pendings if isinstance(pending, PendingAppend)]
        assert len(local) == len(pendings)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ends_at):
                for pending in local:
                    # The waits come one after the other, while the appends go on together.
                    with contextlib.suppress(StorageError):
                        await (pending.fsynced if pending.wants_fsync else pending.written)
        outcomes = [_answered(pending, options) for pending in local]
        await self._wait_for_copies(local, outcomes, options, ends_at)
        return outcomes

    async def _wait_for_copies(
        self,
        pendings: Sequence[PendingAppend],
        outcomes: list[Outcome],
        options: AppendOptions,
        ends_at: float,
    ) -> None:
        """Replace the outcomes of appends that other copies do not have yet (spec A5, A6)."""
        waiting: dict[int, tuple[PartitionLog, AppendResult]] = {}
        for place, (pending, outcome) in enumerate(zip(pendings, outcomes, strict=True)):
            if not isinstance(outcome, Exception) and lacks_copies(options, pending.partition, outcome):
                waiting[place] = (pending.partition, outcome)
        if waiting:
            wait_ms = 1000 * (ends_at - asyncio.get_running_loop().time())
            waited = await self._partitions.produce_waiters.wait(tuple(waiting.values()), options, wait_ms)
            for place, outcome in zip(waiting, waited, strict=True):
                outcomes[place] = outcome

    async def flush(self, partition: Partition, end: Offset) -> None:
        """Flush as a job of the writer, unless an earlier flush covers the records."""
        writer = self._partitions.writer_of(partition)
        if writer.log.durable_end_offset < end:
            await writer.run(writer.log.flush)

    async def producer_states(self, topic: str, producer_id: int) -> dict[int, ProducerState]:
        """Look the producer up in each log; see ``Appends.producer_states``."""
        found = {}
        for number in range(self._partitions.topic(topic).partition_count):
            log = await self._partitions.with_producers(topic, number)
            state = None if log is None else await self.producer_state(log, producer_id)
            if state is not None:
                found[number] = state
        return found

    async def producer_state(
        self, partition: Partition, producer_id: int, *, behind_appends: bool = False
    ) -> ProducerState | None:
        """Look the producer up in the log; with ``behind_appends`` as a job of the writer."""
        log = log_behind(partition)
        if behind_appends:
            entry = await self._partitions.writer_of(log).run(lambda: log.producers.find(producer_id))
        else:
            entry = log.producers.find(producer_id)
        return None if entry is None else ProducerState(entry.producer_epoch, entry.last_sequence, entry.batches)

    # Counting

    def count_produced(self, result: AppendResult, size_bytes: int) -> None:
        """Count an append that is done. A duplicate was counted before."""
        if not result.duplicate:
            self.metrics.produced_records.inc(result.record_count)
            self.metrics.produced_bytes.inc(size_bytes)

    def _note_done(self, pending: PendingAppend) -> None:
        if pending.error is None:
            self.count_produced(pending.outcome(), pending.size_bytes)

    def _note_unacknowledged(self, pending: PendingAppend) -> None:
        """Count as ``_note_done``, for an append whose failure no response reports."""
        self._note_done(pending)
        if pending.error is not None:
            self.metrics.dropped_appends.inc()


def _answered(pending: PendingAppend, options: AppendOptions) -> Outcome:
    """Return the outcome that the writer has given by now."""
    future = pending.fsynced if pending.wants_fsync else pending.written
    if not future.done() or future.cancelled():
        return timed_out(options, pending.result)
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, StorageError):
        return error
    raise error


_: type[Appends] = LocalAppends
"""Held by the type checker: these are the engine's appends."""
