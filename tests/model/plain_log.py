"""The log as a plain list, to hold the engine against: what was appended, and every answer by looking at all of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from log_model.transactions import TransactionMarker
from rollway.records import Record, columns_from_records, encode_batch, stamp

NO_TIMESTAMP = -1


class PlainBatch(NamedTuple):
    """A batch as it lies in the log: stamped bytes, and the timestamps of its records."""

    base_offset: int
    timestamps: tuple[int, ...]
    stored: bytes
    marker: TransactionMarker | None = None

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.timestamps)

    @property
    def last_offset(self) -> int:
        return self.next_offset - 1


class ClientBatch(NamedTuple):
    """A batch as a producer sends it."""

    timestamps: tuple[int, ...]
    sent: bytes
    marker: TransactionMarker | None = None
    """What the batch says, if it is a marker; it is alone in its request then."""


def client_batch(timestamps: Sequence[int], value_bytes: int, mark: int = 0, **fields: int) -> ClientBatch:
    """A batch of one record per timestamp; ``mark`` makes its bytes unlike those of other batches, ``fields`` go to
    ``encode_batch``."""
    values = [(b"%d/%d " % (mark, place)).ljust(value_bytes, b".") for place in range(len(timestamps))]
    records = [
        Record(place, timestamp, b"%d" % mark, value)
        for place, (timestamp, value) in enumerate(zip(timestamps, values, strict=True))
    ]
    return ClientBatch(tuple(timestamps), encode_batch(columns_from_records(records), **fields))


class FoundRecord(NamedTuple):
    """What a lookup by time answers."""

    offset: int
    timestamp: int


class PlainLog:
    """Batches in a list. ``end_offset`` may lie above the last one's end, after a cut inside a batch."""

    def __init__(self) -> None:
        self.batches: list[PlainBatch] = []
        self.start_offset = 0
        self.end_offset = 0

    def copy(self) -> PlainLog:
        twin = PlainLog()
        twin.batches = list(self.batches)
        twin.start_offset = self.start_offset
        twin.end_offset = self.end_offset
        return twin

    def append(self, batch: ClientBatch, leader_epoch: int) -> PlainBatch:
        """Store ``batch`` behind the last, stamped as the engine must stamp it (spec E16)."""
        stored = bytearray(batch.sent)
        stamp(stored, 0, self.end_offset, leader_epoch)
        entry = PlainBatch(self.end_offset, batch.timestamps, bytes(stored), batch.marker)
        self.batches.append(entry)
        self.end_offset = entry.next_offset
        return entry

    def truncate_to(self, offset: int) -> None:
        """Whole batches go that end above ``offset``, and the next record gets it (spec E21)."""
        if offset < self.end_offset:
            self.batches = [batch for batch in self.batches if batch.last_offset < offset]
            self.end_offset = offset
            self.start_offset = min(self.start_offset, offset)

    def start_again_at(self, offset: int) -> None:
        """Nothing is left, and nothing is known of what was there (spec E20)."""
        self.batches = []
        self.start_offset = self.end_offset = offset

    def batches_from(self, offset: int, end: int | None = None) -> list[PlainBatch]:
        """The batches that hold records of ``[offset, end)``."""
        first = bisect_left(self.batches, offset, key=lambda batch: batch.last_offset)
        return [batch for batch in self.batches[first:] if end is None or batch.next_offset <= end]

    def read(self, offset: int, max_bytes: int, end: int, *, min_one: bool = True) -> bytes:
        """Whole batches from ``offset`` on, at most ``max_bytes``, the first always with ``min_one`` (spec D14)."""
        taken: list[bytes] = []
        size_bytes = 0
        for batch in self.batches_from(offset, end):
            if size_bytes + len(batch.stored) > max_bytes and not (min_one and not taken):
                break
            taken.append(batch.stored)
            size_bytes += len(batch.stored)
        return b"".join(taken)

    def offset_for_timestamp(self, timestamp: int, end: int) -> FoundRecord | None:
        """The first record at or after ``timestamp``, in offset order."""
        for batch in self.batches_from(self.start_offset, end):
            for place, own in enumerate(batch.timestamps):
                if own >= timestamp and batch.base_offset + place >= self.start_offset:
                    return FoundRecord(batch.base_offset + place, own)
        return None

    def max_timestamp(self, end: int) -> FoundRecord | None:
        """The first record with the largest timestamp."""
        best: FoundRecord | None = None
        for batch in self.batches_from(self.start_offset, end):
            for place, own in enumerate(batch.timestamps):
                offset = batch.base_offset + place
                if offset >= self.start_offset and own > (best.timestamp if best else NO_TIMESTAMP):
                    best = FoundRecord(offset, own)
        return best
