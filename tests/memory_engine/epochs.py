"""Leader epochs of a partition as clients know and ask for them (spec D11, E2)."""

from __future__ import annotations

from log_model.epochs import EpochEndOffset
from log_model.errors import (
    FencedLeaderEpochError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from log_model.offsets import LeaderEpoch, Offset
from tests.memory_engine.log import MemoryLog


def check_current(log: MemoryLog, asked: int | None) -> None:
    """Compare a client's leader epoch with the current one; ``None`` is not compared.

    Raises:
        FencedLeaderEpochError, UnknownLeaderEpochError
    """
    current = log.leader_epoch
    if asked is not None and asked < current:
        raise FencedLeaderEpochError(f"leader epoch {asked} is over, {current} is the current one")
    if asked is not None and asked > current:
        raise UnknownLeaderEpochError(f"leader epoch {asked} is not known here, {current} is the current one")


def end_of(log: MemoryLog, epoch: int) -> EpochEndOffset | None:
    """Return the greatest epoch not above ``epoch`` that has records, and its end; ``None`` if it is unknown."""
    if not 0 <= epoch <= log.leader_epoch:
        return None
    before = [each for each in log.epochs if each.epoch <= epoch]
    after = [each for each in log.epochs if each.epoch > epoch]
    end = after[0].start_offset if after else log.snapshot.log_end_offset
    return EpochEndOffset(before[-1].epoch if before else LeaderEpoch(epoch), end)


def find_divergence(log: MemoryLog, last_fetched_epoch: int, offset: Offset) -> EpochEndOffset | None:
    """Return where a reader's log parts from this one; ``None`` if it does not.

    Raises:
        OffsetOutOfRangeError: the epoch is unknown, or ``offset`` is below the log start.
    """
    end, limits = end_of(log, last_fetched_epoch), log.snapshot
    if end is None or offset < limits.log_start_offset:
        why = f"leader epoch {last_fetched_epoch} is not known" if end is None else "it is below the log start"
        raise OffsetOutOfRangeError(
            f"offset {offset} cannot be continued: {why}",
            offset=offset,
            log_start_offset=limits.log_start_offset,
            log_end_offset=limits.log_end_offset,
        )
    return end if end.epoch < last_fetched_epoch or end.end_offset < offset else None


def refuse_behind_epoch(log: MemoryLog) -> None:
    """Return if the end of the readable records is known.

    Raises:
        OffsetNotAvailableError: the high watermark has not reached the current leader epoch.
    """
    high_watermark = log.snapshot.high_watermark
    if high_watermark < log.epochs[-1].start_offset:
        raise OffsetNotAvailableError(
            f"the high watermark of {log.name}, {high_watermark}, has not come to leader epoch {log.leader_epoch}"
        )
