"""The outcomes of a fetch of many partitions, one for each partition of the request."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.engine.partitions import Limits
from app.engine.reading import Diverging, PartitionOutcome, PartitionRead
from app.fetch.multi_fetch_body import FetchPartition
from app.record_json.record_texts import RecordText
from log_model.reads import FetchData


@dataclass(slots=True)
class PartitionAnswer:
    """The answer for one partition: an error, or records and the limits from before they were read.

    ``read`` is set once the partition is found. ``data`` has its batches, and ``records`` the part of them that JSON
    shows, once it is decoded.
    """

    asked: FetchPartition
    read: PartitionRead | None = None
    error: Exception | None = None
    limits: Limits | None = None
    data: FetchData | None = None
    diverging: Diverging | None = None
    records: list[RecordText] = field(default_factory=list)
    next_offset: int = -1

    @property
    def topic(self) -> str | None:
        return self.asked.topic if self.read is None else self.read.partition.name.topic

    @property
    def topic_id(self) -> str | None:
        return None if self.read is None else self.read.partition.topic_id

    @property
    def size_bytes(self) -> int:
        """Bytes of the batches that were read."""
        return 0 if self.data is None else self.data.size_bytes

    @property
    def brings_records(self) -> bool:
        """Whether this answer moves the client forward to later offsets."""
        return self.next_offset > self.asked.fetch_offset

    @property
    def high_watermark(self) -> int:
        return -1 if self.limits is None else self.limits.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return -1 if self.limits is None else self.limits.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        return -1 if self.limits is None else self.limits.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return -1 if self.limits is None else self.limits.log_end_offset

    def take(self, outcome: PartitionOutcome) -> None:
        """Answer with ``outcome``."""
        if outcome.error is not None:
            self.fail(outcome.error)
            return
        self.limits, self.data, self.diverging = outcome.limits, outcome.data, outcome.diverging
        self.next_offset = self.asked.fetch_offset if outcome.data is None else outcome.data.next_offset

    def fail(self, error: Exception) -> None:
        """Answer with ``error``: without records, and with limits of -1, as Kafka does (spec B8)."""
        self.error = error
        self.limits = self.data = self.diverging = None
        self.next_offset = -1
