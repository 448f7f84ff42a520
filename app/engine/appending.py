"""Appends: batches of records on their way into partitions, and the partitions' knowledge of their producers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from app.engine.partitions import Partition
from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import StorageError
from log_model.names import PartitionName
from log_model.offsets import Offset
from log_model.producers import ProducerBatch

Acks = Literal["0", "1", "all"]
Durability = Literal["written", "fsynced"]

Outcome = AppendResult | Exception
"""The outcome of an append: its result, or the error that ``Appends.outcome_of`` raises."""


@dataclass(frozen=True, slots=True)
class AppendOptions:
    """The acknowledgement that an append waits for, and the condition on which it is appended.

    ``acks`` is Kafka's: 0 waits for nothing, 1 for the partition, all for every replica. If ``durability`` is absent,
    ``acks`` and the topic's ``flush.policy`` decide. ``timeout_ms`` is for the whole wait. With ``expected_offset`` the
    batches are appended only if the log ends at that offset.
    """

    acks: Acks = "all"
    durability: Durability | None = None
    timeout_ms: int = 30_000
    expected_offset: int | None = None

    def waits_for_fsync(self, partition: Partition) -> bool:
        """Return whether the acknowledgement comes after an fsync (docs/explanation/durability.md)."""
        if self.durability is not None:
            return self.durability == "fsynced"
        return self.acks == "all" and partition.config.flush_policy == "group"


class PendingAppend(Protocol):
    """One append that the engine has taken. It goes on even if no caller waits for it.

    Attributes:
        throttle_ms: milliseconds that the client must wait before its next request. The caller sets it after
            ``submit``; the engine does not read it.

    Thread: the event loop.
    """

    throttle_ms: int

    @property
    def partition(self) -> Partition: ...

    @property
    def size_bytes(self) -> int:
        """Size of the batches."""

    @property
    def result(self) -> AppendResult | None:
        """The offsets, once the batches are in the log; ``None`` before, and if the append was refused.

        A result alone is no acknowledgement: fsync and replicas may still be missing.
        """

    @property
    def written(self) -> asyncio.Future[AppendResult]:
        """Completes once the batches are in the log. Fails with the refusal."""


class Enlistment(Protocol):
    """Permission to append to the partitions of one request, which belong to a transaction now.

    While it is held, the transaction cannot end. Hold it until all batches are submitted, and do not wait meanwhile.
    ``Transactions.enlist`` gives it.
    """

    @property
    def duplicates(self) -> Mapping[PartitionName, list[AppendResult]]:
        """Partitions whose batches are in the log from an earlier request, with one result for each batch.

        Do not submit them. The partition did not become part of the transaction.
        """

    @property
    def refused(self) -> Mapping[PartitionName, StorageError]:
        """Partitions that did not become part of the transaction, and why. Submit nothing to them."""

    def release(self) -> None:
        """Let the transaction end from now on. A second call changes nothing."""


class ProducerState(NamedTuple):
    """A partition's knowledge of one producer.

    Example: after one batch of ten records from sequence 0, ``last_sequence`` is 9. ``batches`` are the last batches
    of this epoch that the engine remembers, oldest first; there may be none.
    """

    producer_epoch: int
    last_sequence: int
    batches: Sequence[ProducerBatch]


class Appends(Protocol):
    """The only entry to the partitions. Thread: the event loop."""

    def submit(
        self,
        partition: Partition,
        batches: Sequence[ValidBatch],
        options: AppendOptions,
        enlistment: Enlistment | None = None,
    ) -> PendingAppend:
        """Take batches for one append: all of them or none, behind all batches that were submitted before.

        Nothing is awaited. ``outcome_of`` waits for the acknowledgement. Transactional batches need the ``enlistment``
        of their partition. The engine counts the records in the metrics once the append is done.

        Raises:
            Problem: overloaded.
            NotEnoughReplicasError: ``acks=all``, and too few replicas are in sync (spec A5).
            InvalidTxnStateError: a batch is transactional and there is no enlistment.
            StorageError: the partition is gone, the service is stopping, or the topic is internal.
        """

    async def outcome_of(self, pending: PendingAppend, options: AppendOptions) -> AppendResult:
        """Wait for the acknowledgement that the options name. The options are those of ``submit``.

        Raises:
            Problem: request_timed_out; the append goes on.
            StorageError: the append was refused.
        """

    async def outcomes_of(self, pendings: Sequence[PendingAppend], options: AppendOptions) -> list[Outcome]:
        """Wait for all these appends, together no longer than the timeout; one outcome each, in order.

        Raises:
            Problem: overloaded, too many requests wait for replicas; the appends go on.
        """

    async def flush(self, partition: Partition, end: Offset) -> None:
        """Return once all records before the offset ``end`` are durable.

        Raises:
            Problem: overloaded.
            StorageError: the records could not be made durable.
        """

    async def producer_states(self, topic: str, producer_id: int) -> Mapping[int, ProducerState]:
        """Return what the partitions of a topic know of a producer, by the numbers of those that know it.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            StorageError: a partition that rested cannot be opened.
        """

    async def producer_state(
        self, partition: Partition, producer_id: int, *, behind_appends: bool = False
    ) -> ProducerState | None:
        """Return the partition's knowledge of a producer; ``None`` if it has no records or forgot the producer.

        With ``behind_appends`` the state includes every append that was submitted before this call.

        Raises:
            Problem: overloaded.
            StorageError: the partition is gone or the service is stopping.
        """
