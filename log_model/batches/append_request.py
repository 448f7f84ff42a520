"""The request to append to a log, and its result."""

from __future__ import annotations

from typing import NamedTuple, Self

from log_model.batches.batch_validation import ValidBatch
from log_model.offsets import Offset
from log_model.transactions import TransactionMarker
from rollway.records import RecordBatch, encode_control_batch

MARKER_BYTES = 78
"""Size of the batch that a marker becomes."""


class AppendRequest:
    """The batches of one request, appended one behind the other, all or none. Immutable.

    With ``expected_offset`` they are appended only if that is the log end offset when the request is carried out. A
    request with a ``transaction_marker`` has no batches; its control batch is made when it is carried out.
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
        """Return the request to end a producer's open transaction, if any, with a 78-byte control batch (spec E22)."""
        return cls((), transaction_marker=marker)


class AppendResult(NamedTuple):
    """The offsets of an appended request. ``last_offset`` is inclusive: 3 records at 50 end with 52. A request without
    records has base offset -1 (spec A12). ``log_append_time`` is -1 unless the topic stamps records itself."""

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
    """Make the control batch of a marker; the log stamps it."""
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
