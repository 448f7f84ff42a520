"""Transaction indexes rebuilt from the log: after an unclean stop, and wherever an index is not sound (spec E20).

The rebuilt entries are equal to the original ones. The producer snapshot at the start of every segment, and the batches
since, show which transactions an abort marker left open.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from log_model.errors import CorruptionError
from log_model.offsets import Offset
from log_model.reads import OffsetRange
from storage.index.index_file import CorruptIndexError
from storage.producers.producer_replay import replay_producers, replay_segment, with_ends
from storage.producers.producer_state import ProducerState
from storage.producers.transaction_checkpoint import TransactionCheckpoint
from storage.segment.segment import Segment

_logger = logging.getLogger(__name__)


def restore_producers(
    producers: ProducerState,
    checkpoint: TransactionCheckpoint,
    segments: Sequence[Segment],
    log_end: Offset,
    unsure: Collection[Segment],
    damage: Sequence[OffsetRange] = (),
    without_producers: Collection[Offset] = (),
) -> bool:
    """Restore the producers and their transactions as they are at the log end, and every segment's transaction index.

    The indexes of ``unsure`` segments, of which only the batches were checked, are rebuilt durably. So is an index that
    is damaged, has other segments' markers, or does not match ``checkpoint``. For markers in ``damage`` only the old
    index has entries; they stay if it is sound. Segments ``without_producers``, given by their base offsets, are not
    read for this.

    Return whether every index was sound.

    Raises:
        CorruptionError: batches are damaged. The producers are as before them; indexes of later segments are unchanged.
    """
    if not checkpoint.load():
        unsure = segments
    known_end: Offset | None = None
    bases = {segment.base_offset for segment in segments}
    for segment, end in with_ends(segments, log_end):
        if segment not in unsure and _is_sound(segment, end, checkpoint):
            continue
        if known_end != segment.base_offset:
            replay_producers(producers, segments, log_end, segment.base_offset, without_producers)
        completed = []
        if segment.base_offset not in without_producers:
            completed = replay_segment(producers, segment, segment.base_offset)
        aborted = [entry.to_aborted() for entry in completed if entry.is_aborted]
        if damage and _is_sound(segment, end, checkpoint):
            aborted += [
                entry
                for entry in segment.transactions.entries()
                if any(lost.start <= entry.last_offset < lost.end for lost in damage)
            ]
            aborted.sort(key=lambda entry: entry.last_offset)
        segment.transactions.replace(aborted)
        if segment is not segments[-1]:
            checkpoint.note(segment.base_offset, segment.transactions.content(), bases)
        known_end = end
    if known_end != log_end:
        replay_producers(producers, segments, log_end, without_producers=without_producers)
    return known_end is None and unsure is not segments


def _is_sound(segment: Segment, end: Offset, checkpoint: TransactionCheckpoint) -> bool:
    try:
        if not checkpoint.agrees(segment.base_offset, segment.transactions.checked_content(end)):
            raise CorruptIndexError(f"{segment.transactions.index.path} differs from its checkpoint")
    except CorruptionError as error:
        _logger.warning("a transaction index is rebuilt: %s", error)
        return False
    return True
