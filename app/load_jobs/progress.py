"""What attempts of a job have written so far: rows from the logs themselves, bytes as they arrive."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

from app.load_jobs.state import Loaded
from app.pending_append import PendingAppend
from app.transactions.logs import Logs
from storage.batch_validation import ValidBatch
from storage.errors import UnknownTopicOrPartitionError
from storage.file_names import PartitionName
from storage.partition_log import AppendResult
from storage.producer_entry import SEQUENCE_COUNT


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
    try:
        entry = logs.partition(*partition).producers.find(attempt.producer_id)
    except UnknownTopicOrPartitionError:
        return 0
    if entry is None:
        return 0
    rows = entry.last_sequence + 1
    # The nearest to what was seen, not the first above it: less is in the log when some of that was cut off.
    rounds = (attempt.rows.get(partition, 0) - rows + SEQUENCE_COUNT // 2) // SEQUENCE_COUNT
    return rows + max(0, rounds) * SEQUENCE_COUNT


def is_row_count(there: int, expected: int) -> bool:
    """Whether ``rows_of``, or a sum of such, says that as many records are there as were expected.

    Up to multiples of ``SEQUENCE_COUNT``: nobody can tell them apart after a restart, so records that are missing are
    not missed if they are a multiple of 2,147,483,648. The log takes no batch out of order, so what is missing is a
    tail, and one of just such a length is nothing that happens.
    """
    return (there - expected) % SEQUENCE_COUNT == 0


def loaded_by(logs: Logs, attempts: Iterable[tuple[Attempt, Iterable[PartitionName]]]) -> list[Loaded]:
    """What these attempts have written to these partitions, by partition, sorted."""
    rows: dict[PartitionName, int] = {}
    sizes: dict[PartitionName, int] = {}
    for attempt, partitions in attempts:
        for partition in partitions:
            rows[partition] = rows.get(partition, 0) + rows_of(logs, attempt, partition)
            sizes[partition] = sizes.get(partition, 0) + attempt.sizes.get(partition, 0)
    return [Loaded(partition, rows[partition], sizes[partition]) for partition in sorted(rows) if rows[partition]]
