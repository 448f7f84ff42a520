"""The sequences of producers."""

from __future__ import annotations

from typing import NamedTuple

from log_model.offsets import Offset
from rollway.records import BatchHeader

SEQUENCE_COUNT = 2**31
"""After this many records of a producer in a partition its sequences begin at 0 again."""


def add_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence; 0 follows 2^31-1. ``increment`` may be negative."""
    return (sequence + increment) % SEQUENCE_COUNT


class ProducerBatch(NamedTuple):
    """A batch of a producer in the log. Both ends are inclusive: they belong to the first and the last record."""

    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp: int
    """The batch's greatest timestamp; for LogAppendTime, the time of its append."""

    @classmethod
    def of(cls, header: BatchHeader) -> ProducerBatch:
        """Make the entry of the batch with this header, as stamped by the log."""
        return cls(
            header.base_sequence,
            add_sequence(header.base_sequence, header.last_offset_delta),
            Offset(header.base_offset),
            Offset(header.last_offset),
            header.max_timestamp,
        )


KEYED_PRODUCER_ID_MIN = 2**62
"""Producer ids from here on stand for the key of one request. Such a producer writes once, from sequence 0, in an epoch
that is not counted up but belongs to the request."""
