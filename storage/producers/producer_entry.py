"""The entry of one producer in a partition, and the check of its next batch (spec E19, E22)."""

from __future__ import annotations

from typing import NamedTuple

from log_model.errors import CoordinatorFencedError, InvalidTxnStateError, OutOfOrderSequenceError, ProducerFencedError
from log_model.offsets import NO_TIMESTAMP, Offset
from log_model.producers import ProducerBatch, add_sequence
from log_model.transactions import TransactionMarker
from rollway.records import BatchHeader, ControlRecord
from storage.producers.producer_snapshot import ProducerRecord

BATCHES_KEPT = 5

_NO_SEQUENCE = -1
_NO_OFFSET = Offset(-1)


class ProducerEntry(NamedTuple):
    """The state of one producer. Immutable: every batch makes a new entry."""

    producer_id: int
    producer_epoch: int
    batches: tuple[ProducerBatch, ...] = ()
    """Up to five batches of this epoch, oldest first; one after a restart, none after a bare marker."""
    last_timestamp: int = NO_TIMESTAMP
    """The greatest timestamp of its last batch. It does not show how long the producer has been idle."""
    coordinator_epoch: int = -1
    current_txn_first_offset: Offset = _NO_OFFSET
    """First offset of its open transaction, -1 without one (spec E22)."""

    @property
    def is_in_transaction(self) -> bool:
        return self.current_txn_first_offset >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 if this epoch has none."""
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE

    def after(self, header: BatchHeader, control: ControlRecord | None = None) -> ProducerEntry:
        """Return the entry after the batch is in the log; ``control`` is its record if it ends a transaction."""
        batches = self.batches if header.producer_epoch == self.producer_epoch else ()
        coordinator_epoch, first_offset = self.coordinator_epoch, self.current_txn_first_offset
        if not header.is_control:
            batches = (*batches, ProducerBatch.of(header))[-BATCHES_KEPT:]
            if header.is_transactional and first_offset < 0:
                first_offset = Offset(header.base_offset)
        elif control is not None:
            coordinator_epoch, first_offset = control.coordinator_epoch, _NO_OFFSET
        return ProducerEntry(
            self.producer_id,
            header.producer_epoch,
            batches,
            header.max_timestamp,
            coordinator_epoch,
            first_offset,
        )

    def to_record(self) -> ProducerRecord:
        """Return the entry for a snapshot, with only its last batch."""
        last_sequence, last_offset, offset_delta, timestamp = _NO_SEQUENCE, _NO_OFFSET, 0, self.last_timestamp
        if self.batches:
            last = self.batches[-1]
            last_sequence, last_offset, timestamp = last.last_sequence, last.last_offset, last.timestamp
            offset_delta = last.last_offset - last.first_offset
        return ProducerRecord(
            self.producer_id,
            self.producer_epoch,
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
            self.coordinator_epoch,
            self.current_txn_first_offset,
        )

    @classmethod
    def from_record(cls, record: ProducerRecord) -> ProducerEntry:
        """Make an entry from a record of ``to_record``."""
        batches: tuple[ProducerBatch, ...] = ()
        if record.last_offset >= 0:
            first_sequence = add_sequence(record.last_sequence, -record.offset_delta)
            first_offset = Offset(record.last_offset - record.offset_delta)
            last_offset = Offset(record.last_offset)
            batches = (
                ProducerBatch(first_sequence, record.last_sequence, first_offset, last_offset, record.timestamp),
            )
        return cls(
            record.producer_id,
            record.producer_epoch,
            batches,
            record.timestamp,
            record.coordinator_epoch,
            Offset(record.current_txn_first_offset),
        )


def check_batch(entry: ProducerEntry | None, header: BatchHeader) -> ProducerBatch | None:
    """Check that a batch may follow its producer's earlier ones; see ``ProducerState.check``."""
    if entry is None or header.producer_id < 0 or header.is_control:
        return None
    who = f"producer {header.producer_id} with epoch {header.producer_epoch}"
    if header.producer_epoch < entry.producer_epoch:
        raise ProducerFencedError(f"{who} is fenced: epoch {entry.producer_epoch} has written since")
    repeated = _check_sequence(entry, header, who)
    if repeated is None and entry.is_in_transaction and not header.is_transactional:
        raise InvalidTxnStateError(
            f"{who} has had a transaction open since offset {entry.current_txn_first_offset}, "
            "and the batch does not belong to one"
        )
    return repeated


def _check_sequence(entry: ProducerEntry, header: BatchHeader, who: str) -> ProducerBatch | None:
    first = header.base_sequence
    if header.producer_epoch > entry.producer_epoch:
        if first != 0:
            raise OutOfOrderSequenceError(f"{who} is new and begins at sequence {first}, not 0")
        return None
    last = add_sequence(first, header.last_offset_delta)
    for batch in entry.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    expected = add_sequence(entry.last_sequence, 1)
    if first != expected:
        raise OutOfOrderSequenceError(f"{who} sent the sequences {first} to {last}, expected {expected}")
    return None


def check_marker(entry: ProducerEntry | None, marker: TransactionMarker) -> None:
    """Check that a marker may be written; see ``ProducerState.check_marker``."""
    if entry is None:
        return
    who = f"the marker of producer {marker.producer_id}"
    if marker.producer_epoch < entry.producer_epoch:
        raise ProducerFencedError(
            f"{who} has epoch {marker.producer_epoch}, but epoch {entry.producer_epoch} has written since"
        )
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise CoordinatorFencedError(
            f"{who} comes from coordinator epoch {marker.coordinator_epoch}, "
            f"but epoch {entry.coordinator_epoch} has written since"
        )
