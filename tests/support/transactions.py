"""Transactional producers for tests, and what a consumer of committed records makes of a fetch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.engine.appending import AppendOptions
from app.engine.reading import StoredBatches
from app.engine.transactions import ProducerIdentity
from app.engine_local.partitions.pending_append import PendingAppend
from app.produce.enlisting import submit_append
from app.service.parts import Parts
from log_model.batches.batch_validation import ValidBatch, validate_batches
from log_model.names import PartitionName
from log_model.reads import Isolation
from rollway.records import (
    ControlType,
    Record,
    columns_from_records,
    decode_batch,
    decode_control_record,
    encode_batch,
    split_batches,
)
from storage.log.partition_log import AppendResult, PartitionLog
from tests.support.stands import Stand

EVERYTHING = 1 << 30
NOBODY = ProducerIdentity(-1, -1)
TIMESTAMP = 1_700_000_000_000


def transactional_batch(producer: ProducerIdentity, sequence: int, *values: bytes) -> bytes:
    """One batch of a transaction, as a client sends it."""
    records = [Record(place, TIMESTAMP, None, value) for place, value in enumerate(values)]
    return encode_batch(
        columns_from_records(records),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )


def valid_transactional(
    log: PartitionLog, producer: ProducerIdentity, sequence: int, *values: bytes
) -> tuple[ValidBatch, ...]:
    """The same, validated for this log."""
    return tuple(validate_batches(bytearray(transactional_batch(producer, sequence, *values)), log.config, TIMESTAMP))


@dataclass
class TestProducer:
    """A client that keeps its sequences, goes on with the identity that an end is answered with, and raises what it is
    answered."""

    __test__ = False

    parts: Parts
    name: str
    timeout_ms: int = 60_000
    identity: ProducerIdentity = NOBODY
    sequences: dict[PartitionName, int] = field(default_factory=dict)
    sent: dict[PartitionName, tuple[ProducerIdentity, int, tuple[bytes, ...]]] = field(default_factory=dict)
    ended_as: ProducerIdentity = NOBODY
    """The identity that the last end was asked for with."""

    async def initialise(self, wait_ms: int = 30_000) -> None:
        """Become the one instance of this producer."""
        self.identity = await self.parts.engine.transactions.initialise(self.name, self.timeout_ms, wait_ms)
        self.sequences.clear()
        self.sent.clear()

    async def send(self, log: PartitionLog, *values: bytes) -> AppendResult:
        """Append in the transaction; the answer comes after the fsync."""
        sequence = self.sequences.get(log.name, 0)
        result = await self.send_at(log, sequence, *values)
        self.sequences[log.name] = sequence + len(values)
        self.sent[log.name] = (self.identity, sequence, values)
        return result

    async def send_again(self, log: PartitionLog) -> AppendResult:
        """The last append to this log once more, as after a lost answer."""
        identity, sequence, values = self.sent[log.name]
        return await self.send_at(log, sequence, *values, identity=identity)

    async def send_at(
        self, log: PartitionLog, sequence: int, *values: bytes, identity: ProducerIdentity | None = None
    ) -> AppendResult:
        """Append with this sequence, as this producer or another."""
        batches = valid_transactional(log, identity or self.identity, sequence, *values)
        options = AppendOptions()
        submitted = await submit_append(self.parts.producing, log, batches, options)
        return submitted if isinstance(submitted, AppendResult) else await self._outcome(submitted, options)

    async def _outcome(self, pending: PendingAppend, options: AppendOptions) -> AppendResult:
        return await self.parts.engine.appends.outcome_of(pending, options)

    async def end(self, *, commit: bool, wait_ms: int = 30_000) -> str:
        """Commit or abort, and go on with the identity of the answer; the state afterwards."""
        self.ended_as = self.identity
        ended = await self.parts.engine.transactions.end(self.name, self.identity, commit=commit, wait_ms=wait_ms)
        self.identity = ended.producer
        self.sequences.clear()
        return ended.state.name

    async def end_again(self, *, commit: bool, wait_ms: int = 30_000) -> tuple[str, ProducerIdentity]:
        """The last end once more, as after a lost answer, or the other one: the state and identity of the answer."""
        ended = await self.parts.engine.transactions.end(self.name, self.ended_as, commit=commit, wait_ms=wait_ms)
        return ended.state.name, ended.producer


def committed_values(snapshot: StoredBatches) -> list[bytes]:
    """What a consumer of committed records reads from the log's start to its last stable offset."""
    data = snapshot.read(snapshot.log_start_offset, EVERYTHING, isolation=Isolation.LAST_STABLE)
    aborted = deque(sorted(data.aborted or (), key=lambda transaction: transaction.first_offset))
    skipped: set[int] = set()
    values: list[bytes] = []
    for batch in split_batches(b"".join(piece.read() for piece in data.slices)):
        header = batch.header
        while aborted and aborted[0].first_offset <= header.last_offset:
            skipped.add(aborted.popleft().producer_id)
        if header.is_control:
            columns = decode_batch(batch)
            control = decode_control_record(columns.keys.to_list()[0], columns.values.to_list()[0])
            if control.control_type is ControlType.ABORT:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            values += [value or b"" for value in decode_batch(batch).values.to_list()]
    return values


def all_values(snapshot: StoredBatches) -> list[bytes]:
    """What a consumer of everything reads."""
    data = snapshot.read(snapshot.log_start_offset, EVERYTHING, isolation=Isolation.HIGH_WATERMARK)
    batches = split_batches(b"".join(piece.read() for piece in data.slices))
    return [
        value or b""
        for batch in batches
        if not batch.header.is_control
        for value in decode_batch(batch).values.to_list()
    ]


async def settled(parts: Parts) -> None:
    """Return when the coordinator has nothing more to do by itself."""
    while parts.engine.transactions.is_busy:  # noqa: ASYNC110 - what is waited for tells nobody
        await asyncio.sleep(0)


def visible(logs: Sequence[PartitionLog]) -> list[list[bytes]]:
    """The committed values of each log."""
    return [committed_values(log.snapshot) for log in logs]


async def producer_on(made: Stand, name: str = "t", **options: int) -> TestProducer:
    """A producer that is initialised."""
    producer = TestProducer(made.parts, name, **options)
    await producer.initialise()
    return producer
