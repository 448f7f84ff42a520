"""The producers of batches in a cluster: their ids are no ids that the cluster gives out itself.

A cluster gives out producer ids from 0, and so does the service. A broker that finds a batch of its own new producer
in an adopted log answers "duplicate", and does not store the record. Therefore each id that the service gave out is
moved by a constant of the data directory.

A producer that stands for an ``Idempotency-Key`` has an id from 2^62 on, which no cluster reaches. It keeps the id, and
gets what the Kafka engine derives for a key: epoch 0, sequence 0, and an id of its own for each further batch.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from log_model.producers import KEYED_PRODUCER_ID_MIN, add_sequence, keyed_batch_id
from rollway.records import BatchHeader

MOVED_ID_MIN = 2**60
"""Producer ids from here on are not moved: clients made them up, and no cluster reaches them."""

_STEP = 2**32
_STEP_COUNT = 2**28


class BatchProducer(NamedTuple):
    """The three fields of a batch that name its producer."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


NO_PRODUCER = BatchProducer(-1, -1, -1)


def producer_shift(directory_id: str) -> int:
    """Return the constant by which the producer ids of a data directory are moved.

    It is a multiple of 2^32 from 2^60 to 2^61, made of the id of the directory: each export of the directory, and
    everybody who knows the id, gets the same. Producers of two directories that go to one cluster stay apart.
    """
    digest = blake2b(directory_id.encode(), digest_size=8, person=b"producer shift").digest()
    return MOVED_ID_MIN + int.from_bytes(digest, "big") % _STEP_COUNT * _STEP


def moved_id(producer_id: int, shift: int) -> int:
    """Return the id in the cluster. Example: 7 is 7 + ``shift``; -1 (no producer) and ids of keys stay."""
    return producer_id + shift if 0 <= producer_id < MOVED_ID_MIN else producer_id


class MovedProducers:
    """Finds the producer in the cluster for one batch after the other, in the order of a partition."""

    def __init__(self, shift: int) -> None:
        self._shift = shift
        self._first_id = -1
        self._next_number = 0
        self._next_sequence = 0

    def of(self, header: BatchHeader) -> BatchProducer:
        """Return the producer in the cluster of the next batch.

        ``NO_PRODUCER`` for a batch of a keyed request whose first batch is not before it: which batch of the request it
        is cannot be known, so the key loses its memory.
        """
        producer_id = header.producer_id
        if producer_id < KEYED_PRODUCER_ID_MIN or header.is_transactional:
            moved = moved_id(producer_id, self._shift)
            return BatchProducer(moved, header.producer_epoch, header.base_sequence)
        if header.base_sequence == 0:
            number = 0
        elif (producer_id, header.base_sequence) == (self._first_id, self._next_sequence):
            number = self._next_number
        else:
            self._first_id = -1
            return NO_PRODUCER
        self._first_id = producer_id
        self._next_number = number + 1
        self._next_sequence = add_sequence(header.base_sequence, header.last_offset_delta + 1)
        return BatchProducer(keyed_batch_id(producer_id, number), 0, 0)
