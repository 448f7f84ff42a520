"""What a consumer that reads committed records makes of a fetch and its list of aborted transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from rollway.records.batch import RecordBatch


def committed_batches(batches: Iterable[RecordBatch], aborted: Iterable[tuple[int, int]]) -> Iterator[RecordBatch]:
    """The batches without control batches and without those of aborted transactions.

    ``aborted`` are producer ids and first offsets of the transactions that the fetch named, in any order; ones that do
    not touch the batches do no harm. A transaction reaches from its first offset to its producer's next control batch.
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
