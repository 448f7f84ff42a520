"""Committed records: the batches of a fetch without those of aborted transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from rollway.records.batch import RecordBatch


def committed_batches(batches: Iterable[RecordBatch], aborted: Iterable[tuple[int, int]]) -> Iterator[RecordBatch]:
    """Yield the batches without control batches and without the batches of aborted transactions.

    ``aborted`` has the producer id and the first offset of each aborted transaction that the fetch names, in any order.
    Transactions that do not touch the batches may be among them. A transaction reaches from its first offset to its
    producer's next control batch.
    """
    waiting = deque(sorted(aborted, key=lambda transaction: transaction[1]))
    aborting: set[int] = set()
    for batch in batches:
        header = batch.header
        while waiting and waiting[0][1] <= header.last_offset:
            aborting.add(waiting.popleft()[0])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield batch
