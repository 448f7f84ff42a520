"""What attempts of a job have written so far: rows from the logs themselves, bytes as they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from app.engine_local.partitions.pending_append import PendingAppend
from app.engine_local.transactions.logs import Logs
from app.event_loop.piecewise import pieces
from app.load_jobs.state import Loaded
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import UnknownTopicOrPartitionError
from log_model.names import PartitionName
from log_model.producers import SEQUENCE_COUNT
from storage.log.partition_log import AppendResult
from storage.producers.producer_entry import ProducerEntry

_ATTEMPTS_AT_A_TIME = 16


@dataclass(slots=True)
class Attempt:
    """One attempt of a task, with a producer id of its own; of an idempotent job, one task."""

    producer_id: int
    task: int
    attempt: int
    name: str = ""
    """Its transactional id; empty for an idempotent producer."""
    sizes: dict[PartitionName, int] = field(default_factory=dict)
    """Bytes that were appended, by partition."""
    rows: dict[PartitionName, int] = field(default_factory=dict)
    """Records that were appended, by partition: since this process started, so that ``rows_of`` asks the log."""

    def watch(self, pending: PendingAppend, batch: ValidBatch) -> None:
        """Count a batch of an append once that is in its log."""
        facts = (pending.log.name, batch.size_bytes, batch.header.record_count)
        pending.written.add_done_callback(functools.partial(self._count, *facts))

    def _count(
        self, partition: PartitionName, size_bytes: int, rows: int, written: asyncio.Future[AppendResult]
    ) -> None:
        if not written.cancelled() and written.exception() is None and not written.result().duplicate:
            self.sizes[partition] = self.sizes.get(partition, 0) + size_bytes
            self.rows[partition] = self.rows.get(partition, 0) + rows


def rows_of(logs: Logs, attempt: Attempt, partition: PartitionName) -> int:
    """Records that this attempt has in this partition: its sequences begin at 0.

    The log knows the last sequence, and those go round. How often they have is taken from what this process has seen
    appended: so the answer is right up to multiples of ``SEQUENCE_COUNT``, and right as long as the service was not
    restarted behind that many records.
    """
    return sum(
        _rows(entry, partition, known) for known, entry in _entries(logs, partition, {attempt.producer_id: attempt})
    )


def _rows(entry: ProducerEntry, partition: PartitionName, attempt: Attempt) -> int:
    rows = entry.last_sequence + 1
    # The nearest to what was seen, not the first above it: less is in the log when some of that was cut off.
    rounds = (attempt.rows.get(partition, 0) - rows + SEQUENCE_COUNT // 2) // SEQUENCE_COUNT
    return rows + max(0, rounds) * SEQUENCE_COUNT


def _entries(
    logs: Logs, partition: PartitionName, attempts: Mapping[int, Attempt]
) -> Iterator[tuple[Attempt, ProducerEntry]]:
    """Which of these attempts, by producer id, have written to a partition, and what the log knows of each."""
    try:
        producers = logs.partition(*partition).producers
    except UnknownTopicOrPartitionError:
        return
    if len(producers) < len(attempts):
        for producer_id, entry in producers.entries.items():
            if producer_id in attempts:
                yield attempts[producer_id], entry
        return
    for attempt in attempts.values():
        found = producers.find(attempt.producer_id)
        if found is not None:
            yield attempt, found


def is_row_count(there: int, expected: int) -> bool:
    """Whether ``rows_of``, or a sum of such, says that as many records are there as were expected.

    Up to multiples of ``SEQUENCE_COUNT``: nobody can tell them apart after a restart, so records that are missing are
    not missed if they are a multiple of 2,147,483,648. The log takes no batch out of order, so what is missing is a
    tail, and one of just such a length is nothing that happens.
    """
    return (there - expected) % SEQUENCE_COUNT == 0


class Progress(NamedTuple):
    """What some attempts have written: by partition, sorted, and the rows of each by its producer id."""

    loaded: list[Loaded]
    rows: Mapping[int, int]


async def progress_of(
    logs: Logs,
    attempts: Iterable[Attempt],
    partitions_of: Callable[[Attempt], Collection[PartitionName]] | None,
    topics: Iterable[str] = (),
) -> Progress:
    """What these attempts have written, as they are now: to what ``partitions_of`` says of each, or without it to all
    partitions of ``topics``.

    Others run meanwhile: of twenty thousand attempts each may have written to a thousand partitions.
    """
    known = {attempt.producer_id: attempt for attempt in attempts}
    writers: dict[PartitionName, dict[int, Attempt]] = {}
    if partitions_of is None:
        writers = dict.fromkeys(itertools.chain.from_iterable(_partitions(logs, topic) for topic in topics), known)
    else:
        async for piece in pieces(known.values(), _ATTEMPTS_AT_A_TIME):
            for attempt in piece:
                for partition in partitions_of(attempt):
                    writers.setdefault(partition, {})[attempt.producer_id] = attempt
    loaded: list[Loaded] = []
    rows_of_attempts: Counter[int] = Counter()
    async for some in pieces(sorted(writers)):
        for partition in some:
            rows = size_bytes = 0
            async for written in pieces(_entries(logs, partition, writers[partition])):
                for attempt, entry in written:
                    own = _rows(entry, partition, attempt)
                    rows += own
                    rows_of_attempts[attempt.producer_id] += own
                    size_bytes += attempt.sizes.get(partition, 0)
            if rows:
                loaded.append(Loaded(partition, rows, size_bytes))
    return Progress(loaded, rows_of_attempts)


def _partitions(logs: Logs, topic: str) -> Iterator[PartitionName]:
    with contextlib.suppress(UnknownTopicOrPartitionError):
        for number in itertools.count():
            yield logs.partition(topic, number).name
