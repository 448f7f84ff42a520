"""The producers of a partition in memory, in the order of their last change.

Most producers stand for an ``Idempotency-Key``: they write once and never change. Their entries are packed, so that one
takes about 200 bytes with everything around it. Compiled appends (``next_batches_c.pyx``) read and change the
attributes of ``KnownProducers``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from log_model.offsets import Offset
from log_model.producers import KEYED_PRODUCER_ID_MIN, ProducerBatch
from storage.producers.producer_entry import ProducerEntry

# Epoch, last sequence, last offset, timestamp, time of the last change. With two bytes more it would take 16 more.
_PACKED = struct.Struct("=hiqqq")
_USED_MS_AT = 22
_NONE_MOVED: set[int] = set()
"""The value of ``moved`` while there is no ``oldest``: shared by all, and always empty."""
_USED_MS = struct.Struct("=q")


class KnownProducers:
    """The entries by producer id, and the elapsed milliseconds at which each changed last.

    Attributes:
        by_id: a ``ProducerEntry``, or the same packed, for each id; the longest unchanged comes first.
        used_ms: the time of the last change of each entry that is not packed.
        oldest: ids in the order of some time, the longest unchanged last; ``None`` until one must be forgotten.
        moved: those of ``oldest`` that have changed since.

    Thread: only the partition's writer changes it. Any thread may read.
    """

    __slots__ = ("by_id", "moved", "oldest", "used_ms")

    def __init__(self) -> None:
        self.by_id: dict[int, ProducerEntry | bytes] = {}
        self.used_ms: dict[int, int] = {}
        # Most partitions have few producers, and an empty set takes more than all the rest.
        self.oldest: list[int] | None = None
        self.moved: set[int] = _NONE_MOVED

    def __len__(self) -> int:
        return len(self.by_id)

    def ids(self) -> list[int]:
        """Return the ids of all producers."""
        return list(self.by_id)

    def find(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of one producer, if there is one."""
        found = self.by_id.get(producer_id)
        return _unpacked(producer_id, found) if isinstance(found, bytes) else found

    def entries(self) -> Iterator[ProducerEntry]:
        """Iterate over all entries as they are now, the longest unchanged first."""
        for producer_id, entry in self.by_id.copy().items():
            yield _unpacked(producer_id, entry) if isinstance(entry, bytes) else entry

    def put(self, entry: ProducerEntry, now_ms: int) -> None:
        """Set the entry of a producer, which has changed now."""
        producer_id = entry.producer_id
        if self.by_id.pop(producer_id, None) is not None and self.oldest:
            self.moved.add(producer_id)
        if _is_packable(entry):
            self.used_ms.pop(producer_id, None)
            self.by_id[producer_id] = _PACKED.pack(
                entry.producer_epoch, entry.last_sequence, entry.batches[0].last_offset, entry.last_timestamp, now_ms
            )
        else:
            self.used_ms[producer_id] = now_ms
            self.by_id[producer_id] = entry

    def forget_longest_unchanged(self) -> bool:
        """Forget the producer that has not changed for the longest time, and has no open transaction.

        Return false if there is no such producer.
        """
        for _ in range(2):
            while self.oldest:
                producer_id = self.oldest.pop()
                entry = self.by_id.get(producer_id)
                if entry is None or producer_id in self.moved:
                    continue
                if isinstance(entry, bytes) or not entry.is_in_transaction:
                    self._forget(producer_id)
                    return True
            # The beginning of a dict is not searched each time: that takes longer the more was deleted from it.
            self.oldest = self.ids()
            self.oldest.reverse()
            self.moved = set()
        return False

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers unchanged for ``expiration_ms``, except in an open transaction; return their number."""
        expired = []
        for producer_id, entry in self.by_id.items():
            if isinstance(entry, bytes):
                (used_ms,) = _USED_MS.unpack_from(entry, _USED_MS_AT)
                is_in_transaction = False
            else:
                used_ms, is_in_transaction = self.used_ms[producer_id], entry.is_in_transaction
            if now_ms - used_ms >= expiration_ms and not is_in_transaction:
                expired.append(producer_id)
        for producer_id in expired:
            self._forget(producer_id)
        if expired:
            # A producer that comes again must not be found at its former place.
            self.oldest, self.moved = None, _NONE_MOVED
        return len(expired)

    def _forget(self, producer_id: int) -> None:
        del self.by_id[producer_id]
        self.used_ms.pop(producer_id, None)


def _is_packable(entry: ProducerEntry) -> bool:
    """Return whether the entry is that of a key with one batch, which ``_unpacked`` can make of few numbers."""
    if entry.producer_id < KEYED_PRODUCER_ID_MIN or len(entry.batches) != 1:
        return False
    batch = entry.batches[0]
    return (
        batch.first_sequence == 0
        and batch.last_offset - batch.first_offset == batch.last_sequence
        and batch.timestamp == entry.last_timestamp
        and entry.coordinator_epoch == -1
        and not entry.is_in_transaction
    )


def _unpacked(producer_id: int, packed: bytes) -> ProducerEntry:
    epoch, last_sequence, last_offset, timestamp, _ = _PACKED.unpack(packed)
    batch = ProducerBatch(0, last_sequence, Offset(last_offset - last_sequence), Offset(last_offset), timestamp)
    return ProducerEntry(producer_id, epoch, (batch,), timestamp)
