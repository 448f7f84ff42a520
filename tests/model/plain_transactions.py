"""Transactions of a plain log, by looking at all of it: what is open, what was aborted, what a consumer may keep."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from log_model.transactions import AbortedTransaction, TransactionMarker
from rollway.records import ControlType, encode_control_batch, parse_header, split_batches
from tests.model.plain_log import ClientBatch, PlainLog, client_batch

header_of = lru_cache(maxsize=10_000)(parse_header)


class PlainTransaction(NamedTuple):
    """A transaction: from its first record to its marker, if it has one."""

    producer_id: int
    first_offset: int
    marker_offset: int | None
    commit: bool


def transactions_of(log: PlainLog) -> list[PlainTransaction]:
    """All that have records, in the order of their markers; those without one last."""
    opened: dict[int, int] = {}
    ended: list[PlainTransaction] = []
    for batch in log.batches:
        header = header_of(batch.stored)
        if batch.marker is not None:
            first = opened.pop(header.producer_id, None)
            if first is not None:
                ended.append(PlainTransaction(header.producer_id, first, batch.base_offset, batch.marker.commit))
        elif header.is_transactional:
            opened.setdefault(header.producer_id, batch.base_offset)
    return ended + [PlainTransaction(producer_id, first, None, commit=False) for producer_id, first in opened.items()]


def last_stable_offset(log: PlainLog, high_watermark: int) -> int:
    """Spec E22: the first record of any transaction whose end is not below the high watermark."""
    unstable = [
        entry.first_offset
        for entry in transactions_of(log)
        if entry.marker_offset is None or entry.marker_offset >= high_watermark
    ]
    return max(log.start_offset, min([*unstable, high_watermark]))


def aborted_entries(log: PlainLog) -> list[tuple[int, int, int, int]]:
    """What the transaction indexes hold: producer, first offset, marker, and what the marker left open (case TX-3)."""
    found = transactions_of(log)
    entries = []
    for aborted in found:
        marker = aborted.marker_offset
        if marker is None or aborted.commit:
            continue
        left_open = [
            entry.first_offset
            for entry in found
            if entry.first_offset < marker and (entry.marker_offset is None or entry.marker_offset > marker)
        ]
        entries.append((aborted.producer_id, aborted.first_offset, marker, min([*left_open, marker + 1])))
    return entries


def committed_offsets(log: PlainLog, start: int, end: int) -> list[int]:
    """The records in ``[start, end)`` that belong to no transaction or to a committed one."""
    # From the end: the next marker of a producer decides about its records.
    committed: dict[int, bool] = {}
    kept: list[int] = []
    for batch in reversed(log.batches_from(start)):
        header = header_of(batch.stored)
        if batch.marker is not None:
            committed[header.producer_id] = batch.marker.commit
        elif batch.next_offset <= end and (not header.is_transactional or committed.get(header.producer_id, False)):
            kept += range(batch.last_offset, max(start, batch.base_offset) - 1, -1)
    return kept[::-1]


def kept_by_a_consumer(content: bytes, aborted: Iterable[AbortedTransaction], start: int) -> list[int]:
    """The records from ``start`` on that a consumer of committed records keeps: Kafka's rule, by the list alone."""
    waiting = sorted(aborted, key=lambda entry: entry.first_offset)
    active: set[int] = set()
    kept: list[int] = []
    for batch in split_batches(content):
        header = batch.header
        while waiting and waiting[0].first_offset <= header.last_offset:
            active.add(waiting.pop(0).producer_id)
        if header.is_control:
            active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            kept += range(max(start, header.base_offset), header.next_offset)
    return kept


def marker_batch(marker: TransactionMarker, now_ms: int) -> ClientBatch:
    """The batch that the log makes of a marker."""
    sent = encode_control_batch(
        ControlType.COMMIT if marker.commit else ControlType.ABORT,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now_ms,
    )
    return ClientBatch((now_ms,), sent, marker)


class PlainProducers:
    """What the transactional producers of a plain log would send next, from what the log holds."""

    def __init__(self, log: PlainLog) -> None:
        self._sequences: dict[int, int] = {}
        self.opened = {entry.producer_id for entry in transactions_of(log) if entry.marker_offset is None}
        for batch in log.batches:
            header = header_of(batch.stored)
            if header.producer_id >= 0 and not header.is_control:
                self._sequences[header.producer_id] = header.base_sequence + header.record_count

    def batch(self, producer_id: int, timestamps: Sequence[int], value_bytes: int, mark: int) -> ClientBatch:
        """The next transactional batch of a producer."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(timestamps)
        self.opened.add(producer_id)
        return client_batch(
            timestamps,
            value_bytes,
            mark,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )

    def marker(self, producer_id: int, *, commit: bool, now_ms: int) -> ClientBatch:
        """The marker of a producer's transaction, if it has one open or not, appended at ``now_ms``."""
        self.opened.discard(producer_id)
        return marker_batch(TransactionMarker(producer_id, 0, 0, commit), now_ms)

    def random_marker(self, source: random.Random, now_ms: int) -> ClientBatch:
        """Mostly of a transaction that is open."""
        producer_id = source.choice(sorted(self.opened) or [1])
        return self.marker(producer_id, commit=source.random() < 0.5, now_ms=now_ms)
