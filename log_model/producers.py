"""The sequences of producers."""

from __future__ import annotations

import struct
from hashlib import blake2b
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


_KEYED_BATCH = struct.Struct(">qi")


def keyed_batch_id(first_id: int, number: int) -> int:
    """Return the producer id of one batch of a keyed request in a cluster, where each batch has an id of its own.

    A broker remembers only the last five batches of a producer. ``first_id`` is the id that the local engine gives the
    whole request. The batches are counted from 0, and the first one keeps it. Further ids are derived from that id and
    not from the key, so that an export can derive them from the log.
    """
    if number == 0:
        return first_id
    digest = blake2b(_KEYED_BATCH.pack(first_id, number), digest_size=8).digest()
    return KEYED_PRODUCER_ID_MIN + int.from_bytes(digest, "big") % KEYED_PRODUCER_ID_MIN
