"""The last sequences of producers in the log of a partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from app.event_loop.piecewise import pieces
from storage.log.partition_log import PartitionLog


async def last_sequences(log: PartitionLog, producer_ids: Collection[int]) -> Mapping[int, int]:
    """Return the sequence of the last record of each of these producers; see ``Transactions.last_sequences``."""
    found: dict[int, int] = {}
    async for piece in pieces(_last_sequences(log, producer_ids)):
        found.update(piece)
    return found


def _last_sequences(log: PartitionLog, producer_ids: Collection[int]) -> Iterator[tuple[int, int]]:
    producers = log.producers
    if len(producers) < len(producer_ids):
        for producer_id, entry in producers.entries.items():
            if producer_id in producer_ids:
                yield producer_id, entry.last_sequence
        return
    for producer_id in producer_ids:
        found = producers.find(producer_id)
        if found is not None:
            yield producer_id, found.last_sequence
