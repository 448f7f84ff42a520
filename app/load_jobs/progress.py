"""What attempts of a job have written so far: rows from the logs themselves, bytes as they arrive."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.load_jobs.state import Loaded
from app.pending_append import PendingAppend
from app.transactions.logs import Logs
from storage.batch_validation import ValidBatch
from storage.errors import UnknownTopicOrPartitionError
from storage.file_names import PartitionName
from storage.partition_log import AppendResult
from storage.producer_entry import SEQUENCE_COUNT, ProducerEntry

LOOKS_PER_TURN = 2_000
"""Looks for an attempt in a partition in one turn of the loop: some 2 ms."""


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
    """Records that were appended, by partition: since this process started, so that ``written_by`` asks the log."""

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


def _rows_in(entry: ProducerEntry, attempt: Attempt, partition: PartitionName) -> int:
    """Records that an attempt has in a partition which knows this of it: its sequences begin at 0.

    The log knows the last sequence, and those go round. How often they have is taken from what this process has seen
    appended: so the answer is right up to multiples of ``SEQUENCE_COUNT``, and right as long as the service was not
    restarted behind that many records.
    """
    rows = entry.last_sequence + 1
    # The nearest to what was seen, not the first above it: less is in the log when some of that was cut off.
    rounds = (attempt.rows.get(partition, 0) - rows + SEQUENCE_COUNT // 2) // SEQUENCE_COUNT
    return rows + max(0, rounds) * SEQUENCE_COUNT


def is_row_count(there: int, expected: int) -> bool:
    """Whether ``Written.rows`` says that as many records are there as were expected.

    Up to multiples of ``SEQUENCE_COUNT``: nobody can tell them apart after a restart, so records that are missing are
    not missed if they are a multiple of 2,147,483,648. The log takes no batch out of order, so what is missing is a
    tail, and one of just such a length is nothing that happens.
    """
    return (there - expected) % SEQUENCE_COUNT == 0


Writers = tuple[Sequence[Attempt], Sequence[PartitionName]]
"""Attempts, and where any of them may have written."""


class Written(NamedTuple):
    """What attempts have written: rows by producer id, and by partition, sorted."""

    rows: Mapping[int, int]
    loaded: Sequence[Loaded]


async def written_by(logs: Logs, writers: Iterable[Writers]) -> Written:
    """What these attempts have written.

    Nothing is looked up of attempts that a partition does not know, and others get a turn of the loop between many: 400
    attempts that may have written to 1,500 partitions each took a second.
    """
    rows: Counter[int] = Counter()
    found: dict[PartitionName, tuple[int, int]] = {}
    look_count = 0
    for attempts, partitions in writers:
        by_id = {attempt.producer_id: attempt for attempt in attempts}
        for partition in partitions:
            try:
                producers = logs.partition(*partition).producers
            except UnknownTopicOrPartitionError:
                continue
            known = by_id.keys() if len(by_id) <= len(producers) else by_id.keys() & producers.entries.keys()
            for attempt in [None, *map(by_id.__getitem__, known)]:
                look_count += 1
                if look_count % LOOKS_PER_TURN == 0:
                    await asyncio.sleep(0)
                entry = None if attempt is None else producers.find(attempt.producer_id)
                if attempt is None or entry is None:
                    continue
                count = _rows_in(entry, attempt, partition)
                rows[attempt.producer_id] += count
                rows_before, bytes_before = found.get(partition, (0, 0))
                found[partition] = (rows_before + count, bytes_before + attempt.sizes.get(partition, 0))
    return Written(rows, [Loaded(partition, *found[partition]) for partition in sorted(found) if found[partition][0]])
