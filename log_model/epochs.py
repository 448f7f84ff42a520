"""Leader epochs as they are told to clients."""

from __future__ import annotations

from typing import NamedTuple

from log_model.offsets import LeaderEpoch, Offset


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEndOffset(NamedTuple):
    """A leader epoch and the offset behind its last record."""

    epoch: LeaderEpoch
    end_offset: Offset
