"""What a partition remembers of its producers, and whether their next batches may follow (spec E19, E22)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from log_model.errors import CoordinatorFencedError, InvalidTxnStateError, OutOfOrderSequenceError, ProducerFencedError
from log_model.offsets import Offset
from log_model.producers import KEYED_PRODUCER_ID_MIN, ProducerBatch, add_sequence
from log_model.transactions import TransactionMarker
from rollway.records import BatchHeader

_BATCHES_KEPT = 5


class Producer(NamedTuple):
    """One producer in one partition. ``open_since`` is the first offset of its open transaction."""

    producer_id: int
    epoch: int
    batches: tuple[ProducerBatch, ...] = ()
    coordinator_epoch: int = -1
    open_since: Offset | None = None

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record; -1 if this epoch has none."""
        return self.batches[-1].last_sequence if self.batches else -1

    def after(self, header: BatchHeader) -> Producer:
        """Return the producer after the batch with this stamped header."""
        batches = self.batches if header.producer_epoch == self.epoch else ()
        open_since = self.open_since
        if open_since is None and header.is_transactional:
            open_since = Offset(header.base_offset)
        return self._replace(
            epoch=header.producer_epoch,
            batches=(*batches, ProducerBatch.of(header))[-_BATCHES_KEPT:],
            open_since=open_since,
        )

    def ended(self, marker: TransactionMarker) -> Producer:
        """Return the producer after a marker of its transaction."""
        batches = self.batches if marker.producer_epoch == self.epoch else ()
        return Producer(self.producer_id, marker.producer_epoch, batches, marker.coordinator_epoch)


HeaderAt = Callable[[Offset], BatchHeader | None]
"""Returns the header of the stored batch with an offset."""


def check_request(
    known: Mapping[int, Producer], headers: Sequence[BatchHeader], header_at: HeaderAt
) -> list[ProducerBatch] | None:
    """Return where each batch of a repeated request is in the log; ``None`` if the request is to be appended.

    Raises:
        ProducerFencedError, OutOfOrderSequenceError, InvalidTxnStateError
    """
    entry = known.get(headers[0].producer_id)
    whole = None if entry is None else _repeated(entry, headers, header_at)
    if whole is not None:
        return [_part_of(whole, header) for header in headers]
    changed: dict[int, Producer] = {}
    found = []
    for header in headers:
        entry = changed.get(header.producer_id) or known.get(header.producer_id)
        original = check_batch(entry, header)
        if original is None and header.producer_id >= 0:
            changed[header.producer_id] = (entry or Producer(header.producer_id, header.producer_epoch)).after(header)
        found.append(original)
    stored = [original for original in found if original is not None]
    if stored and len(stored) < len(found):
        raise OutOfOrderSequenceError("some batches of the request are in the log already, others are not")
    return stored or None


def check_batch(entry: Producer | None, header: BatchHeader) -> ProducerBatch | None:
    """Return the batch of the log that this one repeats; ``None`` if it is to be appended. Raises as above."""
    if entry is None or header.producer_id < 0:
        return None
    who = f"producer {header.producer_id} with epoch {header.producer_epoch}"
    if header.producer_epoch < entry.epoch:
        raise ProducerFencedError(f"{who} is fenced: epoch {entry.epoch} has written since")
    first, last = header.base_sequence, add_sequence(header.base_sequence, header.last_offset_delta)
    if header.producer_epoch > entry.epoch:
        if first != 0:
            raise OutOfOrderSequenceError(f"{who} is new and begins at sequence {first}, not 0")
    else:
        for batch in entry.batches:
            if (batch.first_sequence, batch.last_sequence) == (first, last):
                return batch
        expected = add_sequence(entry.last_sequence, 1)
        if first != expected:
            raise OutOfOrderSequenceError(f"{who} sent the sequences {first} to {last}, expected {expected}")
    if entry.open_since is not None and not header.is_transactional:
        raise InvalidTxnStateError(
            f"{who} has had a transaction open since offset {entry.open_since}, and the batch does not belong to one"
        )
    return None


def check_marker(entry: Producer | None, marker: TransactionMarker) -> None:
    """Return if the marker may be appended.

    Raises:
        ProducerFencedError, CoordinatorFencedError
    """
    if entry is not None and marker.producer_epoch < entry.epoch:
        raise ProducerFencedError(f"epoch {entry.epoch} of producer {marker.producer_id} has written since")
    if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
        raise CoordinatorFencedError(f"coordinator epoch {entry.coordinator_epoch} has written since")


def _repeated(entry: Producer, headers: Sequence[BatchHeader], header_at: HeaderAt) -> ProducerBatch | None:
    """Return the request in the log that this one repeats, as one batch.

    A keyed producer writes one request, which may come in other batches when it comes again. Of another producer's
    request with many batches only the last ones are remembered: the offset of the first follows from the sequences.
    """
    first, record_count = headers[0], sum(header.last_offset_delta + 1 for header in headers)
    if not entry.batches:
        return None
    if entry.producer_id >= KEYED_PRODUCER_ID_MIN:
        if (first.producer_epoch, record_count) != (entry.epoch, entry.last_sequence + 1):
            raise OutOfOrderSequenceError(
                f"producer {entry.producer_id} wrote {entry.last_sequence + 1} records once, now sends {record_count}"
            )
        return _whole(first, entry.batches[-1], record_count)
    last = add_sequence(first.base_sequence, record_count - 1)
    ending = next((batch for batch in entry.batches if batch.last_sequence == last), None)
    if ending is None or len(headers) == 1 or first.producer_epoch != entry.epoch:
        return None
    whole = _whole(first, ending, record_count)
    stored = header_at(whole.first_offset)
    is_there = stored is not None and (stored.base_offset, stored.producer_id, stored.base_sequence) == (
        whole.first_offset,
        first.producer_id,
        first.base_sequence,
    )
    return whole if is_there else None


def _whole(first: BatchHeader, last: ProducerBatch, record_count: int) -> ProducerBatch:
    return last._replace(first_sequence=first.base_sequence, first_offset=Offset(last.last_offset - record_count + 1))


def _part_of(whole: ProducerBatch, header: BatchHeader) -> ProducerBatch:
    first = Offset(whole.first_offset + add_sequence(header.base_sequence, -whole.first_sequence))
    return whole._replace(first_offset=first, last_offset=Offset(first + header.last_offset_delta))
