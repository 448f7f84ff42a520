"""Rows and bytes that the attempts of a job have written: rows from the logs themselves, bytes as they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from app.engine.appending import PendingAppend
from app.engine.engine import Engine
from app.event_loop.piecewise import pieces
from app.load_jobs.state import JobMode, Loaded, LoadJob
from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import UnknownTopicOrPartitionError
from log_model.names import PartitionName
from log_model.producers import SEQUENCE_COUNT

_ATTEMPTS_AT_A_TIME = 16


@dataclass(slots=True)
class Attempt:
    """One attempt of a task, with a producer id of its own; in an idempotent job, one task."""

    producer_id: int
    task: int
    attempt: int
    name: str = ""
    """The transactional id; empty for an idempotent producer."""
    sizes: dict[PartitionName, int] = field(default_factory=dict)
    """Appended bytes by partition."""
    rows: dict[PartitionName, int] = field(default_factory=dict)
    """Appended records by partition, only since this process started: ``rows_of`` reads the log for all of them."""

    def watch(self, pending: PendingAppend, batch: ValidBatch) -> None:
        """Count a batch of an append once the append is in its log."""
        facts = (pending.partition.name, batch.size_bytes, batch.header.record_count)
        pending.written.add_done_callback(functools.partial(self._count, *facts))

    def _count(
        self, partition: PartitionName, size_bytes: int, rows: int, written: asyncio.Future[AppendResult]
    ) -> None:
        if not written.cancelled() and written.exception() is None and not written.result().duplicate:
            self.sizes[partition] = self.sizes.get(partition, 0) + size_bytes
            self.rows[partition] = self.rows.get(partition, 0) + rows


async def rows_of(engine: Engine, attempt: Attempt, partition: PartitionName) -> int:
    """Return the number of records that this attempt has in this partition. Its sequences begin at 0.

    The engine knows the last sequence, and sequences wrap around. The number of rounds is taken from the records that
    this process has seen appended. So the count is right up to multiples of ``SEQUENCE_COUNT``, and exact unless the
    service was restarted behind that many records.
    """
    last = await engine.transactions.last_sequences(partition, (attempt.producer_id,))
    return sum(_rows(sequence, partition, attempt) for sequence in last.values())


def _rows(last_sequence: int, partition: PartitionName, attempt: Attempt) -> int:
    rows = last_sequence + 1
    # The nearest to the count that was seen, not the first above it: the log has fewer records if some were cut off.
    rounds = (attempt.rows.get(partition, 0) - rows + SEQUENCE_COUNT // 2) // SEQUENCE_COUNT
    return rows + max(0, rounds) * SEQUENCE_COUNT


def is_row_count(there: int, expected: int) -> bool:
    """Return whether ``there``, a result of ``rows_of`` or a sum of them, is the expected number of records.

    The counts are compared up to multiples of ``SEQUENCE_COUNT``, which cannot be told apart after a restart. So a loss
    of exactly 2,147,483,648 records, or a multiple of that, stays undetected. The log takes no batch out of order, so
    lost records are a tail, and a tail of exactly such a length does not occur.

    Example: 0 and 2,147,483,648 count as equal, 9 and 10 do not.
    """
    return (there - expected) % SEQUENCE_COUNT == 0


class Progress(NamedTuple):
    """The writes of some attempts: by partition, sorted; and the rows of each attempt by its producer id."""

    loaded: list[Loaded]
    rows: Mapping[int, int]


async def progress_of(engine: Engine, job: LoadJob, attempts: Iterable[Attempt]) -> Progress:
    """Return the rows and bytes that these attempts of a job have written by now.

    The engine knows the partitions of each transaction. Attempts of an idempotent job have no transaction: they may
    have written to any partition of the job's topics.

    Other tasks run meanwhile: each of twenty thousand attempts may have written to a thousand partitions.
    """
    known = {attempt.producer_id: attempt for attempt in attempts}
    writers: dict[PartitionName, dict[int, Attempt]] = {}
    if job.mode is JobMode.IDEMPOTENT:
        writers = dict.fromkeys(itertools.chain.from_iterable(_partitions(engine, each) for each in job.topics), known)
    else:
        partitions_of = await engine.transactions.attempts.partitions_of([each.name for each in known.values()])
        async for piece in pieces(known.values(), _ATTEMPTS_AT_A_TIME):
            for attempt in piece:
                for partition in partitions_of.get(attempt.name, ()):
                    writers.setdefault(partition, {})[attempt.producer_id] = attempt
    loaded: list[Loaded] = []
    rows_of_attempts: Counter[int] = Counter()
    async for some in pieces(sorted(writers)):
        for partition in some:
            of_partition = writers[partition]
            last = await engine.transactions.last_sequences(partition, of_partition.keys())
            rows = size_bytes = 0
            async for written in pieces(last.items()):
                for producer_id, sequence in written:
                    attempt = of_partition[producer_id]
                    own = _rows(sequence, partition, attempt)
                    rows += own
                    rows_of_attempts[producer_id] += own
                    size_bytes += attempt.sizes.get(partition, 0)
            if rows:
                loaded.append(Loaded(partition, rows, size_bytes))
    return Progress(loaded, rows_of_attempts)


def _partitions(engine: Engine, topic: str) -> Iterator[PartitionName]:
    with contextlib.suppress(UnknownTopicOrPartitionError):
        for number in range(engine.topic(topic).partition_count):
            yield PartitionName(topic, number)
