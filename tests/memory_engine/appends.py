"""The appends of the engine: each is in its log when ``submit`` returns, and nothing waits for more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from app.engine.appending import AppendOptions, Enlistment, Outcome, PendingAppend, ProducerState
from app.engine.partitions import Partition
from app.metrics.metrics import Metrics
from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import InvalidTxnStateError, ShuttingDownError, StorageError, UnknownTopicOrPartitionError
from log_model.names import refuse_internal
from log_model.offsets import Offset
from tests.memory_engine.checks import log_of
from tests.memory_engine.log import MemoryLog
from tests.memory_engine.topics import MemoryTopics
from tests.memory_engine.waits import Waits


class MemoryPendingAppend:
    """An append that was taken, and has its outcome already."""

    def __init__(self, log: MemoryLog, size_bytes: int, outcome: AppendResult | StorageError) -> None:
        self.throttle_ms = 0
        self.partition: Partition = log
        self.size_bytes = size_bytes
        self.outcome = outcome
        self.result = None if isinstance(outcome, StorageError) else outcome

    @property
    def written(self) -> asyncio.Future[AppendResult]:
        """A future that has the result or fails with the refusal."""
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        if isinstance(self.outcome, StorageError):
            future.set_exception(self.outcome)
            # Seen: the caller may only look whether it is done.
            future.exception()
        else:
            future.set_result(self.outcome)
        return future


class MemoryAppends:
    """All appends. Thread: the event loop."""

    def __init__(self, topics: MemoryTopics, waits: Waits, metrics: Metrics) -> None:
        self.is_closed = False
        self._topics = topics
        self._waits = waits
        self._metrics = metrics

    def submit(
        self,
        partition: Partition,
        batches: Sequence[ValidBatch],
        options: AppendOptions,
        enlistment: Enlistment | None = None,
    ) -> MemoryPendingAppend:
        """Append all batches or none; see ``Appends.submit``."""
        log = log_of(partition)
        refuse_internal(log.name.topic)
        if enlistment is None and any(batch.header.is_transactional for batch in batches):
            raise InvalidTxnStateError("the batch is transactional, but its producer has no transaction open")
        self._check_there(log)
        size_bytes = sum(batch.size_bytes for batch in batches)
        try:
            result = log.append(batches, options.expected_offset)
        except StorageError as error:
            return MemoryPendingAppend(log, size_bytes, error)
        if not result.duplicate:
            self._metrics.produced_records.inc(result.record_count)
            self._metrics.produced_bytes.inc(size_bytes)
        if options.acks != "0" and options.waits_for_fsync(log):
            log.make_durable()
        elif log.config.flush_policy == "group":
            asyncio.get_running_loop().call_soon(log.make_durable)
        self._waits.changed(log.name)
        return MemoryPendingAppend(log, size_bytes, result)

    def _check_there(self, log: MemoryLog) -> None:
        if self.is_closed:
            raise ShuttingDownError("the service is stopping")
        if log.is_deleted:
            raise UnknownTopicOrPartitionError(f"topic {log.name.topic!r} was deleted")

    async def outcome_of(self, pending: PendingAppend, options: AppendOptions) -> AppendResult:
        """Return the outcome; see ``Appends.outcome_of``."""
        return await pending.written

    async def outcomes_of(self, pendings: Sequence[PendingAppend], options: AppendOptions) -> list[Outcome]:
        """Return all outcomes; see ``Appends.outcomes_of``."""
        return [pending.outcome for pending in pendings if isinstance(pending, MemoryPendingAppend)]

    async def flush(self, partition: Partition, end: Offset) -> None:
        """Call the records durable; see ``Appends.flush``."""
        log_of(partition).make_durable()

    async def producer_states(self, topic: str, producer_id: int) -> dict[int, ProducerState]:
        """Return what each partition knows of a producer; see ``Appends.producer_states``."""
        found = {}
        for log in self._topics.get(topic).partitions:
            state = await self.producer_state(log, producer_id)
            if state is not None:
                found[log.name.partition] = state
        return found

    async def producer_state(
        self,
        partition: Partition,
        producer_id: int,
        *,
        behind_appends: bool = False,
    ) -> ProducerState | None:
        """Return what the partition knows of a producer; see ``Appends.producer_state``."""
        log = log_of(partition)
        self._check_there(log)
        found = log.producers.get(producer_id)
        return None if found is None else ProducerState(found.epoch, found.last_sequence, found.batches)
