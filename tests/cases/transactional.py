"""Transactions for cases: a producer, a mixed log, and what there is to look at."""

from __future__ import annotations

import struct

from log_model.offsets import Offset
from log_model.reads import Isolation
from rollway.records import (
    split_batches,
)
from tests.cases.logs import CaseLog, batch_of


class Producer:
    """A transactional producer that counts its sequences."""

    def __init__(self, log: CaseLog, producer_id: int, epoch: int = 0) -> None:
        self.log = log
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def batch(self, count: int = 1, *, transactional: bool = True) -> bytes:
        """The next batch, not sent."""
        data = batch_of(
            count,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=transactional,
        )
        self.sequence += count
        return data

    def send(self, count: int = 1) -> int:
        """Append a transactional batch; return its first offset."""
        return self.log.send(self.batch(count)).base_offset

    def commit(self) -> int:
        return self.log.end_transaction(self.producer_id, commit=True, producer_epoch=self.epoch).base_offset

    def abort(self) -> int:
        return self.log.end_transaction(self.producer_id, commit=False, producer_epoch=self.epoch).base_offset


def last_stable(log: CaseLog) -> int:
    return log.snapshot.last_stable_offset


def stored_aborted(log: CaseLog, base_offset: int = 0) -> list[tuple[int, int, int, int]]:
    """The entries of a segment's .txnindex as the file has them: producer, first, last, last stable offset."""
    path = log.file(base_offset, ".txnindex")
    content = path.read_bytes() if path.exists() else b""
    entries = list(struct.iter_unpack(">hqqqq", content))
    assert all(entry[0] == 0 for entry in entries)
    return [entry[1:] for entry in entries]


def mixed(log: CaseLog) -> None:
    """Aborted, committed and open transactions over several segments, some of them longer than one."""
    one, two, three, four = (Producer(log, number) for number in (1, 2, 3, 4))
    one.send(3)
    two.send(2)
    one.abort()
    log.roll()
    two.send(1)
    three.send(2)
    log.roll()
    two.abort()
    three.abort()
    four.send(1)
    four.commit()
    log.roll()
    one.send(2)
    one.abort()
    four.send(2)
    log.send(batch_of(2))


MIXED_ENTRIES = {0: [(1, 0, 5, 3)], 6: [], 9: [(2, 3, 9, 7), (3, 7, 10, 11)], 13: [(1, 13, 15, 16)]}


def committed(log: CaseLog, offset: int = 0) -> list[int]:
    """What a consumer of committed records keeps of a fetch: written from the rule, not by the engine."""
    fetched = log.snapshot.read(Offset(offset), 1 << 20, isolation=Isolation.LAST_STABLE)
    listed = sorted(fetched.aborted or (), key=lambda entry: entry.first_offset)
    active: set[int] = set()
    kept: list[int] = []
    for batch in split_batches(b"".join(piece.read() for piece in fetched.slices)):
        header = batch.header
        while listed and listed[0].first_offset <= header.last_offset:
            active.add(listed.pop(0).producer_id)
        if header.is_control:
            active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            kept += range(header.base_offset, header.last_offset + 1)
    return [entry for entry in kept if entry >= offset]
