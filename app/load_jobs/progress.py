"""What attempts of a job have written so far: rows from the logs themselves, bytes as they arrive."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

from app.load_jobs.state import Loaded
from app.pending_append import PendingAppend
from app.transactions.logs import Logs
from storage.errors import UnknownTopicOrPartitionError
from storage.file_names import PartitionName
from storage.partition_log import AppendResult


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

    def watch(self, pending: PendingAppend, size_bytes: int) -> None:
        """Count bytes of an append once it is in its log."""
        pending.written.add_done_callback(functools.partial(self._count, pending.log.name, size_bytes))

    def _count(self, partition: PartitionName, size_bytes: int, written: asyncio.Future[AppendResult]) -> None:
        if not written.cancelled() and written.exception() is None and not written.result().duplicate:
            self.sizes[partition] = self.sizes.get(partition, 0) + size_bytes


def rows_of(logs: Logs, producer_id: int, partition: PartitionName) -> int:
    """Records that this producer has in this partition: its sequences begin at 0."""
    try:
        entry = logs.partition(*partition).producers.find(producer_id)
    except UnknownTopicOrPartitionError:
        return 0
    return 0 if entry is None else entry.last_sequence + 1


def loaded_by(logs: Logs, attempts: Iterable[tuple[Attempt, Iterable[PartitionName]]]) -> list[Loaded]:
    """What these attempts have written to these partitions, by partition, sorted."""
    rows: dict[PartitionName, int] = {}
    sizes: dict[PartitionName, int] = {}
    for attempt, partitions in attempts:
        for partition in partitions:
            rows[partition] = rows.get(partition, 0) + rows_of(logs, attempt.producer_id, partition)
            sizes[partition] = sizes.get(partition, 0) + attempt.sizes.get(partition, 0)
    return [Loaded(partition, rows[partition], sizes[partition]) for partition in sorted(rows) if rows[partition]]
