"""Transactions of one partition: open ones, ended ones, and the offsets they hide from readers (spec E22)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from log_model.errors import CorruptionError
from log_model.offsets import LogOffsetMetadata, Offset
from rollway.records import (
    BrokenRecordError,
    ControlRecord,
    ControlType,
    RecordBatch,
    RecordFormatError,
    decode_batch,
    decode_control_record,
)

_CONTROL_KEY = struct.Struct(">hh")


class TransactionMarker(NamedTuple):
    """The message of the coordinator to each partition of a transaction that ends."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool

    @property
    def control_type(self) -> ControlType:
        return ControlType.COMMIT if self.commit else ControlType.ABORT


class AbortedTransaction(NamedTuple):
    """One aborted transaction. Both offsets are of records: ``last_offset`` is its marker's, inclusive."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset
    """The partition's last stable offset after the marker (spec E22)."""


class OpenTransaction(NamedTuple):
    """A transaction without a marker. ``first`` is the position of its first batch."""

    producer_id: int
    first: LogOffsetMetadata


class CompletedTransaction(NamedTuple):
    """A transaction that its marker, at ``marker_offset``, has ended.

    ``next_first_offset``: the start of the first transaction that is still open, or else the offset after the marker.
    """

    producer_id: int
    first: LogOffsetMetadata
    marker_offset: Offset
    is_aborted: bool
    next_first_offset: Offset

    def to_aborted(self) -> AbortedTransaction:
        """Return its entry for the transaction index (case TX-3)."""
        return AbortedTransaction(self.producer_id, self.first.offset, self.marker_offset, self.next_first_offset)


class UnstableTransactions(NamedTuple):
    """The transactions that may keep the last stable offset below the high watermark. Immutable: share freely.

    ``completed``: those whose markers were not below the high watermark at that time, by rising marker.
    """

    first_open: LogOffsetMetadata | None = None
    completed: tuple[CompletedTransaction, ...] = ()

    def first_unstable(self, high_watermark: Offset) -> LogOffsetMetadata | None:
        """Return the start of the earliest transaction that is open or has no marker below ``high_watermark``."""
        first = self.first_open
        for transaction in self.completed:
            if transaction.marker_offset >= high_watermark and (
                first is None or transaction.first.offset < first.offset
            ):
                first = transaction.first
        return first

    def above(self, high_watermark: Offset) -> tuple[CompletedTransaction, ...]:
        """Return the completed transactions whose markers are not below ``high_watermark``."""
        if not self.completed or self.completed[0].marker_offset >= high_watermark:
            return self.completed
        return tuple(entry for entry in self.completed if entry.marker_offset >= high_watermark)


NOTHING_UNSTABLE = UnstableTransactions()


def marker_of(batch: RecordBatch) -> ControlRecord | None:
    """Return the record of a control batch; ``None`` if it ends no transaction, as other kinds of control records.

    Raises:
        CorruptionError: its record is not readable.
    """
    try:
        columns = decode_batch(batch)
        keys, values = columns.keys.to_list(), columns.values.to_list()
        if not keys or _type_number(keys[0]) not in set(ControlType):
            return None
        return decode_control_record(keys[0], values[0])
    except RecordFormatError as error:
        raise CorruptionError(f"the control batch at offset {batch.header.base_offset}: {error}") from error


def _type_number(key: bytes | None) -> int:
    if key is None or len(key) < _CONTROL_KEY.size:
        raise BrokenRecordError("a control record needs a key of 4 bytes")
    number: int = _CONTROL_KEY.unpack_from(key)[1]
    return number
