"""Detection of repeated requests, even if only their last batch is remembered, as after a restart.

The batches of one request lie one behind the other in the log, and a producer's sequences have no gaps. The offset of
the last record and the sequences of the request therefore give the offset of its first record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from log_model.errors import OutOfOrderSequenceError
from log_model.offsets import Offset
from log_model.producers import KEYED_PRODUCER_ID_MIN, ProducerBatch, add_sequence
from rollway.records import BatchHeader
from storage.producers.producer_entry import ProducerEntry


class RequestSequences(NamedTuple):
    """The sequences of a request whose batches belong to one producer and follow each other; both ends inclusive."""

    producer_id: int
    producer_epoch: int
    first: int
    last: int

    @property
    def span(self) -> int:
        """Number of records after the first, up to the last: 10 to 12 is 2."""
        return add_sequence(self.last, -self.first)


def sequences_of(headers: Sequence[BatchHeader]) -> RequestSequences | None:
    """Return the sequences of the request with these batches; ``None`` unless they are one producer's without a gap."""
    first = headers[0]
    if first.producer_id < 0:
        return None
    expected = first.base_sequence
    for header in headers:
        if header[_PRODUCER] != first[_PRODUCER] or header.base_sequence != expected or header.is_control:
            return None
        expected = add_sequence(expected, header.last_offset_delta + 1)
    return RequestSequences(first.producer_id, first.producer_epoch, first.base_sequence, add_sequence(expected, -1))


_PRODUCER = slice(BatchHeader._fields.index("producer_id"), BatchHeader._fields.index("producer_epoch") + 1)


def find_repeated(
    entry: ProducerEntry | None,
    headers: Sequence[BatchHeader],
    header_at: Callable[[Offset], BatchHeader | None],
    first_offset: Offset,
) -> ProducerBatch | None:
    """Return the request in the log that this one repeats, as if it were one batch; ``None`` if none is known.

    The last of several batches must end where a remembered batch ends. That gives the offset of the first batch. There
    ``header_at`` must find a batch with its base sequence, unless the offset is below ``first_offset``, the first on
    the disk (case RT-10). A single batch is left to ``ProducerState.check``. A keyed producer's is compared here: its
    records may have been divided into other batches the first time.

    Raises:
        OutOfOrderSequenceError: a keyed producer has written another number of records, or in another epoch.
    """
    if entry is None or not entry.batches:
        return None
    asked = sequences_of(headers)
    if asked is None:
        return None
    if asked.producer_id >= KEYED_PRODUCER_ID_MIN:
        if (asked.producer_epoch, asked.last) != (entry.producer_epoch, entry.last_sequence):
            raise OutOfOrderSequenceError(
                f"producer {asked.producer_id} wrote {entry.last_sequence + 1} records once, now sends {asked.span + 1}"
            )
        return _whole(asked, entry.batches[-1])
    if asked.producer_epoch != entry.producer_epoch:
        return None
    ending = next((batch for batch in entry.batches if batch.last_sequence == asked.last), None)
    if ending is None or len(headers) == 1:
        return None
    found = _whole(asked, ending)
    if found.first_offset < first_offset:
        return found
    stored = header_at(found.first_offset)
    if stored is None or stored.base_offset != found.first_offset or stored.base_sequence != asked.first:
        return None
    return found if stored[_PRODUCER] == headers[0][_PRODUCER] else None


def _whole(asked: RequestSequences, ending: ProducerBatch) -> ProducerBatch:
    base_offset = Offset(ending.last_offset - asked.span)
    return ProducerBatch(asked.first, asked.last, base_offset, ending.last_offset, ending.timestamp)
