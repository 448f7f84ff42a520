"""What a log is asked to append, and what it answers."""

from __future__ import annotations

from typing import NamedTuple, Self

from rollway.records import RecordBatch, encode_control_batch
from storage.batches.batch_validation import ValidBatch
from storage.offsets import Offset
from storage.transactions import TransactionMarker

MARKER_BYTES = 78
"""The size of a marker's batch."""


class AppendRequest:
    """The batches of one request: appended one behind the other, all or none. Not to be changed.

    With ``expected_offset`` only if that is the log end offset when their turn comes. A ``transaction_marker`` comes
    without batches: its own is made when its turn has come.
    """

    __slots__ = ("batch_count", "batches", "expected_offset", "record_count", "size_bytes", "transaction_marker")

    def __init__(
        self,
        batches: tuple[ValidBatch, ...],
        expected_offset: Offset | None = None,
        transaction_marker: TransactionMarker | None = None,
    ) -> None:
        self.batches = batches
        self.expected_offset = expected_offset
        self.transaction_marker = transaction_marker
        if transaction_marker is not None:
            self.size_bytes, self.record_count, self.batch_count = MARKER_BYTES, 1, 1
            return
        self.batch_count = len(batches)
        if self.batch_count == 1:
            self.size_bytes, self.record_count = batches[0].size_bytes, batches[0].header.record_count
        else:
            self.size_bytes = sum(batch.size_bytes for batch in batches)
            self.record_count = sum(batch.header.record_count for batch in batches)

    @classmethod
    def marker(cls, marker: TransactionMarker) -> Self:
        """The request to end a producer's transaction, if one is open, with a control batch of 78 bytes (spec E22)."""
        return cls((), transaction_marker=marker)


class AppendResult(NamedTuple):
    """Where the records of a request are. ``last_offset`` is the last record's own; a request without records has
    base offset -1 (spec A12). ``log_append_time`` is -1 unless the topic stamps records itself."""

    base_offset: Offset
    last_offset: Offset
    record_count: int
    log_append_time: int
    log_start_offset: Offset
    duplicate: bool = False

    @property
    def end_offset(self) -> Offset:
        return Offset(self.last_offset + 1)


def marker_batch(marker: TransactionMarker, now_ms: int) -> ValidBatch:
    """The control batch of a marker, to be stamped."""
    content = encode_control_batch(
        marker.control_type,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now_ms,
    )
    batch = RecordBatch(content)
    return ValidBatch(
        bytearray(batch.buffer[: batch.header.size_bytes - len(batch.body)]), batch.body, batch.header, now_ms
    )
