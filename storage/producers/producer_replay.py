"""The producers and transactions of a partition, from the newest snapshot and the batches after it (spec E20)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from log_model.offsets import LogOffsetMetadata, Offset
from log_model.transactions import CompletedTransaction, marker_of
from storage.index.batch_walk import StoredBatch, read_batch
from storage.producers.producer_state import ProducerState
from storage.segment.segment import Segment


def replay_producers(
    producers: ProducerState,
    segments: Sequence[Segment],
    log_end: Offset,
    upto: Offset | None = None,
    without_producers: Collection[Offset] = (),
) -> None:
    """Restore the producers as they are at the log end, or at ``upto``, which is a segment's base offset.

    Segments whose base offsets are in ``without_producers`` have no batches of producers, and are skipped.

    Raises:
        CorruptionError: batches are damaged; the producers are as before them.
    """
    end = log_end if upto is None else upto
    restored = producers.load(max(segments[0].base_offset, Offset(0)), log_end, newest=end)
    for segment, segment_end in with_ends(segments, log_end):
        if restored < segment_end and segment.base_offset < end and segment.base_offset not in without_producers:
            replay_segment(producers, segment, restored)


def with_ends(segments: Sequence[Segment], log_end: Offset) -> Iterator[tuple[Segment, Offset]]:
    """Pair each segment with its end: the base offset of the next one, or the log end."""
    return zip(segments, [*(following.base_offset for following in segments[1:]), log_end], strict=True)


def replay_segment(producers: ProducerState, segment: Segment, start: Offset) -> list[CompletedTransaction]:
    """Record the batches of a segment from ``start``; return the transactions that their markers end.

    Raises:
        CorruptionError: as ``replay_producers``.
    """
    completed: list[CompletedTransaction] = []
    for batch in segment.walk(0, segment.size_bytes):
        if batch.header.producer_id >= 0 and batch.header.base_offset >= start:
            completed += _replay(producers, segment, batch)
    return completed


def _replay(producers: ProducerState, segment: Segment, batch: StoredBatch) -> list[CompletedTransaction]:
    header = batch.header
    control = marker_of(read_batch(segment.file, batch)) if header.is_control else None
    if header.is_control and control is None:
        return []
    place = LogOffsetMetadata(Offset(header.base_offset), segment.base_offset, batch.position)
    return producers.update(header, place=place, control=control)
