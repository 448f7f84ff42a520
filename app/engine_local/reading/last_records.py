"""The start of the last records of a log. Synchronous: it reads the headers of their batches from the disk.

Not every offset has a record. Transaction markers have offsets, readers of committed records do not see records of
aborted transactions, and copies of compacted logs have gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from log_model.errors import CorruptionError
from log_model.offsets import Offset
from log_model.reads import Isolation
from log_model.transactions import AbortedTransaction
from rollway.records import BatchHeader, RecordBatch, RecordFormatError, decode_batch
from storage.log.log_snapshot import LogSnapshot

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
_FIRST_WINDOW = 256


def start_of_last(snapshot: LogSnapshot, count: int, isolation: Isolation) -> Offset:
    """Return the offset at which the last ``count`` visible records begin; the log start if there are fewer records.

    Example: five records, a marker, and ``count`` 2: offset 3. The call reads about as many headers as there are
    batches behind the result. If damaged batches make a count of records impossible, it counts offsets instead.
    """
    bound = snapshot.bound(isolation).offset
    if bound - snapshot.log_start_offset <= count:
        return snapshot.log_start_offset
    try:
        return _count_back(snapshot, count, isolation, bound)
    except CorruptionError:
        return max(snapshot.log_start_offset, Offset(bound - count))


def _count_back(snapshot: LogSnapshot, count: int, isolation: Isolation, bound: Offset) -> Offset:
    end, window, missing = bound, max(count, _FIRST_WINDOW), count
    if not missing:
        return bound
    while end > snapshot.log_start_offset:
        start = max(snapshot.log_start_offset, Offset(end - window))
        headers = list(_visible(snapshot, start, end, isolation))
        for header in reversed(headers):
            if header.record_count >= missing:
                return max(snapshot.log_start_offset, _offset_of(snapshot, header, missing, isolation))
            missing -= header.record_count
        # A batch that begins before the window was counted whole.
        end = min(start, Offset(headers[0].base_offset)) if headers else start
        window *= 2
    return snapshot.log_start_offset


def _visible(snapshot: LogSnapshot, start: Offset, end: Offset, isolation: Isolation) -> Iterator[BatchHeader]:
    """Yield the headers of the batches with a record in ``[start, end)`` that the reader's isolation shows."""
    is_committed = isolation is Isolation.LAST_STABLE
    waiting = deque(sorted(snapshot.aborted_between(start, end), key=_first_offset) if is_committed else ())
    aborting: set[int] = set()
    for header in snapshot.headers_from(start, isolation):
        if header.base_offset >= end:
            return
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborting.add(waiting.popleft().producer_id)
        if header.is_control:
            aborting.discard(header.producer_id)
        elif header.record_count > 0 and not (header.is_transactional and header.producer_id in aborting):
            yield header


def _first_offset(transaction: AbortedTransaction) -> Offset:
    return transaction.first_offset


def _offset_of(snapshot: LogSnapshot, header: BatchHeader, place: int, isolation: Isolation) -> Offset:
    """Return the offset of the record at this place from the end of its batch; 1 is the last record."""
    if header.record_count == header.last_offset_delta + 1:
        return Offset(header.last_offset - place + 1)
    data = snapshot.read(Offset(header.base_offset), 0, isolation=isolation)
    try:
        batch = RecordBatch(data.slices[0].read())
        offsets = decode_batch(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX).offsets
        return Offset(int(offsets[-place]))
    except (RecordFormatError, IndexError) as error:
        raise CorruptionError(f"the stored batch of offset {header.base_offset} is damaged: {error}") from error
