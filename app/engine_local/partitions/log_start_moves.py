"""The time and the cause of the last move of each partition's log start."""

from __future__ import annotations

from typing import NamedTuple

from log_model.names import PartitionName


class LogStartMove(NamedTuple):
    """The time and the cause of the last move of a partition's log start while this process ran."""

    at_ms: int
    by: str


class LogStartMoves:
    """The last move of each partition's log start, for the refusal of a reader that came too late."""

    def __init__(self) -> None:
        self._moves: dict[PartitionName, LogStartMove] = {}

    def note(self, partition: PartitionName, at_ms: int, by: str) -> None:
        """Record a move of the log start at ``at_ms``, caused by ``by``."""
        self._moves[partition] = LogStartMove(at_ms, by)

    def forget(self, partition: PartitionName) -> None:
        """Forget a partition that no longer exists."""
        self._moves.pop(partition, None)

    def last_of(self, partition: PartitionName) -> LogStartMove | None:
        """Return the last move; ``None`` if there was none while this process ran."""
        return self._moves.get(partition)
